-- Preemption counters turned into events per scrape interval, safe against resets.
--
-- Late and lossy: vLLM V1 counts a preemption with the victim's next output (after its resume, with the synchronous scheduler),
-- and never where the victim was aborted while it waited. An engine that does not export the counter has no row here.
--
-- grain: engine, interval_end
-- column: engine         | Engine.
-- column: interval_start | Scrape before: the event lies between the two, or a wait earlier.
-- column: interval_end   | Scrape that first showed the new value.
-- column: preemptions    | Requests preempted in the interval.
-- check:  preemptions >= 0 | A counter that falls is a restart, not a negative event.
-- check:  interval_start < interval_end | Intervals have a length.
select
    engine,
    interval_start,
    interval_end,
    sum(delta) as preemptions,
from core.counter_intervals
where signal = 'preemptions'
group by all
order by engine, interval_end
