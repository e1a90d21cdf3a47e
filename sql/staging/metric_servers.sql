-- What the metrics name that they are of: servers, and the ranks on them.
--
-- grain: instance, label
-- needs: raw.metric_samples
-- column: instance  VARCHAR | Server as the metrics name it; NULL where they name none.
-- column: label     VARCHAR | Rank as the metrics name it; NULL where they name none.
-- column: is_engine BOOLEAN | Whether an engine's series are among them: the exporter of a GPU names the host it runs on.
select instance, engine as label, bool_or(name not like 'DCGM%') as is_engine,
from raw.metric_samples
group by instance, engine
order by instance nulls first, label nulls first
