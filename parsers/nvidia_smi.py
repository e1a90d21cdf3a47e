"""nvidia-smi: `--query-gpu … --format=csv` and `dmon`, as DCGM would have named what they show.

    timestamp, index, utilization.gpu [%], memory.used [MiB], power.draw [W]
    2026/11/29 13:23:56.789, 0, 97 %, 71234 MiB, 412.10 W
    #Date       Time        gpu    pwr  gtemp     sm    mem     fb  rxpci  txpci
    #YYYYMMDD   HH:MM:SS    Idx      W      C      %      %     MB   MB/s   MB/s
     20261129   13:23:56      0    412     61     97     43  71234     12      3

Each reading becomes a row of `metric_samples` with the GPU as its label; `-`, `[N/A]` and `[Not Supported]` are no readings.
The stamps have no zone: they are taken for UTC, as in containers they are. `dmon` without `-o DT` has no times: its rows cannot
be placed and are not understood. Memory says nothing of KV pressure: engines take all they will use at their start.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

from parsers import Format
from parsers.bench_rows import real
from parsers.prometheus_samples import Samples
from parsers.source import Account, Sink, Source

# Column -> DCGM's name and what one of its units is in DCGM's.
QUERY = {
    "utilization.gpu": ("DCGM_FI_DEV_GPU_UTIL", 1.0),
    "utilization.memory": ("DCGM_FI_DEV_MEM_COPY_UTIL", 1.0),
    "memory.used": ("DCGM_FI_DEV_FB_USED", 1.0),
    "memory.free": ("DCGM_FI_DEV_FB_FREE", 1.0),
    "power.draw": ("DCGM_FI_DEV_POWER_USAGE", 1.0),
    "temperature.gpu": ("DCGM_FI_DEV_GPU_TEMP", 1.0),
    "clocks.sm": ("DCGM_FI_DEV_SM_CLOCK", 1.0),
    "clocks.current.sm": ("DCGM_FI_DEV_SM_CLOCK", 1.0),
    "clocks.mem": ("DCGM_FI_DEV_MEM_CLOCK", 1.0),
    "clocks.current.memory": ("DCGM_FI_DEV_MEM_CLOCK", 1.0),
}
DMON = {
    "sm": ("DCGM_FI_DEV_GPU_UTIL", 1.0),
    "mem": ("DCGM_FI_DEV_MEM_COPY_UTIL", 1.0),
    "pwr": ("DCGM_FI_DEV_POWER_USAGE", 1.0),
    "gtemp": ("DCGM_FI_DEV_GPU_TEMP", 1.0),
    "mclk": ("DCGM_FI_DEV_MEM_CLOCK", 1.0),
    "pclk": ("DCGM_FI_DEV_SM_CLOCK", 1.0),
    "fb": ("DCGM_FI_DEV_FB_USED", 1.0),
    "rxpci": ("DCGM_FI_PROF_PCIE_RX_BYTES", 1e6),
    "txpci": ("DCGM_FI_PROF_PCIE_TX_BYTES", 1e6),
}
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
QUERY_HEADER = re.compile(
    r"^(?=[^\n]*\btimestamp\b)(?=[^\n]*(?:utilization\.|memory\.|power\.draw|temperature\.gpu))[\w., \[\]%/]+$"
)
DMON_HEADER = re.compile(r"^#\s*(?:Date\s+Time\s+|Time\s+)?gpu\s+[a-z]")
NO_READING = frozenset(("-", "[N/A]", "[Not Supported]", "N/A", "[Unknown Error]", ""))

Reading = tuple[datetime, str, str, float]  # when, which GPU, metric, value


class _Reader:
    """One file; it remembers the last header."""

    def __init__(self) -> None:
        self.columns: list[str] = []
        self.is_query = False

    def read(self, line: str) -> list[Reading] | None:
        """The readings of a line; None for a header."""
        if QUERY_HEADER.match(line):
            self.is_query, self.columns = True, [name.split("[")[0].strip() for name in line.split(",")]
            return None
        if line.startswith("#"):
            if DMON_HEADER.match(line):
                self.is_query, self.columns = False, line.removeprefix("#").split()
            return None
        return list(self._query(line) if self.is_query else self._dmon(line))

    def _query(self, line: str) -> Iterator[Reading]:
        cells = dict(zip(self.columns, (cell.strip() for cell in line.split(",")), strict=False))
        time = _time(cells.get("timestamp", ""), "%Y/%m/%d %H:%M:%S.%f")
        gpu = cells.get("index") or cells.get("uuid") or cells.get("pci.bus_id") or "0"
        yield from _readings(time, gpu, cells, QUERY)

    def _dmon(self, line: str) -> Iterator[Reading]:
        cells = dict(zip(self.columns, line.split(), strict=False))
        time = _time(f"{cells.get('Date', '')} {cells.get('Time', '')}", "%Y%m%d %H:%M:%S")
        yield from _readings(time, cells.get("gpu", "0"), cells, DMON)


def _readings(time: datetime | None, gpu: str, cells: dict[str, str], names: dict[str, tuple[str, float]]) -> Iterator[Reading]:
    for column, text in cells.items():
        name, scale = names.get(column, ("", 0.0))
        number = NUMBER.match(text) if name and text not in NO_READING else None
        value = real(number[0]) if number else None
        if time is not None and value is not None:
            yield time, gpu, name, value * scale


def _time(text: str, pattern: str) -> datetime | None:
    try:
        return datetime.strptime(text.strip(), pattern).replace(tzinfo=UTC)
    except ValueError:
        return None


def parse(source: Source, sink: Sink) -> Account:
    """Read one file."""
    account, samples, reader = Account(), Samples(source.name, sink), _Reader()
    series: dict[tuple[str, str], int] = {}
    with account.kept_to_the_fault(), source.open() as stream:
        for raw in stream:
            account.lines += 1
            line = raw.decode("utf-8", "replace").strip()
            readings = reader.read(line) if line else None
            if readings is None:
                account.ignored += 1
                continue
            for time, gpu, name, value in readings:
                micro = round(time.timestamp() * 1e6)
                if (gpu, name) not in series:
                    series[gpu, name] = samples.describe(name, {"gpu": gpu}, account.lines, micro)
                samples.add(series[gpu, name], value, micro)
            if readings:
                account.used += 1
            else:
                account.misread(account.lines)
    samples.flush()
    return account


def detect(head: bytes) -> float:
    """A header of either."""
    lines = head.decode("utf-8", "replace").splitlines()[:20]
    return 0.95 if any(QUERY_HEADER.match(line.strip()) or DMON_HEADER.match(line.strip()) for line in lines) else 0.0


FORMAT = Format(
    name="nvidia_smi",
    title="nvidia-smi: --query-gpu --format=csv, dmon -o DT",
    engine_kind=None,
    versions="drivers 450 to 600",
    can_tell="how busy each GPU was, its power and its clocks, to lay beside the tokens it worked for",
    cannot_tell="what the GPU was busy with; KV pressure; which engine a GPU served",
    tables=("metric_samples",),
    detect=detect,
    parse=parse,
)
