"""What a prompt token costs: told apart from the step it is in and from those who decode beside it."""

import random

import pytest

COSTS = "core.token_costs"
STEP_S, PROMPT_S, DECODE_S = 0.004, 0.00005, 0.0004  # of the engine in these tests


def lines(sql, steps, noise=0.0):
    """Each step as (prompt tokens, decoding requests), with the time it takes."""
    draw = random.Random(1)
    rows = [
        f"0  12:00:01  log  {i}  {i}  {prompt}  {decodes}  {decodes}  "
        f"{1000 * (STEP_S + PROMPT_S * prompt + DECODE_S * decodes + draw.gauss(0, noise)):.6f}"
        for i, (prompt, decodes) in enumerate(steps)
    ]
    header = "engine  stepped_at  source  line  iteration  context_tokens  generation_requests  generation_tokens  elapsed_ms"
    sql.given("staging.iteration_steps", "\n".join([header, *rows]))


def scrapes(sql, intervals, noise=0.0, idle=()):
    """Each interval as (steps, prompt tokens, tokens generated), as long as its steps take."""
    draw = random.Random(1)
    rows, states, at = [], ["0  12:00:00.000  metrics  3"], 0.0
    for number, (steps, prompt, decodes) in enumerate(intervals):
        start, at = at, at + STEP_S * steps + PROMPT_S * prompt + DECODE_S * decodes + draw.gauss(0, noise)
        window = "  ".join(f"12:{int(each) // 60:02}:{each % 60:06.3f}" for each in (start, at))
        for signal, delta in (("iteration_tokens_count", steps), ("prompt_tokens", prompt), ("generation_tokens", decodes)):
            rows.append(f"0  {signal}  -  {window}  {delta}  false")
        states.append(f"0  12:{int(at) // 60:02}:{at % 60:06.3f}  metrics  {0 if number in idle else 3}")
    header = "engine  signal  labels  interval_start  interval_end  delta  is_reset"
    sql.given("core.counter_intervals", "\n".join([header, *rows]))
    sql.given("core.engine_states", "\n".join(["engine  sampled_at  origin  running", *states]))


@pytest.fixture
def engine(alone):
    alone.given("core.engines", "engine  engine_kind\n0  vllm")
    return alone


def told(sql):
    rows = sql.rows(COSTS).dicts()
    return [tuple(row[f"token_s_{bound}"] for bound in ("low", "best", "high")) for row in rows]


MIXED_STEPS = [(97 * i % 500, i * 7 % 40) for i in range(200)]
MIXED_INTERVALS = [(200 + 31 * i % 90, 997 * i % 9000, 2000 + 613 * i % 3000) for i in range(30)]


def test_iteration_lines_tell_a_prompt_token_from_a_step_and_from_who_decodes(engine):
    lines(engine, MIXED_STEPS)
    [(low, best, high)] = told(engine)
    assert (low, best, high) == pytest.approx((PROMPT_S, PROMPT_S, PROMPT_S), rel=0.01)


def test_busy_scrape_intervals_tell_it_too_and_the_average_is_the_most(engine):
    """More requests decode where more prompts come: the slope of time over tokens alone would be several times as much."""
    intervals = [(steps, prompt, decodes + prompt // 2) for steps, prompt, decodes in MIXED_INTERVALS]
    scrapes(engine, intervals)
    [(low, best, high)] = told(engine)
    assert (low, best) == pytest.approx((PROMPT_S, PROMPT_S), rel=0.05)
    seconds = sum(STEP_S * steps + PROMPT_S * prompt + DECODE_S * decodes for steps, prompt, decodes in intervals)
    assert high == pytest.approx(seconds / sum(prompt + decodes for _, prompt, decodes in intervals), rel=1e-3)


@pytest.mark.parametrize("noise", [0.05, 0.2])
def test_the_range_is_as_wide_as_the_intervals_scatter(engine, noise):
    scrapes(engine, MIXED_INTERVALS, noise=noise)
    [(low, best, high)] = told(engine)
    assert low <= PROMPT_S <= high
    assert best - low == pytest.approx(min(best, 2 * noise / 14_000), rel=0.5)  # 14,000: root of the squared spread of prompts


@pytest.mark.parametrize(
    "intervals",
    [
        pytest.param(MIXED_INTERVALS[:9], id="too few of them"),
        pytest.param([(200 + i, 3000, 2000) for i in range(12)], id="as many tokens in each"),
        pytest.param([(200, 500 * i, 250 * i) for i in range(1, 13)], id="prompts and decodes always in one proportion"),
    ],
)
def test_where_nothing_tells_them_apart_there_is_a_bound_and_no_best_guess(engine, intervals):
    scrapes(engine, intervals)
    [(low, best, high)] = told(engine)
    assert (low, best) == (0, None)
    assert high > PROMPT_S


def test_an_interval_in_which_the_engine_idled_tells_nothing(engine):
    scrapes(engine, MIXED_INTERVALS[:10], idle={4})
    assert told(engine)[0][1] is None  # eight were busy throughout


def test_a_request_that_resumes_among_those_that_decode_is_prompt_tokens(engine):
    """A step of 3 that decode and one that resumes with 400 tokens: 403 generation tokens of 4 requests."""
    header = "engine  stepped_at  source  line  iteration  context_tokens  generation_requests  generation_tokens  elapsed_ms"
    rows = [
        f"0  12:00:01  log  {i}  {i}  0  {n}  {n + more}  {1000 * (STEP_S + PROMPT_S * more + DECODE_S * n):.6f}"
        for i, (more, n) in enumerate(MIXED_STEPS)
    ]
    engine.given("staging.iteration_steps", "\n".join([header, *rows]))
    assert told(engine)[0][1] == pytest.approx(PROMPT_S, rel=0.01)


def test_an_engine_whose_time_nothing_tells_has_no_price(engine):
    assert told(engine) == []
