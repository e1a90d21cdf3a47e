-- Recomputed and refilled tokens as the KV events tell them, with what events cannot show added from the preemption counter.
--
-- What a resume stored again is exact; beside it, it recomputed its last block as far as that was filled, and a resume that found
-- every full block in the cache stored nothing and recomputed only that. How full a last block is, is chance: evenly anything
-- from nothing to a block, but nothing where the victim itself needed the next one, as one in so many does as were running. A sum
-- over resumes is known to within three standard deviations (size * sqrt(resumes / 12)).
-- Resumes that are not seen are those the counter has more of. Where it has fewer than were told apart, those that had stood
-- still longest are not resumes but prompts that end where an earlier answer ended; so are, without a counter, those that
-- core.resumes rules out.
--
-- With an external KV tier, blocks stored again may have been loaded. What the tier's counter leaves over may have been, too (it
-- leaves out requests that load a second time), so it bounds the refill from above, and the middle is as good as any guess. Of a
-- tier whose counter is in no input, all of it may have been.
--
-- grain: engine
-- needs: staging.kv_events
-- column: engine         VARCHAR     | Engine that published events.
-- column: first_event_at TIMESTAMPTZ | First batch.
-- column: last_event_at  TIMESTAMPTZ | Last batch.
-- column: lost_batches   BIGINT      | Batches missing between two sequence numbers.
-- column: is_from_start  BOOLEAN     | Whether the first batch of the engine is there; if not, blocks stored before it are not known.
-- column: is_begin_known BOOLEAN     | Whether that, or events from before the window lead up to it: they tell where the requests under way stand.
-- column: resumes_seen   BIGINT      | Resumes that stored blocks again.
-- column: resumes_unseen BIGINT      | Resumes counted beyond these; NULL without the counter.
-- column: recompute_low  DOUBLE      | Least tokens recomputed after preemption.
-- column: recompute_best DOUBLE      | Expected tokens recomputed after preemption.
-- column: recompute_high DOUBLE      | Most tokens recomputed after preemption.
-- column: refill_low     DOUBLE      | Least tokens of evicted prefixes computed again.
-- column: refill_best    DOUBLE      | Expected tokens of evicted prefixes computed again.
-- column: refill_high    DOUBLE      | Most tokens of evicted prefixes computed again.
-- column: stored_tokens  BIGINT      | Tokens of all blocks stored.
-- column: stored_again   BIGINT      | Tokens of all blocks stored again.
-- column: block_size     BIGINT      | Tokens in a block; the most, where they differ.
-- check:  recompute_low <= recompute_best and recompute_best <= recompute_high | A range holds its best estimate.
-- check:  refill_low <= refill_best and refill_best <= refill_high | A range holds its best estimate.
with batches as (
    select
        engine,
        source,
        line,
        any_value(published_at) as published_at,
        any_value(seq) as seq,
        max(block_size) as block_size,
        -- a hybrid model's first group, in the pool it computes in
        sum(block_size) filter (
            where event = 'stored' and coalesce(group_idx, 0) = 0 and coalesce(upper(medium), 'GPU') = 'GPU'
        ) as stored_tokens,
    from staging.kv_events
    group by all
),

known_before as (
    select engine, arg_max(seq, published_at) as seq from staging.kv_events_before group by engine
),

sequenced as (
    select *, seq - lag(seq) over (partition by engine order by published_at, seq) as step from batches
),

coverage as (
    select
        engine,
        min(published_at) as first_event_at,
        max(published_at) as last_event_at,
        count(*) as batches,
        coalesce(sum(step - 1) filter (where step > 1), 0) as lost_batches,
        arg_min(seq, published_at) as first_seq,
        first_seq = 0 as is_from_start,
        max(block_size) as block_size,
        sum(stored_tokens)::bigint as stored_tokens,
    from sequenced
    group by engine
),

counted as (
    select
        engine,
        min(interval_start) as counted_from,
        max(interval_end) as counted_until,
        sum(preemptions) as preemptions,
    from core.preemption_intervals
    group by engine
),

-- share of the victims that needed the block themselves: any running request is as likely to
crowds as (
    select
        intervals.engine,
        -- the more crowded end: a pool is full of many, and a scrape before or after the crowd shows few
        ratio(
            sum(intervals.preemptions / greatest(before.running, states.running, 1)), sum(intervals.preemptions)
        ) as own_share,
    from core.preemption_intervals as intervals
    asof inner join core.engine_states as states
        on states.engine = intervals.engine and states.sampled_at <= intervals.interval_end
    asof left join core.engine_states as before
        on before.engine = intervals.engine and before.sampled_at <= intervals.interval_start
    where intervals.preemptions > 0 and states.running is not null
    group by intervals.engine
),

restored as (
    select engine, sum(delta) as tokens from core.counter_intervals where signal = 'external_prefix_hits' group by engine
),

placed as (
    select
        again.*,
        counted.preemptions,
        coalesce(again.stored_at between counted.counted_from and counted.counted_until, false) as is_counted,
        coalesce(resumes.is_possible, false) as is_believable,
    from core.blocks_stored_again as again
    left join counted using (engine)
    left join core.resumes using (engine, again_index)
),

-- is_sure: a resume for certain. is_resume: taken for one. is_possible: it may be one
ranked as (
    select
        *,
        kind = 'resume' and case
            when preemptions is null then is_believable
            when is_counted then place <= preemptions
            else false
        end as is_sure,
        kind = 'resume' and case
            when preemptions is null then is_believable
            when is_counted then place <= preemptions
            else preemptions > 0 -- beyond the counter's window as within it
        end as is_resume,
        kind = 'resume' and if(preemptions is null, is_believable, not is_counted or preemptions > 0) as is_possible,
    from (select *, row_number() over (partition by engine, kind, is_counted order by idle_s, stored_at) as place from placed)
),

sums as (
    select
        engine,
        count(*) filter (where is_resume) as resumes_seen,
        count(*) filter (where is_resume and is_counted) as resumes_counted,
        coalesce(sum(blocks * block_size - is_tail_full::int) filter (where is_resume), 0) as rebuilt_tokens,
        count(*) filter (where is_resume and not is_tail_full) as open_tails,
        coalesce(sum(blocks_again * block_size) filter (where not is_resume), 0)::bigint as refilled_tokens,
        coalesce(sum(blocks * block_size) filter (where is_possible and not is_resume), 0) as doubtful_tokens,
        coalesce(sum(blocks_again * block_size) filter (where is_possible and not is_resume), 0) as doubtful_refill_tokens,
        coalesce(sum(blocks * block_size) filter (where is_resume and not is_sure), 0) as unsure_tokens,
        coalesce(sum(blocks_again * block_size) filter (where is_resume and not is_sure), 0) as unsure_refill_tokens,
        sum(blocks_again * block_size)::bigint as stored_again,
    from ranked
    group by engine
),

told as (
    select
        coverage.*,
        coalesce(sums.resumes_seen, 0) as resumes_seen,
        at_least_zero(counted.preemptions - coalesce(sums.resumes_counted, 0)) as resumes_unseen_within,
        coalesce(sums.rebuilt_tokens, 0) as rebuilt_tokens,
        coalesce(sums.open_tails, 0) as open_tails,
        coalesce(sums.refilled_tokens, 0) as refilled_tokens,
        coalesce(sums.doubtful_tokens, 0) as doubtful_tokens,
        coalesce(sums.doubtful_refill_tokens, 0) as doubtful_refill_tokens,
        coalesce(sums.unsure_tokens, 0) as unsure_tokens,
        coalesce(sums.unsure_refill_tokens, 0) as unsure_refill_tokens,
        -- beyond the counter's window as many resumes are unseen as within it
        (coalesce(sums.resumes_seen, 0) - coalesce(sums.resumes_counted, 0))
            * coalesce(ratio(at_least_zero(counted.preemptions - sums.resumes_counted), sums.resumes_counted), 0) as resumes_unseen_beyond,
        coalesce(sums.stored_again, 0) as stored_again,
        coalesce(restored.tokens, 0) as restored_tokens,
        restored.tokens is null and engines.kv_connector is not null as has_silent_tier,
        coverage.is_from_start or coalesce(known_before.seq = coverage.first_seq - 1, false) as is_begin_known,
        1 - coalesce(crowds.own_share, 0) as others_share,
        coalesce(lost_batches / nullif(batches, 0), 0) as lost_share,
    from coverage
    left join known_before using (engine)
    left join sums using (engine)
    left join counted using (engine)
    left join crowds using (engine)
    left join restored using (engine)
    left join core.engines using (engine)
),

totalled as (
    select *, resumes_unseen_within + resumes_unseen_beyond as resumes_unseen from told
),

tailed as (
    select
        *,
        open_tails + coalesce(resumes_unseen, 0) as tails,
        -- without the counter as many resumes may be unseen as are seen
        (open_tails + coalesce(resumes_unseen, resumes_seen)) * (block_size - 1) as tail_tokens_most,
        -- the last block of one that was seen lacked more than a token, or it would have been stored as well
        (open_tails * (block_size - 2) + coalesce(resumes_unseen, 0) * (block_size - 1)) / 2 as tail_tokens_of_others,
        others_share * tail_tokens_of_others as tail_tokens,
    from totalled
),

expected as (
    select
        *,
        rebuilt_tokens + tail_tokens as recompute_best,
        3 * block_size * sqrt(tails / 12) as tail_spread,
    from tailed
)

select
    engine,
    first_event_at,
    last_event_at,
    lost_batches::bigint as lost_batches,
    is_from_start,
    is_begin_known,
    resumes_seen,
    resumes_unseen::bigint as resumes_unseen,
    at_least_zero(rebuilt_tokens + at_least_zero(tail_tokens - tail_spread) - unsure_tokens) as recompute_low,
    recompute_best,
    case
        when resumes_unseen is null then rebuilt_tokens + tail_tokens_most
        -- how many were running is seen at scrapes only: at most, no victim needed the block itself
        else rebuilt_tokens + least(tail_tokens_of_others + tail_spread, tails * (block_size - 1)) + doubtful_tokens
            + resumes_unseen_beyond * block_size
    end * (1 + 2 * lost_share) as recompute_high,
    case when restored_tokens > 0 or has_silent_tier then 0 else at_least_zero(refilled_tokens - doubtful_refill_tokens) end::double as refill_low,
    case
        when has_silent_tier then refilled_tokens / 2
        when restored_tokens > 0 then at_least_zero(refilled_tokens - restored_tokens) / 2
        else refilled_tokens
    end as refill_best,
    case
        when has_silent_tier then refilled_tokens
        when restored_tokens > 0 then at_least_zero(refilled_tokens - restored_tokens)
        else refilled_tokens + unsure_refill_tokens
    end * (1 + 2 * lost_share) as refill_high,
    stored_tokens,
    stored_again,
    block_size,
from expected
order by engine
