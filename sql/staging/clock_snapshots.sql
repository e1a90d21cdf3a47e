-- Where a metrics page that was saved without its time fits into the timed scrapes of the same counters.
--
-- A counter only rises within one life of its engine, so the page is later than every scrape that shows less and earlier than
-- every scrape that shows more. A page that fits into no life is not here.
--
-- grain: source
-- column: source    | The page.
-- column: placed_at | Middle of the interval it fits into; where it is later than the last scrape, that scrape.
-- column: error_s   | Half the interval; NULL where it has no upper end.
-- column: counters  | Counters that were compared.
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
)

select
    source,
    case
        when before_at is null then last_at
        else plus_seconds(greatest(after_at, first_at), seconds_between(greatest(after_at, first_at), before_at) / 2)
    end as placed_at,
    seconds_between(greatest(after_at, first_at), before_at) / 2 as error_s,
    counters,
from bounds
where after_at is not null and (before_at is null or after_at < before_at)
qualify row_number() over (partition by source order by before_at is null, error_s, life) = 1
order by source
