"""SGLang, TensorRT-LLM and llama.cpp in the tables all engines share: retractions, restores, failures."""

LIFE = """
    engine  name                                   labels                                   sampled_at  value
    0       sglang:realtime_tokens_total           mode=prefill_compute,tp_rank=0           12:00:00    1000
    0       sglang:realtime_tokens_total           mode=prefill_compute,tp_rank=0           12:00:15    3000
    0       sglang:prefill_effective_tokens_total  mode=input,tp_rank=0                     12:00:00    1000
    0       sglang:prefill_effective_tokens_total  mode=input,tp_rank=0                     12:00:15    2567
    0       sglang:prefill_effective_tokens_total  mode=device_hit,tp_rank=0                12:00:00    0
    0       sglang:prefill_effective_tokens_total  mode=device_hit,tp_rank=0                12:00:15    900
"""
VICTIMS = """
    engine  name                                     labels     sampled_at  value
    0       sglang:num_requests_total                -          12:00:00    10
    0       sglang:num_requests_total                -          12:00:15    20
    0       sglang:num_retracted_requests_total      tp_rank=0  12:00:15    3
    0       sglang:num_retracted_input_tokens_total  tp_rank=0  12:00:15    267
    0       sglang:num_retracted_output_tokens_total  tp_rank=0  12:00:15    357
"""


def test_from_0_5_18_on_the_recomputed_tokens_are_the_difference_of_two_counters(sql):
    sql.given("metric_samples", LIFE)
    assert (
        sql.rows("core.recompute_retractions")
        == """
        engine  method                     rung  tokens_low  tokens_best  tokens_high
        0       retraction_counters_exact  1     433         433          433
        """
    )


def test_before_that_the_victims_tokens_are_the_bounds(sql):
    sql.given("metric_samples", VICTIMS)
    assert (
        sql.rows("core.recompute_retractions")
        == """
        engine  method                    tokens_low  tokens_best  tokens_high  preemptions_best
        0       retracted_tokens_counter  357         490.5        624          3
        """
    )


def test_a_retraction_counter_that_appears_counts_from_zero(sql):
    sql.given("metric_samples", VICTIMS)
    assert (
        sql.rows("core.preemption_intervals")
        == """
        engine  interval_start  interval_end  preemptions
        0       12:00:00        12:00:15      3
        """
    )


def test_retraction_lines_are_preemptions_to_the_second_and_are_summed(sql):
    sql.given(
        "engine_events",
        """
        engine  happened_at  event                    count
        0       12:00:07     retraction               1
        0       12:00:07     retraction               2
        0       12:00:07     retraction_freed_tokens  900
        0       12:00:09     retraction               1
        """,
    )
    assert (
        sql.rows("core.preemption_intervals")
        == """
        engine  interval_start  interval_end  preemptions
        0       12:00:07        12:00:08      3
        0       12:00:09        12:00:10      1
        """
    )


def test_a_log_that_has_all_of_them_goes_before_the_counter_and_a_cut_one_behind(sql):
    sql.given("metric_samples", VICTIMS)
    sql.given(
        "engine_events",
        """
        engine  happened_at  event       count
        0       12:00:07     retraction  2
        """,
    )
    assert (
        sql.rows("core.preemption_intervals")
        == """
        interval_end  preemptions
        12:00:15      3
        """
    )


def test_an_sglang_log_without_a_retraction_says_that_there_was_none(sql):
    sql.given("raw.sources", "source  format  engine_kind\nserver.log  sglang_engine_log  sglang")
    sql.given(
        "engine_samples",
        """
        engine  source      sampled_at  running  waiting
        0       server.log  12:00:00    3        0
        0       server.log  12:00:40    5        0
        """,
    )
    assert (
        sql.rows("core.preemption_intervals")
        == """
        engine  interval_start  interval_end  preemptions
        0       12:00:00        12:00:40      0
        """
    )


def test_records_of_requests_tell_whose_retractions_they_were(sql):
    sql.given(
        "spans",
        """
        engine  request_id  arrived_at  ended_at  ttft_s  input_tokens  output_tokens  preemptions  requeue_s
        0       a           12:00:00    12:00:10  1       81            219            0            0
        0       b           12:00:00    12:00:20  2       81            219            2            5
        """,
    )
    assert (
        sql.rows("core.preemption_intervals")
        == """
        engine  interval_start  interval_end  preemptions
        0       12:00:02        12:00:20      2
        """
    )
    assert (
        sql.rows("core.recompute_retractions")
        == """
        method           rung  tokens_low  tokens_best  tokens_high  preemptions_best
        request_records  5     0           300          600          2
        """
    )


def test_tensor_parallel_ranks_report_the_same_numbers_and_are_not_added_up(sql):
    sql.given(
        "raw.metric_samples",
        """
        source  at_utc    name                                 labels                value
        m       12:00:00  sglang:num_retracted_requests_total  pp_rank=0,tp_rank=0   5
        m       12:00:00  sglang:num_retracted_requests_total  pp_rank=0,tp_rank=1   5
        m       12:00:00  sglang:num_retracted_requests_total  pp_rank=0,tp_rank=10  5
        """,
    )
    assert (
        sql.rows("staging.metric_samples")
        == """
        labels               value
        pp_rank=0,tp_rank=0  5
        """
    )


def test_a_value_that_no_engine_counts_is_as_good_as_not_scraped(sql):
    sql.given(
        "raw.metric_samples",
        """
        source  at_utc    name                        value
        m       12:00:00  vllm:num_preemptions_total  -100
        m       12:00:15  vllm:num_preemptions_total  nan
        m       12:00:30  vllm:num_preemptions_total  inf
        m       12:00:45  vllm:num_preemptions_total  1e308
        m       12:01:00  vllm:num_preemptions_total  7
        """,
    )
    assert (
        sql.rows("staging.metric_samples")
        == """
        sampled_at  value
        12:01:00    7
        """
    )


def test_the_fullest_pool_of_a_hybrid_model_is_the_one_that_binds(sql):
    sql.given(
        "engine_samples",
        """
        engine  sampled_at  running  waiting  kv_usage_ratio  swa_usage_ratio  mamba_usage_ratio
        0       12:00:00    13       85       0.2             -                0.3
        0       12:00:10    13       85       0.2             0.97             -
        """,
    )
    assert (
        sql.rows("core.engine_states")
        == """
        sampled_at  kv_usage_ratio
        12:00:00    0.3
        12:00:10    0.97
        """
    )


def test_a_sample_stands_for_the_time_to_the_next_and_a_lone_one_for_none(sql):
    sql.given(
        "engine_samples",
        """
        engine  sampled_at  running
        0       12:00:00    1
        0       12:00:10    1
        0       12:00:20    1
        0       12:05:00    1
        1       12:00:00    1
        """,
    )
    assert (
        sql.rows("core.engine_states")
        == """
        engine  sampled_at  scrape_s
        0       12:00:00    10
        0       12:00:10    10
        0       12:00:20    30
        0       12:05:00    10
        1       12:00:00    0
        """
    )


LOGGED = """
    engine  sampled_at  running  waiting  kv_usage_ratio
    0       12:00:04    1        0        0.1
    0       12:00:30    9        22       0.98
    0       12:00:40    9        20       0.97
"""


def test_what_the_metrics_do_not_cover_is_told_by_the_log(sql):
    sql.given("engine_samples", LOGGED)
    scrapes = [
        f"0  12:00:0{second}  vllm:num_requests_{name}  {value}"
        for second in range(6)
        for name, value in (("running", 2), ("waiting", 0))
    ]
    sql.given("metric_samples", "\n".join(["engine  sampled_at  name  value", *scrapes]))
    assert (
        sql.rows("core.engine_states")
        == """
        sampled_at  running  waiting  origin   scrape_s
        12:00:00    2        0        metrics  1
        12:00:01    2        0        metrics  1
        12:00:02    2        0        metrics  1
        12:00:03    2        0        metrics  1
        12:00:04    2        0        metrics  1
        12:00:05    2        0        metrics  3
        12:00:30    9        22       log      10
        12:00:40    9        20       log      10
        """
    )
    assert sql.rows("core.seen_loads") == "origin  uncounted_to  uncounted_from\nmetrics  -  12:00:05"


def test_a_load_that_a_log_shows_before_the_metrics_begin_was_not_counted(sql):
    sql.given("engine_samples", LOGGED)
    scrapes = [f"0  12:01:0{second}  vllm:num_requests_running  2" for second in range(6)]
    sql.given("metric_samples", "\n".join(["engine  sampled_at  name  value", *scrapes]))
    assert sql.rows("core.seen_loads") == "uncounted_to  uncounted_from\n12:01:00  -"


def test_metrics_that_say_nothing_of_who_runs_leave_the_load_to_the_log(sql):
    sql.given("engine_samples", LOGGED)
    sql.given(
        "metric_samples",
        "engine  sampled_at  name  value\n0  12:00:03  vllm:kv_cache_usage_perc  0.1\n0  12:00:04  vllm:kv_cache_usage_perc  0.1",
    )
    assert [(row["origin"], row["waiting"]) for row in sql.rows("core.engine_states").dicts()] == [
        ("log", 0),
        ("log", 22),
        ("log", 20),
    ]


def test_the_sample_that_ends_a_queue_is_not_in_its_means(sql):
    sql.given("engine_samples", LOGGED + "    0       12:00:50    0        0        0.0")
    [queue] = [row for row in sql.rows("marts.spell_facts").dicts() if row["verdict"] == "queue_kv_capacity"]
    assert (queue["mean_waiting"], queue["mean_running"], queue["seconds"]) == (21, 9, 20)


def test_what_a_tier_gives_back_is_a_restore_and_no_recomputation(sql):
    sql.given(
        "engine_events",
        """
        engine  happened_at  event         count
        0       12:00:07     kv_restored   3584
        0       12:00:08     kv_restored   512
        0       12:00:09     kv_offloaded  4096
        """,
    )
    assert (
        sql.rows("core.tier_restores")
        == """
        engine  method    restored_tokens  stored_tokens  dropped_tokens
        0       tier_log  4096             4096           -
        """
    )
    assert sql.rows("core.recompute_retractions") == "engine  method"


def test_failed_requests_are_counted_by_the_log_and_by_answers_only_without_one(sql):
    answers = """
        engine  happened_at  event                 request_id  count
        0       -            answer_failed_no_kv   -           1
        0       -            answer_failed_no_kv   -           1
    """
    lines = """
        0       12:00:07     request_failed_no_kv  6           1
        0       12:00:07     request_failed_no_kv  5           1
        0       12:00:08     request_failed_no_kv  4           1
    """
    sql.given("engine_events", answers)
    assert (
        sql.rows("core.failed_requests")
        == """
        failed_at  requests
        -          2
        """
    )
    sql.given("engine_events", answers.rstrip() + "\n" + lines.strip("\n"))
    sql.given(
        "request_lines",
        """
        request_id  event
        4           started
        5           started
        6           started
        7           started
        """,
    )
    assert (
        sql.rows("core.failed_requests")
        == """
        failed_at  requests  of_requests
        12:00:07   2         4
        12:00:08   1         4
        """
    )


def test_a_page_without_its_time_lies_between_the_ends_its_count_tells(sql):
    sql.given(
        "raw.spans",
        """
        source  request_id  start_at  end_at
        log     a           12:00:00  12:00:10
        log     b           12:00:00  12:00:20
        log     c           12:00:00  12:00:30
        copy    c           12:00:00  12:00:30
        """,
    )
    sql.given(
        "raw.metric_samples",
        """
        source  at_utc  name                       value
        m-0     -       sglang:max_total_num_tokens  900
        m-1     -       sglang:num_requests_total  1
        m-2     -       sglang:num_requests_total  2
        m-3     -       sglang:num_requests_total  2
        m-4     -       sglang:num_requests_total  3
        """,
    )
    assert (
        sql.rows("staging.clock_snapshots")
        == """
        source  placed_at        error_s
        m-0     12:00:05         5
        m-1     12:00:15         5
        m-2     12:00:23.333333  5
        m-3     12:00:26.666667  5
        m-4     12:00:31         -
        """
    )


def test_cached_prompt_tokens_are_hits_whoever_held_them(sql):
    sql.given(
        "metric_samples",
        """
        engine  name                        labels                sampled_at  value
        0       sglang:prompt_tokens_total  -                     12:00:00    0
        0       sglang:prompt_tokens_total  -                     12:00:15    1000
        0       sglang:cached_tokens_total  cache_source=device   12:00:15    300
        0       sglang:cached_tokens_total  cache_source=host     12:00:15    100
        0       sglang:cached_tokens_total  cache_source=total    12:00:15    400
        """,
    )
    assert (
        sql.rows("core.prefix_intervals")
        == """
        engine  queried_tokens  hit_tokens  hit_ratio
        0       1000            400         0.4
        """
    )


def test_an_input_is_of_the_engine_whose_format_it_has_and_of_none_where_that_is_not_known(sql):
    """What says settings of a server says what each of its ranks is."""
    kinds = ["old.log  vllm_engine_log  vllm", "new.log  new_log  new", "any.csv  sweep  -", "answer.json  sglang_api  sglang"]
    sql.given("raw.sources", "\n".join(["source  format  engine_kind", *kinds]))
    sql.given("staging.settings", "engine  source  key  value_text\npod/*  answer.json  model  m")
    seen = {"a": "old.log", "b": "new.log", "c": "any.csv", "pod/1": "any.csv"}
    samples = [f"{engine}  {source}  12:00:00  1" for engine, source in seen.items()]
    sql.given("staging.engine_samples", "\n".join(["engine  source  sampled_at  running", *samples]))
    assert (
        sql.rows("core.engines")
        == """
        engine  engine_kind
        a       vllm
        b       new
        c       -
        pod/1   sglang
    """
    )
