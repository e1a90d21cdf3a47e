-- Spells: signs of one kind that follow each other closely, joined into one window each.
--
-- Two signs belong together where less than three usual samples (and less than ten seconds) of calm lie between them. A stall of the
-- whole engine needs a minute of it: shorter ones are long steps; and it ends where a sample shows tokens (core.silences).
--
-- grain: engine, verdict, window_start
-- needs: core.signs
-- column: engine         VARCHAR     | Engine.
-- column: verdict        VARCHAR     | The verdict its signs are of.
-- column: window_start   TIMESTAMPTZ | First sign.
-- column: window_end     TIMESTAMPTZ | Last sign.
-- column: peak_at        TIMESTAMPTZ | Start of its strongest sign.
-- column: signs          BIGINT      | Signs in it.
-- column: seconds        DOUBLE      | Seconds in which a sign held.
-- column: weight         DOUBLE      | Sum of the signs' weights.
-- column: peak_weight    DOUBLE      | Weight of the strongest.
-- column: weight_seconds DOUBLE      | Sum of weight times the sign's length: request-seconds for a queue.
-- check:  window_start <= window_end | Windows.
with usual as (
    select engine, coalesce(median(scrape_s), 0) as step_s from core.engine_states group by engine
),

-- of a stall: the silence its sign lies in, if that ended
placed as (
    select signs.*, silences.silence_end
    from core.signs as signs
    asof left join core.silences as silences on silences.engine = signs.engine and silences.silence_end > signs.sign_start
),

ordered as (
    select
        placed.*,
        if(verdict = 'engine_stalled', silence_end, null) as ends_at,
        max(sign_end) over (
            partition by placed.engine, verdict, ends_at order by sign_start, sign_end rows between unbounded preceding and 1 preceding
        ) as covered_until,
        greatest(10, 3 * coalesce(usual.step_s, 0)) as join_s,
    from placed
    left join usual using (engine)
),

numbered as (
    select
        *,
        sum((covered_until is null or seconds_between(covered_until, sign_start) > join_s)::int) over (
            partition by engine, verdict, ends_at order by sign_start, sign_end
        ) as spell,
    from ordered
)

select
    engine,
    verdict,
    min(sign_start) as window_start,
    max(sign_end) as window_end,
    arg_max(sign_start, weight) as peak_at,
    count(*) as signs,
    sum(seconds_between(sign_start, sign_end)) as seconds,
    sum(weight) as weight,
    max(weight) as peak_weight,
    sum(weight * seconds_between(sign_start, sign_end)) as weight_seconds,
from numbered
group by engine, verdict, ends_at, spell
having verdict <> 'engine_stalled' or seconds_between(min(sign_start), max(sign_end)) >= 60
order by engine, verdict, window_start
