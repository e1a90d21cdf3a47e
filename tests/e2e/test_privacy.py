"""Privacy: what users asked and what the model answered is in many inputs, and in nothing that is written or printed.

A marker stands in every field of every format that may carry a prompt, an answer, or token ids. The words are searched for in
every byte of every file written, and in every text column of every table, for Parquet and DuckDB compress what they hold.
"""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest

from pipelines import cli

WORDS, IDS = "Quixotic-Zephyr", 918273645  # no input, name or number of ours has them
TEXT = f'My name is {WORDS} and "I" live at 7 Elm\\n Street'
TOKENS = [IDS, IDS + 1, IDS + 2]
HASHES = [11, 22, 33]


def lines(*rows: object) -> str:
    return "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)


def vllm_log() -> str:
    stamp = "INFO 11-29 13:06:{:02} "
    stats = "[loggers.py:335] Engine 000: Avg prompt throughput: 79.0 tokens/s, Avg generation throughput: 9.0 tokens/s, "
    stats += "Running: 3 reqs, Waiting: {} reqs, GPU KV cache usage: 92.1%, Prefix cache hit rate: 0.0%"
    asked = f"[request_logger.py:65] Received request cmpl-{{}}: prompt: {TEXT!r}, params: SamplingParams(n=1, max_tokens=16, "
    asked += f"stop=[{WORDS!r}]), prompt_token_ids: {TOKENS}, prompt_embeds shape: None, lora_request: None."
    return lines(
        f"non-default args: {{'model': 'tiny', 'max_num_seqs': 32, 'chat_template': '{WORDS}', 'api_key': '{WORDS}'}}",
        *(stamp.format(second) + asked.format(second) for second in range(8)),
        *(stamp.format(second) + stats.format(second % 3) for second in range(10, 40)),
        stamp.format(41) + f"[loggers.py:335] Engine 000: Avg prompt throughput: {WORDS} tokens/s, Running: {WORDS}",
        stamp.format(42) + f"[async_llm.py:1] Added request cmpl-9. prompt={TEXT!r}",
        stamp.format(43) + f"[core.py:9] Dumping input data for V1 LLM engine (v0.32.0) with config: x, {TEXT}, {TOKENS}",
        "Traceback (most recent call last):",
        f"ValueError: Input prompt ({TEXT}) is too long and exceeds limit of 8192",
        f"RuntimeError: CUDA out of memory while serving {TEXT}",
        TEXT,
    )


def sglang_log() -> str:
    at = "[2026-11-29 13:06:{:02}] "
    return lines(
        at.format(0)
        + f"server_args=ServerArgs(model_path='tiny', max_running_requests=8, chat_template='{WORDS}', api_key='{WORDS}')",
        at.format(1) + f"Receive: obj=GenerateReqInput(rid='a1', text={TEXT!r}, input_ids={TOKENS}, sampling_params={{}})",
        at.format(2) + f"Finish: obj=GenerateReqInput(rid='a1', text={TEXT!r}), out={{'text': {TEXT!r}, 'output_ids': {TOKENS}}}",
        at.format(3)
        + "Decode batch, #running-req: 3, #token: 700, token usage: 0.78, gen throughput (token/s): 9.1, #queue-req: 2",
        at.format(4) + f"Decode batch, #running-req: {WORDS}, #token: 700",
        at.format(5) + f"KV cache pool is full. Retract requests. #retracted_reqs: {WORDS}",
    )


def llamacpp_log() -> str:
    return lines(
        "0.00.100.000 I srv  llama_server: model loaded: n_ctx = 2048",
        f"0.00.101.000 D srv  params_from_: prompt = {TEXT}",
        f"0.00.102.000 D slot update_slots: id  0 | task 1 | prompt: '{TEXT}', tokens: {TOKENS}",
        f"0.00.103.000 D slot process_toke: id  0 | task 1 | n_decoded = 1, next token: {IDS} '{WORDS}'",
        f"0.00.104.000 I slot get_availabl: id  0 | task {WORDS} | selected slot by LCP similarity, f_sim_best = {WORDS}",
        "0.00.105.000 I slot      release: id  0 | task 1 | stop processing: n_tokens = 200, truncated = 0",
        f"0.00.106.000 W slot   operator(): id  0 | task 1 | slot context shift, n_keep = 1, n_left = {WORDS}",
        f'{{"type":"log","time":545327,"msg":"res  send: {WORDS}","prompt":"{WORDS}","content":"{WORDS}"}}',
    )


def bench(**more: object) -> dict[str, object]:
    run = {"date": "20261129-130630", "backend": "openai", "model_id": "tiny", "num_prompts": 3, "request_rate": "inf"}
    run |= {"max_concurrency": 4, "duration": 20.0, "completed": 2, "total_input_tokens": 30, "total_output_tokens": 6}
    run |= {"input_lens": [10, 20, 5], "output_lens": [3, 3, 0], "ttfts": [0.1, 0.2, 0.0], "start_times": [1.0, 2.0, 3.0]}
    run |= {"itls": [[0.1, 0.1], [0.2, 0.2], []], "errors": ["", "", f"Traceback\\n  {TEXT}\\nValueError: {TEXT}"]}
    return run | {"generated_texts": [TEXT, TEXT, ""], "prompts": [TEXT] * 3, "prompt_token_ids": [TOKENS] * 3, **more}


def otlp() -> dict[str, object]:
    said = {"gen_ai.request.id": "cmpl-1", "gen_ai.prompt": TEXT, "gen_ai.completion": TEXT, "gen_ai.input.messages": TEXT}
    said |= {"gen_ai.system_instructions": TEXT, "llm.token_ids": str(TOKENS)}
    attributes = [{"key": key, "value": {"stringValue": value}} for key, value in said.items()]
    attributes += [{"key": "gen_ai.latency.e2e", "value": {"doubleValue": 1.5}}]
    event = {"name": "gen_ai.content.prompt", "attributes": attributes}
    span = {"name": "llm_request", "startTimeUnixNano": "1795957591000000000", "endTimeUnixNano": "1795957592500000000"}
    span |= {"attributes": attributes, "events": [event], "status": {"message": TEXT}}
    other = {**span, "name": TEXT}
    return {"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": [{"spans": [span, other]}]}]}


def kv_events() -> str:
    stored = {"type": "BlockStored", "block_hashes": HASHES, "parent_block_hash": None, "token_ids": TOKENS, "block_size": 16}
    stored |= {"medium": "GPU", "lora_name": None, "extra_keys": [[TEXT]], "text": TEXT}
    tagged = ["BlockStored", [44], None, TOKENS, 16, None, "GPU"]
    return lines(
        {"seq": 1, "batch": [1795957591.5, [stored], 0]},
        {"seq": 2, "batch": [1795957592.5, [tagged, ["Unheard", TEXT]], 0]},
        {"seq": 3, "batch": [1795957593.5, [{**stored, "block_hashes": TEXT}], 0]},
        {"seq": 4, "batch": TEXT},
    )


def inputs(folder: Path) -> Path:
    meta = {"id": "a1", "prompt_tokens": 81, "completion_tokens": 9, "e2e_latency": 1.5, "queue_time": 0.1}
    meta |= {"request_received_ts": 1795957591.5, "finish_reason": {"type": "stop", "matched": WORDS}}
    finished = {"timestamp": "2026-11-29T13:06:59", "event": "request.finished", "rid": "a1"}
    finished |= {"obj": {"text": TEXT, "input_ids": TOKENS}, "out": {"text": TEXT, "output_ids": TOKENS, "meta_info": meta}}
    aiperf = {
        "metadata": {"x_request_id": "7609", "request_start_ns": 1795957591532900363, "request_end_ns": 1795957592838764604}
    }
    aiperf |= {"metrics": {"input_sequence_length": {"value": 55, "unit": "tokens"}}, "request": {"payload": {"messages": TEXT}}}
    aiperf |= {"responses": [{"text": TEXT}], "error": {"type": "ValueError", "message": TEXT, "code": 500}}
    lifecycle = {"start_time": 1.5, "end_time": 3.5, "request": json.dumps({"prompt": TEXT}), "response": TEXT}
    lifecycle |= {"info": {"input_tokens": 31, "output_tokens": 3, "output_token_times": [2.0, 2.5, 3.0]}}
    lifecycle |= {"error": {"error_type": "ValueError", "error_msg": TEXT}}
    guide = {"request_id": "r1", "prompt": TEXT, "output": TEXT, "request_args": TEXT, "prompt_tokens": 9, "output_tokens": 3}
    guide |= {"start_time": 1795957591.2, "end_time": 1795957592.2, "first_token_time": 1795957591.4, "error": TEXT}
    slot = {"id": 0, "n_ctx": 2048, "is_processing": True, "id_task": 1, "prompt": TEXT, "generated": TEXT, "n_prompt_tokens": 4}
    answer = {"content": TEXT, "tokens": TOKENS, "prompt": TEXT, "tokens_evaluated": 166, "tokens_predicted": 40, "id_slot": 3}
    answer |= {"timings": {"cache_n": 0, "prompt_n": 166, "prompt_ms": 8.66, "predicted_n": 40, "predicted_ms": 62.5}}
    sglang = {"backend": "sglang", "dataset_name": "random", "total_output_tokens_retokenized": 6, "output": TEXT}
    files = {
        "server.log": vllm_log(),
        "sglang.log": sglang_log(),
        "llama.log": llamacpp_log(),
        "wrapped.log": lines(
            *({"log": f"{line}\n", "stream": "stdout", "time": "2026-11-29T13:06:59.1Z"} for line in vllm_log().split("\n"))
        ),
        "client.json": json.dumps(bench()),
        "sglang_bench.jsonl": lines({k: v for k, v in (bench() | sglang).items() if k != "date"}),
        "spans.jsonl": lines(otlp()),
        "kv_events.jsonl": kv_events(),
        "requests.jsonl": lines(finished, {**meta, "request_parameters": TEXT}, {**finished, "out": TEXT}),
        "answers.json": json.dumps([{"text": TEXT, "meta_info": meta}]),
        "aiperf.jsonl": lines(aiperf, {**aiperf, "metadata": TEXT}),
        "per_request.json": json.dumps([lifecycle]),
        "guidellm.json": json.dumps(
            {"metadata": {"guidellm_version": "0.8.0"}, "benchmarks": [{"args": TEXT, "requests": {"successful": [guide]}}]}
        ),
        "slots.json": json.dumps([slot]),
        "llama_answers.json": json.dumps(
            [answer, {"error": {"code": 500, "message": f"Context size has been exceeded. {TEXT}"}}]
        ),
        "trace.jsonl": lines({"timestamp": 0, "input_length": 9, "output_length": 3, "hash_ids": [1, 2], "prompt": TEXT}),
        "metrics.txt": lines(
            f"# HELP vllm:num_requests_running {TEXT}", *(f"vllm:num_requests_running {value}" for value in (3, WORDS))
        ),
        "prompts.txt": f"{TEXT}\n{TEXT}\n",
        "dataset.json": json.dumps([{"conversations": [{"from": "human", "value": TEXT}]}]),
        "broken.json": json.dumps(bench())[:-30] + TEXT,
    }
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_text(content)
    return folder


def leaks(folder: Path) -> list[str]:
    """Where a marker stands: in a file's bytes, or in a column of a table."""
    found = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        found += [f"{path.relative_to(folder)}: {each}" for each in (WORDS, str(IDS)) if each.encode() in content]
        if path.suffix == ".parquet":
            with duckdb.connect() as con:
                found += _leaking_columns(con, f"'{path}'", path.name)
        elif path.suffix == ".duckdb":
            with duckdb.connect(str(path), read_only=True) as con:
                tables = con.sql("select schema_name || '.' || table_name from duckdb_tables()").fetchall()
                found += [each for (table,) in tables for each in _leaking_columns(con, table, f"{path.name} {table}")]
    return found


def _leaking_columns(con: duckdb.DuckDBPyConnection, table: str, told: str) -> list[str]:
    """A column as text, whatever its type: token ids could hide in a list of numbers."""
    columns = [row[0] for row in con.sql(f"describe from {table}").fetchall()]
    has = ", ".join(f"count_if(contains(\"{c}\"::varchar, '{WORDS}') or contains(\"{c}\"::varchar, '{IDS}'))" for c in columns)
    return [f"{told} {c}" for c, count in zip(columns, con.sql(f"select {has} from {table}").fetchall()[0], strict=True) if count]


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    return inputs(tmp_path_factory.mktemp("private") / "in")


def test_the_markers_are_found_where_they_are(given, tmp_path):
    """The search itself: it finds what is in the inputs, and what is compressed in a table."""
    assert len(leaks(given)) >= len(list(given.iterdir()))
    duckdb.sql(f"select '{TEXT}' as a, [{IDS}] as b").write_parquet(str(tmp_path / "t.parquet"), compression="zstd")
    assert {each.split()[-1] for each in leaks(tmp_path)} >= {"a", "b"}


def test_no_prompt_answer_or_token_id_is_written_or_printed(given, tmp_path, capsys):
    assert cli.main(["parse", str(given), "--out", str(tmp_path / "tables")]) == 0
    assert cli.main(["analyze", str(given), "--out", str(tmp_path / "a")]) == 0
    read = [
        row[0] for row in duckdb.sql(f"select distinct format from '{tmp_path}/tables/sources.parquet' order by all").fetchall()
    ]
    assert len(read) >= 15, read  # the fields were really looked at
    cli.main(["compare", str(tmp_path / "a"), str(tmp_path / "a"), "--out", str(tmp_path / "c")])
    cli.main(["whatif", str(tmp_path / "a"), "--set", "max_num_seqs=4"])
    cli.main(["analyze", str(given / "prompts.txt"), "--out", str(tmp_path / "b")])
    cli.main(["analyze", str(given / "broken.json"), "--out", str(tmp_path / "b")])
    assert leaks(tmp_path) == []
    printed = "".join(capsys.readouterr())
    assert WORDS not in printed
    assert str(IDS) not in printed
