"""What an engine would have written in each public bug report of cases.jsonl: its lines, completed where the report cut them.

One function per case name (dashes as underscores); it returns file name -> content. A report without lines is told in the
metrics or lines that its facts imply. Nothing here says what the answer is: that is in test_cases.py.
"""

from __future__ import annotations

import inspect
import json
from datetime import UTC, datetime, timedelta

EPOCH = datetime(2026, 3, 17, 15, 38, 10, tzinfo=UTC)


def v1_line(
    second: float,
    *,
    prompt: float,
    generation: float,
    running: int,
    waiting: int,
    usage: float,
    hits: float = 0.0,
    extra: str = "",
    engine: int = 0,
) -> str:
    """One statistics line of vLLM 0.17-0.29."""
    stamp = (EPOCH + timedelta(seconds=second)).strftime("%m-%d %H:%M:%S")
    return (
        f"(APIServer pid=11574) INFO {stamp} [loggers.py:259] Engine {engine:03d}: Avg prompt throughput: {prompt:.1f} tokens/s, "
        f"Avg generation throughput: {generation:.1f} tokens/s, Running: {running} reqs, Waiting: {waiting} reqs{extra}, "
        f"GPU KV cache usage: {usage:.1f}%, Prefix cache hit rate: {hits:.1f}%"
    )


def v0_line(
    second: float,
    *,
    prompt: float,
    generation: float,
    running: int,
    pending: int,
    usage: float,
    swapped: int = 0,
    swap: float = 0.0,
) -> str:
    """One statistics line of vLLM 0.4.3-0.10.2, engine V0."""
    stamp = (EPOCH + timedelta(seconds=second)).strftime("%m-%d %H:%M:%S")
    return (
        f"INFO {stamp} metrics.py:396] Avg prompt throughput: {prompt:.1f} tokens/s, "
        f"Avg generation throughput: {generation:.1f} tokens/s, "
        f"Running: {running} reqs, Swapped: {swapped} reqs, Pending: {pending} reqs, GPU KV cache usage: {usage:.1f}%, "
        f"CPU KV cache usage: {swap:.1f}%."
    )


TTFT_BOUNDS = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
    20.0,
    40.0,
    80.0,
    160.0,
)
ITL_BOUNDS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)


class Scrapes:
    """Scrapes of one vLLM server, fifteen seconds apart: counters are given per interval, gauges as they stand."""

    def __init__(
        self, *, engines: int = 1, config: str = 'block_size="16",num_gpu_blocks="12000",enable_prefix_caching="True"'
    ) -> None:
        self.engines, self.config = engines, config
        self.totals: dict[tuple, float] = {}
        self.pages: list[str] = []

    def page(self, *engines: dict) -> None:
        """Add a scrape: one dict of values for each engine."""
        lines = [f"# scrape_unix_ms {int(EPOCH.timestamp() * 1000) + 15_000 * len(self.pages)}"]
        for engine, values in enumerate(engines):
            label = f'engine="{engine}",model_name="m"'
            lines.append(f'vllm:cache_config_info{{{self.config},engine="{engine}"}} 1.0')
            for name, value in values.items():
                lines += self._metric(name, value, label)
        self.pages.append("\n".join(lines))

    def _metric(self, name: str, value: object, label: str) -> list[str]:
        if isinstance(value, tuple):  # (how many, how long each): a histogram
            count, each = value
            bounds = TTFT_BOUNDS if "first_token" in name or name.startswith("request_") or "e2e" in name else ITL_BOUNDS
            rows = [
                (f'vllm:{name}_bucket{{{label},le="{bound}"}}', count if each <= bound else 0)
                for bound in (*bounds, float("inf"))
            ]
            rows = [(series.replace('"inf"', '"+Inf"'), step) for series, step in rows]
            rows += [(f"vllm:{name}_count{{{label}}}", count), (f"vllm:{name}_sum{{{label}}}", count * each)]
            return [f"{series} {self._add(series, step)}" for series, step in rows]
        extra = ""
        if name.startswith("waiting_by_reason_"):
            extra, name = f',reason="{name.removeprefix("waiting_by_reason_")}"', "num_requests_waiting_by_reason"
        series = f"vllm:{name}{{{label}{extra}}}"
        return [f"{series} {self._add(series, value) if name.endswith('_total') else value}"]

    def _add(self, series: str, step: float) -> float:
        self.totals[series] = self.totals.get(series, 0) + step
        return self.totals[series]

    def text(self) -> str:
        return "\n".join(self.pages) + "\n"


def served(
    requests: int, *, ttft: float, itl: float = 0.03, queue: float = 0.0, prompt: int = 500, answer: int = 100, **gauges: float
) -> dict:
    """The counters of `requests` requests served in one interval, and the gauges beside them."""
    return {
        "prompt_tokens_total": requests * prompt,
        "generation_tokens_total": requests * answer,
        "prefix_cache_queries_total": requests * prompt,
        "prefix_cache_hits_total": 0.1 * requests * prompt,
        "num_preemptions_total": 0,
        "time_to_first_token_seconds": (requests, ttft),
        "inter_token_latency_seconds": (requests * answer, itl),
        "request_queue_time_seconds": (requests, queue),
        "e2e_request_latency_seconds": (requests, ttft + itl * answer),
        **gauges,
    }


def loaded(*, running: float, waiting: float = 0, usage: float, deferred: float | None = None) -> dict:
    """The gauges of one engine."""
    gauges = {"num_requests_running": running, "num_requests_waiting": waiting, "kv_cache_usage_perc": usage}
    if deferred is not None:
        gauges |= {"waiting_by_reason_capacity": waiting - deferred, "waiting_by_reason_deferred": deferred}
    return gauges


def steady(pages: int, values: dict, **how: object) -> str:
    """So many scrapes of the same load."""
    scrapes = Scrapes(**how)
    for _ in range(pages):
        scrapes.page(values)
    return scrapes.text()


def vllm_18115_v1_kv_full_silent_thrash(lines: list[str]) -> dict[str, str]:
    """As reported, glued records and all, and the loop that followed: the pool full, seven running and one waiting."""
    grown = "\n".join(lines)
    looping = [
        f"INFO 07-28 06:{44 + step // 6}:{10 * step % 60:02d} [loggers.py:118] Engine 000: Avg prompt throughput: 0.0 tokens/s, "
        f"Avg generation throughput: 180.0 tokens/s, Running: 7 reqs, Waiting: 1 reqs, "
        f"GPU KV cache usage: 99.{step % 10}%, Prefix cache hit rate: 0.0%"
        for step in range(12)
    ]
    return {"server.log": grown + "\n" + "\n".join(looping) + "\n"}


def vllm_37307_queue_is_prefill_budget_then_thrash(lines: list[str]) -> dict[str, str]:
    return {"server.log": "\n".join(lines) + "\n"}


def vllm_546_swap_deadlock(lines: list[str]) -> dict[str, str]:
    return {"server.log": "\n".join(lines) + "\n"}


def vllm_6102_first_preemption_crash(lines: list[str]) -> dict[str, str]:
    before = [v0_line(5 * step, prompt=100, generation=300, running=30, pending=2, usage=98.5) for step in range(3)]
    before = [line.replace("03-17 15:38", "08-20 10:18") for line in before]
    return {"server.log": "\n".join([*before, *lines, "torch.AcceleratorError: CUDA error", ""])}


def inference_sim_963_healthy_preemption(_: list[str]) -> dict[str, str]:
    """19,801 requests, 1,538 preemptions: as its counters would show them, over twenty minutes."""
    values = served(248, ttft=0.4, queue=0.02, **loaded(running=120, waiting=0, usage=0.97)) | {"num_preemptions_total": 19.2}
    return {"metrics.txt": steady(81, values, config='block_size="16",num_gpu_blocks="4700"')}


def vllm_11517_running1_pending3(_: list[str]) -> dict[str, str]:
    config = "2024-12-20 15:18:19 - vllm.executor.distributed_gpu_executor - INFO - # GPU blocks: 50231, # CPU blocks: 8192"
    lines = [
        f"2024-12-23 18:28:{10 + 5 * step} - vllm.engine.metrics - INFO - Avg prompt throughput: 0.0 tokens/s, "
        "Avg generation throughput: 45.7 tokens/s, Running: 1 reqs, Swapped: 0 reqs, Pending: 3 reqs, "
        "GPU KV cache usage: 3.1%, CPU KV cache usage: 0.0%."
        for step in range(6)
    ]
    return {"server.log": "\n".join([config, *lines, ""])}


def vllm_3561_36_running_78_pending_99pct(lines: list[str]) -> dict[str, str]:
    return {"server.log": "\n".join(line.strip() + "." for line in lines) + "\n"}


def vllm_8719_uneven(lines: list[str]) -> dict[str, str]:
    second = [
        line.replace("361991", "361682").replace("Running: 16", "Running: 3").replace("Pending: 11", "Pending: 0")
        for line in lines
    ]
    return {
        "journal.log": "\n".join([*lines, *second, *(line.replace("23:46:42", "23:46:47") for line in [*lines, *second])]) + "\n"
    }


def public_18b_runaway_no_max_tokens(_: list[str]) -> dict[str, str]:
    lines = [
        v1_line(10 * step, prompt=0, generation=90, running=3, waiting=3, usage=5 + step / 8, extra=", Deferred: 3 reqs")
        for step in range(50)
    ]
    return {"server.log": "\n".join(lines) + "\n"}


def vllm_25780_hit_rate_inflated_by_preemption(lines: list[str]) -> dict[str, str]:
    return {"server.log": "\n".join(lines) + "\n"}


def sendnn_1030_overcount_lines(lines: list[str]) -> dict[str, str]:
    return {"server.log": "\n".join(line + " " * 200 for line in lines) + "\n"}


def vllm_40691_size_log_wrong(lines: list[str]) -> dict[str, str]:
    stamped = [line.replace("INFO [", "INFO 04-01 12:00:00 [") for line in lines]
    busy = [
        v1_line(10 * step, prompt=3000, generation=800, running=30, waiting=0, usage=60).replace("03-17 15:3", "04-01 12:0")
        for step in range(4)
    ]
    return {"server.log": "\n".join([*stamped, *busy, ""])}


def kaito_2319_mamba_slots(lines: list[str]) -> dict[str, str]:
    return {
        "server.log": "INFO 05-02 10:00:00 [core.py:133] Initializing a V1 LLM engine (v0.25.1) with config: "
        "model='m', max_seq_len=8192\n"
        "Traceback (most recent call last):\n" + "\n".join(lines) + "\n",
    }


def vllm_48808_dp_long_context(_: list[str]) -> dict[str, str]:
    scrapes = Scrapes(engines=4)
    for running in [(8, 8, 8, 8)] * 4 + [(15, 8, 4, 3)] * 4 + [(27, 5, 0, 0)] * 12:
        scrapes.page(*(served(2 * max(each, 1), ttft=0.5, **loaded(running=each, usage=each / 40)) for each in running))
    return {"metrics.txt": scrapes.text()}


def vllm_nixl_0924_expired(lines: list[str]) -> dict[str, str]:
    calm = [
        v1_line(10 * step, prompt=2000, generation=20, running=2, waiting=0, usage=12).replace("03-17 15:38", "09-24 16:35")
        for step in range(4)
    ]
    return {"server.log": "\n".join([*calm, *lines, ""])}


def public_offload_lookup_livelock(_: list[str]) -> dict[str, str]:
    lines = [
        v1_line(10 * step, prompt=0, generation=0, running=0, waiting=1, usage=0, extra=", Deferred: 1 reqs")
        for step in range(30)
    ]
    return {"server.log": "\n".join(lines) + "\n"}


def public_packed_kv_stall_98pct(_: list[str]) -> dict[str, str]:
    before = [
        v1_line(10 * step, prompt=900, generation=600, running=24, waiting=30, usage=97.5, extra=", Deferred: 30 reqs")
        for step in range(6)
    ]
    stuck = [
        v1_line(60 + 10 * step, prompt=0, generation=0, running=23, waiting=32, usage=98.2, extra=", Deferred: 32 reqs")
        for step in range(9)
    ]
    return {"server.log": "\n".join([*before, *stuck, ""])}


def lmcache_1547_decoder_recompute(lines: list[str]) -> dict[str, str]:
    return {"decoder.log": v1_line(0, prompt=3276, generation=5, running=1, waiting=0, usage=20) + "\n" + "\n".join(lines) + "\n"}


def vllm_39963_client_readbuf(_: list[str]) -> dict[str, str]:
    """The server's side of it: first tokens in 1.3 s, next to no queue."""
    return {
        "metrics.txt": steady(
            20,
            served(8, ttft=1.3, prompt=50_000, itl=0.04, queue=0.01, **loaded(running=6, usage=0.3)),
            config='block_size="16",num_gpu_blocks="120000"',
        )
    }


def vllm_18674_cpu_device(lines: list[str]) -> dict[str, str]:
    blocks = "INFO 05-25 06:50:01 [executor_base.py:112] # CPU blocks: 2048, # CPU blocks: 0"
    return {"server.log": "\n".join([blocks, *lines, *(line.replace("06:50:29", "06:50:34") for line in lines), ""])}


def vllm_14412_2_requests_100pct(_: list[str]) -> dict[str, str]:
    head = [
        "INFO 03-17 15:30:00 api_server.py:1 args: Namespace(max_num_seqs=20, max_model_len=32000)",
        "INFO 03-17 15:37:00 kv_cache_utils.py:537] GPU KV cache size: 33,120 tokens",
    ]
    lines = [v1_line(10 * step, prompt=0, generation=60, running=2, waiting=1, usage=99.6) for step in range(10)]
    return {"server.log": "\n".join([*head, *lines, ""])}


def vllm_15422_lora_head_of_line(_: list[str]) -> dict[str, str]:
    values = served(20, ttft=7, queue=6, **loaded(running=4, waiting=25, usage=0.15, deferred=25))
    return {"metrics.txt": steady(12, values)}


def lil_541_prefill_starves_decode(_: list[str]) -> dict[str, str]:
    """One stream at 272 tokens/s, and at 6.6 while 65,535-token prompts are computed."""
    scrapes = Scrapes(config='block_size="16",num_gpu_blocks="86000"')
    for busy in [False] * 6 + [True] * 6 + [False] * 4:
        tokens, each = (100, 0.15) if busy else (4000, 0.0037)
        scrapes.page(
            served(
                1,
                ttft=16.5 if busy else 0.2,
                prompt=65_535 if busy else 100,
                queue=0.01,
                **loaded(running=2 if busy else 1, usage=0.06),
            )
            | {"inter_token_latency_seconds": (tokens, each), "generation_tokens_total": tokens},
        )
    return {"metrics.txt": scrapes.text()}


def vllm_43736_double_counting_retries(_: list[str]) -> dict[str, str]:
    """Lookups counted on every retry of a blocked head: ten times the prompts, and a hit ratio that rises with it."""
    scrapes = Scrapes()
    for blocked in [False] * 6 + [True] * 8:
        values = served(
            20,
            ttft=4 if blocked else 0.4,
            queue=3.5 if blocked else 0,
            **loaded(running=30, waiting=12 if blocked else 0, usage=0.99 if blocked else 0.7),
        )
        if blocked:
            values |= {"prefix_cache_queries_total": 100_000, "prefix_cache_hits_total": 60_000}
        scrapes.page(values)
    return {"metrics.txt": scrapes.text()}


def vllm_1cat_90_window_1000(_: list[str]) -> dict[str, str]:
    lines = [
        v1_line(10 * step, prompt=2000, generation=500, running=8, waiting=0, usage=20, hits=31.0 - step / 10)
        for step in range(12)
    ]
    return {"server.log": "\n".join(lines) + "\n"}


def vllm_11072_second_turn_miss(_: list[str]) -> dict[str, str]:
    """Few requests on a nearly empty pool, never a hit: nothing was evicted, the prompts differ."""
    return {"metrics.txt": steady(20, served(2, ttft=0.3, **loaded(running=1, usage=0.02)) | {"prefix_cache_hits_total": 0})}


def vllm_20302_usage_metric(_: list[str]) -> dict[str, str]:
    """The new gauge stuck at 0 beside 24 running requests."""
    return {"metrics.txt": steady(20, served(30, ttft=0.3, **loaded(running=24, usage=0.0)))}


def aiconfigurator_1380_staging_kv(_: list[str]) -> dict[str, str]:
    values = served(10, ttft=9, queue=8, **loaded(running=2, waiting=18, usage=0.97, deferred=16))
    return {"metrics.txt": steady(12, values)}


def vllm_45388_offload_deadlock(_: list[str]) -> dict[str, str]:
    stuck = loaded(running=0, waiting=14, usage=0.93, deferred=13)
    scrapes = Scrapes()
    for step in range(16):
        scrapes.page(
            served(
                20 if step < 5 else 0, ttft=0.5, **(loaded(running=12, waiting=2, usage=0.9, deferred=1) if step < 5 else stuck)
            )
        )
    return {"metrics.txt": scrapes.text()}


def vllm_52530_request_never_fits(_: list[str]) -> dict[str, str]:
    lines = [v1_line(10 * step, prompt=0, generation=0, running=0, waiting=9, usage=0) for step in range(20)]
    return {
        "server.log": "INFO 03-17 15:37:00 [kv_cache_utils.py:1000] GPU KV cache size: 24,576 tokens\n" + "\n".join(lines) + "\n"
    }


def lmcache_1061_offload_no_benefit(_: list[str]) -> dict[str, str]:
    values = served(20, ttft=0.8, **loaded(running=10, usage=0.4)) | {
        "external_prefix_cache_queries_total": 9000,
        "external_prefix_cache_hits_total": 0,
    }
    return {"metrics.txt": steady(16, values)}


def gpustack_2324_connector_limit(_: list[str]) -> dict[str, str]:
    values = served(150, ttft=0.4, queue=0.0, **loaded(running=100, waiting=0, usage=0.45))
    return {"metrics.txt": steady(16, values, config='block_size="16",num_gpu_blocks="60000"')}


def tt_4179_measurement_boundary(_: list[str]) -> dict[str, str]:
    scrapes = Scrapes()
    for step in range(12):
        scrapes.page(served(2, ttft=9.8 if step == 1 else 0.4, **loaded(running=1, usage=0.02)))
    return {"metrics.txt": scrapes.text()}


def vllm_12122_grammar_ttft(_: list[str]) -> dict[str, str]:
    values = served(20, ttft=4, queue=3.3, **loaded(running=3, waiting=8, usage=0.1, deferred=8))
    return {"metrics.txt": steady(12, values)}


def vllm_omni_6365_queue_at_2rps(_: list[str]) -> dict[str, str]:
    scrapes = Scrapes(config='block_size="16",num_gpu_blocks="12000"')
    for step in range(16):
        scrapes.page(
            served(
                30, ttft=0.6, itl=0.01, queue=0.391, prompt=60, answer=80, **loaded(running=1 + step % 2, waiting=1, usage=0.05)
            )
        )
    return {"metrics.txt": scrapes.text()}


def vllm_ascend_10820_decode_recompute(_: list[str]) -> dict[str, str]:
    values = served(20, ttft=0.5, **loaded(running=40, waiting=3, usage=0.99)) | {"num_preemptions_total": 9}
    return {"metrics.txt": steady(16, values)}


def sglang_study_retract_wait_not_recompute(lines: list[str]) -> dict[str, str]:
    return {"server.log": "\n".join(lines) + "\n"}


def sglang_7133_queue_with_free_kv(lines: list[str]) -> dict[str, str]:
    head = (
        "[2025-06-12 11:40:00] server_args=ServerArgs(model_path='m', max_running_requests=4096, schedule_conservativeness=0.1)"
    )
    more = [lines[0].replace("11:41:56", f"11:42:{6 + 10 * step:02d}").replace("646", str(640 - step)) for step in range(5)]
    return {"server.log": "\n".join([head, *lines, *more, ""])}


def sglang_33483_cuda_graph_cliff(lines: list[str]) -> dict[str, str]:
    decode = [
        f"[2026-08-01 10:{step // 6:02d}:{10 * step % 60:02d}] Decode batch, #running-req: {24 if step < 6 else 67}, "
        f"#token: 90000, token usage: 0.03, "
        f"cuda graph: {step < 6}, gen throughput (token/s): {1500 if step < 6 else 1100}.00, #queue-req: 0"
        for step in range(24)
    ]
    return {"server.log": "\n".join([*(f"[2026-08-01 09:59:00] {line}" for line in lines), *decode, ""])}


def sglang_30047_mamba_pool_binds(lines: list[str]) -> dict[str, str]:
    return {"server.log": "\n".join(lines) + "\n"}


def sglang_6778_usage_not_leak(_: list[str]) -> dict[str, str]:
    lines = [
        f"[2025-06-02 10:{step:02d}:00] Decode batch. #running-req: 1, #token: 40000, token usage: 0.45, "
        "gen throughput (token/s): 60.00, #queue-req: 0"
        for step in range(12)
    ]
    return {"server.log": "\n".join(lines) + "\n"}


def sglang_22726_token_usage_excludes_evictable(_: list[str]) -> dict[str, str]:
    """2 % used by requests, 70 % by the radix cache: the gauges tell both, and nobody waits."""
    label = '{engine_type="unified",model_name="m",tp_rank="0"}'
    pages = []
    for page in range(12):
        pages.append(f"# scrape_unix_ms {int(EPOCH.timestamp() * 1000) + 15_000 * page}")
        gauges = {"num_running_reqs": 2, "num_queue_reqs": 0, "token_usage": 0.02, "max_total_num_tokens": 100_000}
        gauges |= {"kv_available_tokens": 28_000, "kv_evictable_tokens": 70_000, "kv_used_tokens": 2_000}
        pages += [f"sglang:{name}{label} {value}" for name, value in gauges.items()]
        pages.append(f"sglang:num_requests_total{label} {40 * page}")
    return {"metrics.txt": "\n".join(pages) + "\n"}


def sglang_21396_transfer_req_misread(_: list[str]) -> dict[str, str]:
    lines = [
        f"[2026-03-10 10:{step // 6:02d}:{10 * step % 60:02d}] Decode batch, #running-req: 12, #token: 24000, token usage: 0.20, "
        "pre-allocated usage: 0.05, #prealloc-req: 0, #transfer-req: 40, #retracted-req: 0, cuda graph: True, "
        "gen throughput (token/s): 700.00, #queue-req: 0"
        for step in range(20)
    ]
    return {"server.log": "\n".join(lines) + "\n"}


def iterations(count: int, *, active: int, queued: int, used: int, blocks: int = 512, paused: int = 0) -> str:
    """TensorRT-LLM's drained statistics: so many iterations, a second apart, at one load."""
    rows = [
        {
            "iter": step,
            "timestamp": (EPOCH + timedelta(seconds=step)).strftime("%m-%d-%Y %H:%M:%S.000"),
            "iterLatencyMS": 21.4,
            "numActiveRequests": active,
            "numQueuedRequests": queued,
            "maxNumActiveRequests": 16,
            "kvCacheStats": {"maxNumBlocks": blocks, "freeNumBlocks": blocks - used, "usedNumBlocks": used, "tokensPerBlock": 32},
            "inflightBatchingStats": {
                "numContextRequests": 0,
                "numGenRequests": active,
                "numPausedRequests": paused,
                "numCtxTokens": 0,
            },
        }
        for step in range(count)
    ]
    return json.dumps(rows)


def trtllm_2866_big_max_tokens(lines: list[str]) -> dict[str, str]:
    return {"server.log": "\n".join(lines) + "\n", "iterations.json": iterations(120, active=1, queued=6, used=60)}


def trtllm_9412_sequential_without_max_tokens(_: list[str]) -> dict[str, str]:
    return {"iterations.json": iterations(120, active=1, queued=12, used=40)}


def trtllm_16827_max_util(_: list[str]) -> dict[str, str]:
    return {"iterations.json": iterations(120, active=14, queued=9, used=509, paused=2)}


def trtllm_backend_609_active8_scheduled1(_: list[str]) -> dict[str, str]:
    """Triton's own record, whole: eight active, one scheduled, the pool of 40 blocks full."""
    record = {
        "Active Request Count": 8,
        "Iteration Counter": 6189,
        "Max Request Count": 8,
        "Context Requests": 0,
        "Scheduled Requests": 1,
        "Generation Requests": 1,
        "Paused Requests": 0,
        "Max KV cache blocks": 40,
        "Used KV cache blocks": 40,
        "Free KV cache blocks": 0,
        "Tokens per KV cache block": 64,
    }
    lines = []
    for step in range(30):
        text = json.dumps(record | {"Iteration Counter": 6189 + step}, separators=(",", ":")).replace('"', '\\"')
        lines.append(f'I1002 23:45:{10 + step}.282246 136 model_instance_state.cc:1115] "{text}"')
    return {"triton.log": "\n".join(lines) + "\n"}


def llamacpp_20153_swa_hybrid_full_reprocess(lines: list[str]) -> dict[str, str]:
    return {"server.log": "\n".join(lines) + "\n"}


def llamacpp_unified_kv_oversubscribed(lines: list[str]) -> dict[str, str]:
    warned = [
        f"{step // 60}.{step % 60:02d}.083.578 W srv        decode: {lines[0]}, i = 0, n_batch = 1024, ret = 1"
        for step in range(115)
    ]
    failed = [
        f"2.10.0{each:02d}.195 E srv    send_error: task id = {each}, error: Context size has been exceeded." for each in range(4)
    ]
    started = [
        f"0.00.00{each}.762 I slot launch_slot_: id  {each} | task {each} | processing task, is_child = 0" for each in range(4)
    ]
    return {"server.log": "\n".join([*started, *warned, *failed, ""])}


def builders() -> dict[str, object]:
    """Case id -> builder, for every case this module can write."""
    return {
        name.replace("_", "-"): function
        for name, function in globals().items()
        if inspect.isfunction(function) and list(inspect.signature(function).parameters) in (["lines"], ["_"])
    }
