-- Where a metrics page that was saved without its time fits into the timed scrapes of the same counters, or between requests' ends.
--
-- A counter only rises within one life of its engine, so the page is later than every scrape that shows less and earlier than
-- every scrape that shows more. Without timed scrapes the requests whose end a log or a span tells do the same: a page that counts
-- seven finished requests lies between the seventh and the eighth end. A page that fits nowhere is not here.
--
-- grain: source
-- needs: raw.metric_samples
-- column: source    VARCHAR     | The page.
-- column: placed_at TIMESTAMPTZ | Middle of the interval it fits into; where it is later than the last scrape, that scrape.
-- column: error_s   DOUBLE      | Half the interval; NULL where it has no upper end.
-- column: method    VARCHAR     | What places it.
with pages as (
    select source, instance, engine, name, le, labels, max(value) as value
    from raw.metric_samples
    where at_utc is null and regexp_matches(name, '_(total|count|sum|bucket)$')
    group by all
),

timed as (
    select samples.instance, samples.engine, samples.name, samples.le, samples.labels, samples.at_utc, max(samples.value) as value
    from raw.metric_samples as samples
    semi join pages using (name)
    where samples.at_utc is not null
    group by all
),

falls as (
    select
        *,
        value < lag(value) over (partition by instance, engine, name, le, labels order by at_utc) as is_fall,
    from timed
),

restarts as (
    select instance, engine, at_utc from falls where is_fall group by all
),

lives as (
    select
        timed.*,
        count(restarts.at_utc) over (
            partition by timed.instance, timed.engine, timed.name, timed.le, timed.labels order by timed.at_utc
        ) as life,
    from timed
    left join restarts
        on restarts.instance is not distinct from timed.instance
        and restarts.engine is not distinct from timed.engine
        and restarts.at_utc = timed.at_utc
),

bounds as (
    select
        pages.source,
        lives.life,
        max(lives.at_utc) filter (lives.value < pages.value) as after_at,
        min(lives.at_utc) filter (lives.value > pages.value) as before_at,
        min(lives.at_utc) as first_at,
        max(lives.at_utc) as last_at,
        count(distinct (pages.engine, pages.name, pages.le, pages.labels)) as counters,
    from pages
    join lives
        on lives.name = pages.name
        and lives.engine is not distinct from pages.engine
        and lives.le is not distinct from pages.le
        and lives.labels = pages.labels
        and (lives.instance is not distinct from pages.instance or lives.instance is null or pages.instance is null)
    where lives.value is not null
    group by pages.source, lives.life
),

between_scrapes as (
    select
        source,
        case
            when before_at is null then last_at
            else plus_seconds(greatest(after_at, first_at), seconds_between(greatest(after_at, first_at), before_at) / 2)
        end as placed_at,
        seconds_between(greatest(after_at, first_at), before_at) / 2 as error_s,
        format('{} counters between timed scrapes', counters) as method,
    from bounds
    where after_at is not null and (before_at is null or after_at < before_at)
    qualify row_number() over (partition by source order by before_at is null, error_s, life) = 1
),

-- requests whose end is known, in the order they ended, each once
ends as (
    select
        end_at,
        count(*) over in_order as finished,
        lead(end_at) over (order by end_at, request_id) as next_end_at,
    from (select distinct on (request_id, start_at) request_id, end_at, from raw.spans where end_at is not null)
    window in_order as (order by end_at, request_id rows unbounded preceding)
),

-- what a page says of them; a page of an engine that has finished none lacks the series
finished as (
    select
        source,
        coalesce(sum(value) filter (where counts.signal is not null), 0) as finished,
    from raw.metric_samples as samples
    left join (select distinct name, signal from signals() where signal = 'finished') as counts using (name)
    where at_utc is null and regexp_matches(name, '^(sglang|vllm):')
    group by source
),

-- pages between the same two ends are told apart by their names, which count upwards, and spread evenly
between_ends as (
    select
        finished.source,
        coalesce(ends.end_at, first_ends.arrived_at) as after_at,
        if(ends.end_at is null, first_ends.end_at, ends.next_end_at) as before_at,
        row_number() over alike / (1 + count(*) over (partition by finished.finished)) as share,
        row_number() over alike as nth,
    from finished
    cross join (select min(start_at) as arrived_at, min(end_at) as end_at from raw.spans) as first_ends
    left join ends on ends.finished = finished.finished
    -- spans that are not of this engine's whole life count something else
    where (finished.finished = 0 or ends.finished is not null)
        and first_ends.end_at is not null
        and (select max(finished) from finished) between 1 and (select count(*) from ends)
    window alike as (partition by finished.finished order by finished.source)
)

select source, placed_at, error_s, method,
from (
    from between_scrapes
    union all by name
    select
        source,
        -- behind the last end there is no bound: a second for each page
        if(before_at is null, plus_seconds(after_at, nth), plus_seconds(after_at, share * seconds_between(after_at, before_at)))
            as placed_at,
        seconds_between(after_at, before_at) / 2 as error_s,
        'finished requests between the ends its spans tell' as method,
    from between_ends
    where source not in (select source from between_scrapes)
)
order by source
