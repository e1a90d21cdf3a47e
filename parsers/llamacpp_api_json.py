"""What llama.cpp's server answered, kept in a file: completions with their `timings`, errors, and `/slots`.

    [{"tokens_evaluated": 166, "tokens_predicted": 40, "id_slot": 3, "timings": {"cache_n": 0, "prompt_n": 166, "prompt_ms": 8.66,
      "predicted_n": 40, "predicted_ms": 62.5, …}}, …]                                                       -> spans
    {"error": {"code": 500, "message": "Context size has been exceeded.", "type": "server_error"}}           -> engine_events
    [{"id": 0, "n_ctx": 2048, "is_processing": false, "n_prompt_tokens": 0, …, "next_token": [{"n_decoded": 40, …}]}, …]
                                                                                                             -> engine_samples
`prompt_n` is what was computed and `cache_n` what the slot still held (where a version has no `cache_n`, the prompt's length less
`prompt_n`); `tokens_cached` is the length of the slot afterwards and no hit. An idle slot keeps its prompt, so `/slots` shows
KV held, not KV in use. None of these carries a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeGuard

from parsers import Format
from parsers.json_text import count, number, values_in
from parsers.log_reading import Row, Rows
from parsers.source import Account, Sink, Source

_TIMINGS = re.compile(rb'"timings"\s*:\s*(?:\{|null)')
_OWN = re.compile(rb'"(?:prompt_n|tokens_evaluated|exceed_context_size_error)"')
_SLOTS = re.compile(rb'"(?:id_task|is_processing)"\s*:')
NO_KV = "Context size has been exceeded"


def parse(source: Source, sink: Sink) -> Account:
    """Read one file: answers one after the other, or lists of them."""
    account, rows = Account(), Rows(source.name, sink)
    for value in values_in(source, account):
        for answer in value if isinstance(value, list) and not _is_slots(value) else [value]:
            account.lines += 1
            # known without a row: refused for a reason that has nothing to do with the pool
            rows.take(account, list(_rows_of(answer)), is_known=isinstance(answer, dict) and bool(answer.get("error")))
    rows.write()
    return account


def _is_slots(value: object) -> TypeGuard[list[dict[str, Any]]]:
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) and "is_processing" in each for each in value)


def _rows_of(answer: object) -> Iterator[Row]:
    if _is_slots(answer):
        yield from _slots(answer)
    elif isinstance(answer, dict):
        if isinstance(timings := answer.get("timings"), dict):
            yield "spans", _span(answer, timings)
        error = answer.get("error")
        message = error.get("message") if isinstance(error, dict) else error
        if isinstance(message, str) and NO_KV in message:
            yield "engine_events", {"event": "answer_failed_no_kv", "count": 1}


def _slots(slots: list[dict[str, Any]]) -> Iterator[Row]:
    """One sample of the whole server: slots at work, and tokens held in all of them."""
    held = 0
    for slot in slots:
        following = slot.get("next_token")
        state = following[0] if isinstance(following, list) and following else following
        decoded = state.get("n_decoded") if isinstance(state, dict) else None
        if prompt := count(slot.get("n_prompt_tokens")):
            held += prompt + (count(decoded) or 0)
    yield "engine_samples", {"running": sum(slot.get("is_processing") is True for slot in slots), "kv_used_tokens": held}
    yield "engine_config", {"key": "max_num_seqs", "value_text": str(len(slots))}
    if context := count(slots[0].get("n_ctx")):
        yield "engine_config", {"key": "max_model_len", "value_text": str(context)}


def _span(answer: dict[str, Any], timings: dict[str, Any]) -> dict[str, Any]:
    prompt = count(answer.get("tokens_evaluated"))
    computed, cached = count(timings.get("prompt_n")), count(timings.get("cache_n"))
    if cached is None and prompt is not None and computed is not None:
        cached = prompt - computed
    prefill, decode = _seconds(timings.get("prompt_ms")), _seconds(timings.get("predicted_ms"))
    return {
        "name": "llamacpp_answer",
        "input_tokens": prompt if prompt is not None or computed is None else computed + (cached or 0),
        "output_tokens": count(timings.get("predicted_n")),
        "computed_tokens": computed,
        "cached_tokens": cached,
        "prefill_s": prefill,
        "decode_s": decode,
        "inference_s": prefill + decode if prefill is not None and decode is not None else None,
    }


def _seconds(milliseconds: object) -> float | None:
    return value / 1000 if (value := number(milliseconds)) is not None else None


def detect(head: bytes) -> float:
    """JSON with llama.cpp's timings, its errors or its slots."""
    if not head.lstrip().startswith((b"{", b"[")):
        return 0.0
    if _TIMINGS.search(head) and _OWN.search(head):
        return 0.9
    return 0.85 if _SLOTS.search(head) and b'"n_ctx"' in head else 0.0


FORMAT = Format(
    name="llamacpp_api_json",
    title="llama.cpp server answers: completions with timings, errors, /slots",
    engine_kind="llamacpp",
    versions="2024 to b11549",
    can_tell="prompt tokens computed and reused by each request; answers that failed because the KV cache was full; KV held",
    cannot_tell="when (no times); waiting for a slot",
    tables=("spans", "engine_events", "engine_samples", "engine_config"),
    detect=detect,
    parse=parse,
)
