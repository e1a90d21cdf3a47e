"""Whom SGLang admits to one prefill batch, to the token: what is counted on, what a chunk leaves, what a request is made of."""

from __future__ import annotations

import pytest

from pipelines.replay import sglang_settings
from pipelines.replay.engine import Content, Request
from pipelines.replay.radix import RadixPool, Span
from pipelines.replay.sglang_admission import PrefillAdder, Req, Settings, spans_of

NOTHING_ASIDE = {"is_page_set_aside": False}  # as before 0.5.10: sums are then those of the tokens alone


class Engine:
    """A pool in which so many tokens are counted on by a running request, and who asks to be admitted to the next batch."""

    def __init__(self, pool: int = 100, counted_on: int = 0, *, page: int = 1, chunk: int | None = 64, **changed) -> None:
        self.settings = Settings(
            max_total_num_tokens=pool,
            page_size=page,
            max_running_requests=8,
            chunked_prefill_size=chunk,
            **NOTHING_ASIDE | changed,
        )
        self.pool = RadixPool(pool, page)
        running = [self.request(0, counted_on)] if counted_on else []
        self.adder = PrefillAdder(self.settings, self.pool, running, 1.0)

    def request(self, prompt: int, answer: int = 1) -> Req:
        """One that is there already, and cut off nowhere."""
        made = Req(0, Request(0.0, prompt, answer), self.settings, self.pool.root)
        made.max_new_tokens = answer
        return made

    def add(self, prompt: int, answer: int = 1) -> str | None:
        """What keeps it from being admitted."""
        return self.adder.add(self.request(prompt, answer))

    @property
    def taken(self) -> list[int]:
        """Tokens of each prompt in the batch."""
        return [tokens for _, tokens in self.adder.batch]


def test_what_no_input_says_is_as_sglang_has_it():
    nothing = dict.fromkeys(("engine_version", "max_num_batched_tokens", "block_size", "max_num_seqs", "prefix_caching"))
    settings = sglang_settings.settings_of({**nothing, "kv_capacity_tokens": 400}, {})
    assert (settings.max_prefill_tokens, settings.schedule_conservativeness, settings.schedule_policy) == (16_384, 1.0, "fcfs")
    assert settings.is_caching
    assert settings == sglang_settings.settings_of({**nothing, "kv_capacity_tokens": 400, "engine_version": "0.5.23"}, {})


def test_the_pool_is_full_once_its_last_token_is_counted_on():
    assert [Engine(100, counted_on=each).adder.is_full() for each in (98, 99, 100, 101)] == [False, False, True, True]


def test_a_batch_ends_with_the_last_token_of_its_budget_or_of_its_chunk():
    spent = {}
    for prompt in (29, 30, 31):
        for limits in ({"chunk": 30}, {"chunk": None, "max_prefill_tokens": 30}):
            engine = Engine(**limits)
            assert engine.add(prompt) is None
            spent[prompt, "chunk" if limits["chunk"] else "budget"] = engine.adder.is_spent()
    assert spent == {(tokens, each): tokens >= 30 for tokens in (29, 30, 31) for each in ("chunk", "budget")}


@pytest.mark.parametrize(("counted_on", "taken"), [(0, 16), (90, 10), (99, 1), (100, 16), (120, 16)])
def test_a_prefill_under_way_takes_what_room_there_is_and_its_chunk_where_there_is_none(counted_on, taken):
    engine = Engine(100, counted_on, chunk=16)
    engine.adder.go_on(engine.request(64))
    assert engine.taken == [taken]


def test_a_prefill_under_way_takes_no_more_than_its_rest():
    engine = Engine(chunk=16)
    sequence = engine.request(64)
    sequence.computed = 60
    engine.adder.go_on(sequence)
    assert (engine.taken, engine.adder.unfinished) == ([4], None)


@pytest.mark.parametrize(("left", "short", "taken"), [(0, "budget", []), (1, None, [1]), (15, None, [15]), (40, None, [40])])
def test_what_a_chunk_has_left_is_filled_with_the_beginning_of_a_prompt(left, short, taken):
    engine = Engine(200, chunk=20 + left)
    assert engine.add(20) is None
    assert (engine.add(50), engine.taken) == (short, [20, *taken])


def test_of_a_prompt_that_goes_on_whole_pages_are_taken_and_of_less_than_one_nothing():
    engine = Engine(400, page=16, chunk=16 + 15)
    assert engine.add(16) is None
    assert (engine.add(40), engine.taken) == ("budget", [16])
    engine = Engine(400, page=16, chunk=16 + 40)
    assert engine.add(16) is None
    assert (engine.add(60), engine.taken) == (None, [16, 32])


def test_of_a_prompt_that_goes_on_no_answer_is_counted_on_yet():
    for prompt, is_full in ((15, True), (16, False)):  # the whole of it with its answer, or a chunk that leaves a token
        engine = Engine(16, chunk=15)
        engine.adder.go_on(engine.request(prompt))
        assert engine.adder.is_full() is is_full


@pytest.mark.parametrize("are_answers_discounted", [True, False])
def test_a_new_request_needs_more_room_than_its_prompt_and_its_answer(are_answers_discounted):
    """Both rules count on the whole answer of one that has generated nothing."""
    for room, short in ((30, "pool"), (31, None)):
        engine = Engine(100, 100 - room, are_answers_discounted=are_answers_discounted)
        assert engine.add(20, 10) == short


def test_who_has_generated_all_it_is_counted_on_gives_no_room_back():
    """Without a cache, requests of known length are admitted by when the others end."""
    engine = Engine(100, is_caching=False)
    done, asks = engine.request(50, 10), Req(1, Request(0.0, 20, 85, ignores_eos=True), engine.settings, engine.pool.root)
    done.outputs = 10
    asks.max_new_tokens = 85
    assert PrefillAdder(engine.settings, engine.pool, [done], 1.0).add(asks) == "pool"
    asks.max_new_tokens = 78
    assert PrefillAdder(engine.settings, engine.pool, [done], 1.0).add(asks) is None


def test_a_prompt_that_all_but_fills_the_pool_gets_one_token():
    engine = Engine(100)
    cut_off = [Req(0, Request(0.0, prompt, 50), engine.settings, engine.pool.root).output_tokens for prompt in (48, 60, 97)]
    assert cut_off == [50, 38, 1]


def test_what_a_request_is_known_to_begin_with_are_places_in_a_text_that_others_share():
    told = Content((3, 4, 9), size=16, tokens=40)
    assert spans_of(7, Request(0.0, 100, 20, content=told), page=1) == (
        Span(("told", 16), 48, 32),  # blocks in a row are one
        Span(("told", 16), 144, 8),
        Span(7, 40, 120),
    )
    shared = Request(0.0, 100, 20, prefix=2, shared_blocks=3)
    assert spans_of(7, shared, page=16) == (Span(("shared", 2), 0, 48), Span(7, 48, 120))
