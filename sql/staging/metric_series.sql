-- The series of the metric samples, once for each input that carries them: whose they are, and where untimed ones belong in time.
--
-- A page has some hundred series and a day some million samples: texts are looked at here, once a series, and samples are then
-- sorted and told apart by number. SGLang's tensor- and pipeline-parallel ranks each report the same logical numbers: rank 0
-- speaks for all, and the others are left out.
--
-- grain: part
-- needs: raw.metric_samples
-- column: part      INTEGER     | Number of the row: a series as one input carries it. In the order of `series`, then of the inputs' names.
-- column: series    INTEGER     | Number of the series, the same in all inputs: by engine, name, labels and bound.
-- column: engine    VARCHAR     | Engine the series belongs to; `*` for one of the server as a whole.
-- column: name      VARCHAR     | Exposed sample name, such as `vllm:num_preemptions_total`.
-- column: labels    VARCHAR     | Remaining labels.
-- column: le        DOUBLE      | Upper bound of a histogram bucket; NULL for other samples.
-- column: model     VARCHAR     | Served model name.
-- column: source    VARCHAR     | Input that carries it.
-- column: instance  VARCHAR     | Server as the input names it.
-- column: label     VARCHAR     | Rank as the input names it.
-- column: placed_at TIMESTAMPTZ | Time of the input's samples that carry none; NULL where any input has timed ones, which are then used alone.
with carried as (
    select source, instance, engine as label, model, name, labels, le
    from raw.metric_samples
    group by all
    -- of the group and not of its samples, so that the texts are looked at once a series
    having not (any_value(name) like 'sglang:%' and regexp_matches(any_value(labels), '(^|,)(tp|pp)_rank=[1-9]'))
),

described as (
    select
        carried.*,
        engine_names.engine,
        clocks.placed_at,
    from carried
    left join staging.clocks using (source)
    left join staging.engine_names
        on engine_names.instance is not distinct from carried.instance
        and engine_names.label is not distinct from carried.label
)

select
    (row_number() over (order by engine, name, labels, le, source, instance, label, model))::integer as part,
    (dense_rank() over (order by engine, name, labels, le))::integer as series,
    engine,
    name,
    labels,
    le,
    model,
    source,
    instance,
    label,
    if(exists (from raw.metric_samples where at_utc is not null), null, placed_at) as placed_at,
from described
order by part
