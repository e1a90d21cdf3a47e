-- What an engine counted between the first and the last of its metrics pages that carry no time.
--
-- Counters only rise within one life of their engine, and that is all there is to go by. Pages are of one life where each names the same
-- start of the process, or where one input holds them all, in its order; else nobody can tell a rise from two lives that counted
-- differently far, and it is only told what the difference would be.
--
-- grain: engine
-- needs: core.untimed_pages
-- column: engine            VARCHAR | Engine.
-- column: pages             BIGINT  | Pages it has, two at least.
-- column: is_one_life       BOOLEAN | Whether they are of one life of the engine; false where that cannot be told.
-- column: preemptions       BIGINT  | Preemptions between the page that counted least and the one that counted most; NULL where one does not say, or counters do not rise together.
-- column: finished          BIGINT  | Requests finished between them.
-- column: prompt_tokens     BIGINT  | Prompt tokens between them.
-- column: generation_tokens BIGINT  | Tokens generated between them.
-- check:  pages > 1 | One page counts nothing.
-- check:  preemptions >= 0 | A range.
with beside as (
    select
        *,
        lag(generation_tokens) over by_count as generation_before,
        lag(prompt_tokens) over by_count as prompt_before,
        lag(finished) over by_count as finished_before,
        lag(preemptions) over by_count as preemptions_before,
        lag(generation_tokens) over in_input as generation_in_input,
        lag(preemptions) over in_input as preemptions_in_input,
    from core.untimed_pages
    window
        by_count as (partition by engine order by generation_tokens, prompt_tokens, finished, preemptions, source, page),
        in_input as (partition by engine, source order by page)
),

judged as (
    select
        engine,
        count(*) as pages,
        count(started_at) = count(*) and count(distinct started_at) = 1 or count(distinct source) = 1 as is_one_life,
        count(distinct started_at) <= 1
        and not bool_or(
            coalesce(
                prompt_tokens < prompt_before
                or finished < finished_before
                or preemptions < preemptions_before
                or generation_tokens < generation_in_input
                or preemptions < preemptions_in_input,
                false
            )
        ) as is_rising,
        count(generation_tokens) = count(*) as is_ordered,
        if(count(preemptions) = count(*), max(preemptions) - min(preemptions), null) as preemptions,
        if(count(finished) = count(*), max(finished) - min(finished), null) as finished,
        if(count(prompt_tokens) = count(*), max(prompt_tokens) - min(prompt_tokens), null) as prompt_tokens,
        if(count(generation_tokens) = count(*), max(generation_tokens) - min(generation_tokens), null) as generation_tokens,
    from beside
    group by engine
)

select
    engine,
    pages,
    is_one_life and is_rising and is_ordered as is_one_life,
    if(is_rising and is_ordered, preemptions, null) as preemptions,
    if(is_rising and is_ordered, finished, null) as finished,
    if(is_rising and is_ordered, prompt_tokens, null) as prompt_tokens,
    if(is_rising and is_ordered, generation_tokens, null) as generation_tokens,
from judged
where pages > 1
order by engine
