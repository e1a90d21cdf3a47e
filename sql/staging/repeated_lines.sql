-- Lines of a log that another log of the same server has, too: two grabs that overlap, a copy that ends earlier, a backup.
--
-- A whole copy is left out when it is read. Here are those that share a part: the lines that both have are one stretch in each, with the
-- same stamps and numbers, and it begins or ends with one of the two. They count where they were written first, in the log that
-- begins earlier.
--
-- grain: source
-- needs: raw.engine_events or raw.engine_samples or raw.iteration_steps or raw.request_lines
-- column: source     VARCHAR | Log whose lines repeat another's.
-- column: first_line BIGINT  | First of them that says anything.
-- column: last_line  BIGINT  | Last of them that says anything.
-- column: copy_of    VARCHAR | Log that has them, too, and counts them.
with said as (
    select
        source,
        line,
        instance,
        hash(at_utc, at_local, process, engine, running, waiting, kv_usage_ratio, generation_tokens_per_s, prefill_tokens) as words,
    from raw.engine_samples
    where coalesce(at_utc, at_local) is not null
    union all
    select source, line, instance, hash(at_utc, at_local, process, engine, iteration, context_tokens, generation_tokens, elapsed_ms) as words
    from raw.iteration_steps
    where coalesce(at_utc, at_local) is not null
    union all
    select source, line, instance, hash(at_utc, at_local, process, engine, event, request_id, count) as words
    from raw.engine_events
    where coalesce(at_utc, at_local) is not null
    union all
    select source, line, instance, hash(at_utc, at_local, process, event, request_id) as words
    from raw.request_lines
    where coalesce(at_utc, at_local) is not null
),

-- lines that no other of the log is like: what an idle engine says twice in a second tells no place
marks as (
    select said.source, said.line, coalesce(said.instance, input_servers.instance) as server, said.words
    from said
    left join staging.input_servers using (source)
    where (select count(distinct source) from said) > 1
    qualify count(*) over (partition by said.source, said.words) = 1
),

spans as (
    select source, min(line) as first_line, max(line) as last_line
    from said
    group by source
),

-- how far down the later one's lines are in the earlier
shifts as (
    select
        earlier.source as copy_of,
        later.source,
        earlier.line - later.line as shift,
        count(*) as shared,
    from marks as earlier
    inner join marks as later
        on later.words = earlier.words
        and later.server is not distinct from earlier.server
        and later.source <> earlier.source
    group by earlier.source, later.source, shift
    having shared >= 2
),

-- what both could have said, by the lines of the later one: from its beginning to where one of the two ends
stretches as (
    select
        shifts.copy_of,
        shifts.source,
        shifts.shift,
        shifts.shared,
        later.first_line,
        least(later.last_line, earlier.last_line - shifts.shift) as last_line,
    from shifts
    inner join spans as earlier on earlier.source = shifts.copy_of
    inner join spans as later on later.source = shifts.source
    where later.first_line + shifts.shift > earlier.first_line
        or (
            later.first_line + shifts.shift = earlier.first_line
            and (later.last_line + shifts.shift, shifts.source) < (earlier.last_line, shifts.copy_of)
        )
),

-- what one of the two said there and the other did not, beside a line that may be cut, makes them two logs
whole as (
    select stretches.source, stretches.first_line, stretches.last_line, stretches.copy_of
    from stretches
    inner join marks
        on (marks.source = stretches.source and marks.line between stretches.first_line and stretches.last_line)
        or (marks.source = stretches.copy_of and marks.line - stretches.shift between stretches.first_line and stretches.last_line)
    group by stretches.source, stretches.first_line, stretches.last_line, stretches.copy_of, stretches.shared
    having count(*) - 2 * stretches.shared <= 2
)

select source, first_line, max(last_line) as last_line, max_by(copy_of, last_line) as copy_of
from whole
group by source, first_line
order by source
