"""What the report reads: the tables of one `analysis.duckdb`, read-only, each there with every column the charts ask for.

An analysis made by an older version, or from inputs that carry little, lacks tables or columns: here they are empty or NULL, so
that a query written once works on all of them. With `anonymize`, every text that comes out has names, ids, hosts and paths
replaced by stable stand-ins. What does not belong here: any particular chart or sentence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Self

import duckdb

from pipelines.duck import literal

Row = dict[str, Any]
DATABASE = "analysis.duckdb"

TABLES: dict[str, str] = {
    "runs": "run varchar, started_at timestamptz, ended_at timestamptz, sources bigint, clock_error_s double",
    "engines": (
        "run varchar, engine varchar, engine_kind varchar, engine_version varchar, model varchar, kv_capacity_tokens bigint, "
        "block_size bigint, max_num_seqs bigint, max_num_seqs_source varchar, max_num_batched_tokens bigint, "
        "max_model_len bigint, prefix_caching boolean, kv_connector varchar, tensor_parallel_size bigint, "
        "first_seen_at timestamptz, last_seen_at timestamptz"
    ),
    "timeline": (
        "run varchar, engine varchar, bucket_at timestamptz, bucket_s double, running double, waiting double, deferred double, "
        "kv_usage_ratio double, preemptions double, prompt_tokens_per_s double, generation_tokens_per_s double, "
        "recomputed_tokens_per_s double, prefix_hit_ratio double, ttft_p50_s double, ttft_p99_s double, itl_p50_s double, "
        "itl_p99_s double, queue_p50_s double, queue_p99_s double, gpu_util_ratio double, useful_token_ratio double"
    ),
    "verdicts": (
        "run varchar, engine varchar, window_start timestamptz, window_end timestamptz, verdict varchar, severity double, "
        "confidence double, is_primary boolean, summary varchar, evidence varchar[], evidence_against varchar[], "
        "missing varchar[], peak_at timestamptz, title varchar"
    ),
    "preemptions": (
        "run varchar, engine varchar, count_low double, count_best double, count_high double, method varchar, told_by varchar"
    ),
    "sweep_levels": (
        "run varchar, sweep varchar, dimension varchar, level double, requests bigint, kv_usage_max double, running double, "
        "waiting double, preemptions double, recomputed_share double, ttft_p50_s double, ttft_p99_s double, itl_p99_s double, "
        "longest_gap_s double, tail_s double, useful_tokens_per_s double, goodput_per_s double"
    ),
    "sweep_knee": (
        "run varchar, sweep varchar, dimension varchar, knee_level double, cache_limit_low double, cache_limit_high double, "
        "summary varchar, remarks varchar[]"
    ),
    "waste": (
        "run varchar, engine varchar, kind varchar, tokens_low double, tokens_best double, tokens_high double, share_low double, "
        "share_best double, share_high double, gpu_seconds_low double, gpu_seconds_best double, gpu_seconds_high double, "
        "cost_low double, cost_best double, cost_high double, method varchar, told_by varchar, evidence varchar, "
        "contradiction varchar, missing_series varchar[]"
    ),
    "queue_time": "run varchar, engine varchar, cause varchar, seconds double, request_seconds double",
    "stalls": (
        "run varchar, engine varchar, request_id varchar, source_file varchar, request_index bigint, started_at timestamptz, "
        "duration_s double, cause varchar, tokens_before bigint, waited_s double, rebuild_s double"
    ),
    "evictions": (
        "run varchar, engine varchar, bucket_at timestamptz, bucket_s double, evicted_blocks double, evicted_tokens double, "
        "refilled_tokens double"
    ),
    "pool_use": (
        "run varchar, engine varchar, bucket_at timestamptz, bucket_s double, active_ratio double, reusable_ratio double, "
        "free_ratio double"
    ),
    "core.client_latencies": (
        "source varchar, source_file varchar, run_index bigint, started_at timestamptz, completed bigint, failed bigint, "
        "ttft_p50_s double, ttft_p99_s double, itl_p50_s double, itl_p99_s double, is_alone boolean"
    ),
    "core.sequence_lengths": (
        "engine varchar, scope varchar, requests bigint, prompt_p50 double, prompt_p90 double, prompt_p99 double, "
        "output_p50 double, output_p90 double, output_p99 double, method varchar"
    ),
    "recommendations": (
        "run varchar, engine varchar, rank bigint, title varchar, setting varchar, from_value varchar, to_value varchar, "
        "expected_effect varchar, trade_off varchar, evidence varchar, verify_by varchar, method varchar"
    ),
    "data_quality": "run varchar, source varchar, flag varchar, severity varchar, count bigint, detail varchar",
    "core.requests": (
        "request_key varchar, engine varchar, source_file varchar, request_index bigint, request_id varchar, "
        "arrived_at timestamptz, first_token_at timestamptz, finished_at timestamptz, input_tokens bigint, output_tokens bigint, "
        "ttft_s double, queue_s double, prefill_s double, decode_s double, client_queue_s double, is_failed boolean"
    ),
    "sources": (
        "source varchar, path varchar, format varchar, engine_kind varchar, bytes bigint, lines bigint, lines_used bigint, "
        "lines_ignored bigint, lines_not_understood bigint, first_not_understood bigint, is_other boolean, error varchar"
    ),
}
KEYS = frozenset(
    {
        "verdict",
        "method",
        "scope",
        "cause",
        "kind",
        "flag",
        "severity",
        "part",
        "setting",
        "format",
        "engine_kind",
        "engine_version",
    }
)  # never names
RENAMED = {("verdicts", "peak_at"): "episode_peak_at"}  # what a column was called before, in older analyses


@dataclass(frozen=True)
class Data:
    """One analysis, open for reading. Use as a context manager."""

    con: duckdb.DuckDBPyConnection
    mask: Mask

    @classmethod
    def open(cls, analysis: Path, *, anonymize: bool = False) -> Self:
        """Open `analysis.duckdb`, or the folder it lies in."""
        database = analysis / DATABASE if analysis.is_dir() else analysis
        # one thread: several return rows, and add up floats, in an order of their own, and the page would differ from run to run
        settings = {"threads": 1, "autoinstall_known_extensions": False, "autoload_known_extensions": False}
        con = duckdb.connect(config=settings)
        con.execute("set timezone = 'UTC'")
        con.execute(f"attach {literal(database)} as analysis (read_only)")
        con.execute("create schema core")
        for table, columns in TABLES.items():
            con.execute(_view(con, table, [tuple(column.split(" ", 1)) for column in columns.split(", ")]))
        return cls(con, Mask.of(_names(con)) if anonymize else Mask())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.con.close()

    def rows(self, query: str) -> list[Row]:
        """The rows of a query, as dicts."""
        found = self.con.sql(query).pl().to_dicts()  # Arrow's own way imports pandas where it is installed, half a second
        return [{name: self._told(name, value) for name, value in row.items()} for row in found]

    def _told(self, name: str, value: Any) -> Any:
        """A value as it may be shown: decimals as floats, names masked."""
        if isinstance(value, Decimal):
            return float(value)
        return value if name in KEYS else self.mask(value)


RUN_SPAN = """\
select min(first_at) as from_at, max(last_at) as to_at
from (
    select min(bucket_at) as first_at, max(bucket_at + to_seconds(bucket_s)) as last_at from timeline
    union all
    select min(window_start), max(window_end) from verdicts
    union all
    select min(started_at), max(started_at + to_seconds(duration_s)) from stalls
)"""  # the window of every chart that follows the timeline


def _view(con: duckdb.DuckDBPyConnection, table: str, columns: Iterable[tuple[str, ...]]) -> str:
    """The statement that makes `table` readable, with NULL for a column that the analysis lacks."""
    there = dict(
        con.sql(
            "select column_name, data_type from duckdb_columns() "
            "where database_name = 'analysis' and (schema_name || '.' || table_name) = $table",
            params={"table": table if "." in table else f"main.{table}"},
        ).fetchall()
    )
    lacking = [
        f"{old if (old := RENAMED.get((table, name))) in there else f'null::{kind}'} as {name}"
        for name, kind in columns
        if name not in there
    ]
    if there:
        return f"create view {table} as select {', '.join(['*', *lacking])} from analysis.{table}"
    return f"create view {table} as select {', '.join(lacking)} where false"


def _names(con: duckdb.DuckDBPyConnection) -> Iterator[tuple[str, str]]:
    """Every (kind, name) that says who or where: what `anonymize` hides."""
    queries = {
        "run": "select distinct run from runs",
        "model": "select distinct model from engines",
        "host": "select distinct regexp_extract(engine, '^(.*)/[^/]*$', 1) from engines",
        "file": "select distinct source_file from stalls union select distinct source_file from core.requests "
        "union select distinct source from sources union select distinct path from sources union select source from data_quality "
        "where source not in (select engine from engines)",
        "request": "select distinct request_id from stalls union select distinct request_id from core.requests",
    }
    for kind, query in queries.items():
        yield from ((kind, name) for (name,) in sorted(con.sql(query).fetchall(), key=str) if name)


@dataclass(frozen=True)
class Mask:
    """Replaces known names, and anything that looks like a path, a URL or an address, in every text it is given."""

    stand_ins: dict[str, str] = field(default_factory=dict)
    pattern: re.Pattern[str] | None = None

    @classmethod
    def of(cls, names: Iterable[tuple[str, str]]) -> Self:
        """A mask for these (kind, name) pairs: `model-1`, `file-2`, in the order given.

        A file whose name is a plain word (`metrics`) is replaced where it stands alone, not inside a sentence.
        """
        stand_ins: dict[str, str] = {}
        numbers: dict[str, int] = {}
        for kind, name in names:
            if name not in stand_ins:
                numbers[kind] = numbers.get(kind, 0) + 1
                stand_ins[name] = f"{kind}-{numbers[kind]}"
        tellable = [
            name for name, stand_in in stand_ins.items() if len(name) > 1 and not (stand_in.startswith("file") and name.isalpha())
        ]
        longest_first = [re.escape(name) for name in sorted(tellable, key=len, reverse=True)]
        anywhere = [rf"(?<![\w-])(?:{'|'.join(longest_first)})(?![\w-])"] if longest_first else []
        elsewhere = [r"\b\w+://\S+", r"(?<![\w.])~?/(?:[\w.@+-]+/)+[\w.@+-]*", r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b"]
        return cls(stand_ins or {"": ""}, re.compile("|".join([*anywhere, *elsewhere])))

    def __call__(self, value: Any) -> Any:
        """The value with every name in it replaced; what is no text comes back as it is."""
        if isinstance(value, list):
            return [self(each) for each in value]
        if not isinstance(value, str) or self.pattern is None:
            return value
        return self.stand_ins.get(value) or self.pattern.sub(self._stand_in, value)

    def _stand_in(self, found: re.Match[str]) -> str:
        return self.stand_ins.get(found.group(), "[hidden]")


def first(rows: list[Row]) -> Row:
    """The only row; an empty one where there is none."""
    return rows[0] if rows else {}


def total(rows: Iterable[Row], column: str, form: Callable[[Iterable[float]], float] = sum) -> float | None:
    """Sum (or `form`) of a column over the rows where it is known; None where it is known in none."""
    values = [row[column] for row in rows if row.get(column) is not None]
    return form(values) if values else None
