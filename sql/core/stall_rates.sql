-- How fast the engine computes a prompt, as the run itself shows: what a rebuild and a prefill must have taken.
--
-- The fastest tenth of the requests, since the others shared their steps or waited. A prompt found in the prefix cache looks faster
-- than it was computed, which makes a rebuild look shorter and its wait longer.
--
-- grain: prefill_tokens_per_s
-- column: prefill_tokens_per_s DOUBLE  | Prompt tokens a second; NULL where no request tells.
-- column: method               VARCHAR | spans (first scheduling to first token) or clients (sending to first token).
with rates as (
    select
        quantile_cont(ratio(input_tokens, prefill_s), 0.9) filter (prefill_s > 0) as by_spans,
        quantile_cont(ratio(input_tokens, ttft_s), 0.9) filter (ttft_s > 0) as by_clients,
    from core.requests
    where input_tokens > 0
)

select
    coalesce(by_spans, by_clients) as prefill_tokens_per_s,
    case when by_spans is not null then 'spans' when by_clients is not null then 'clients' end as method,
from rates
order by prefill_tokens_per_s
