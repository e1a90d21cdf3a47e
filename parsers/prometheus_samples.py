"""Prometheus samples on their way to the tables: a series is described once, and each sample is its index, value and time.

Shared by the text and the JSON reader. Memory is bounded by one batch of samples and by the distinct series.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from dataclasses import fields

import pyarrow as pa

from parsers.columns import COLUMNS
from parsers.prometheus_names import Series, config, identity
from parsers.source import Sink

BATCH_ROWS = 100_000
_IDENTITY = tuple(each.name for each in fields(Series))


class Samples:
    """Collects samples of one source and writes them in batches. `flush` at the end."""

    def __init__(self, source: str, sink: Sink) -> None:
        self._source, self._sink = source, sink
        self._series: list[Series] = []
        self._configs: set[tuple[object, ...]] = set()
        self._start_batch()

    def _start_batch(self) -> None:
        self._indices, self._values = array("i"), array("d")
        self._times: list[int | None] = []

    def describe(self, name: str, labels: Mapping[str, str], line: int, time: int | None) -> int:
        """The index of a new series. Settings it carries as labels are written, once for each set of values."""
        series = identity(name, labels)
        settings = config(name, labels)
        config_of = (series.engine, series.instance, *sorted(settings.items()))
        if settings and config_of not in self._configs:
            self._configs.add(config_of)
            where = {"source": self._source, "line": line, "at_utc": time, "instance": series.instance, "engine": series.engine}
            self._sink.write_rows("engine_config", [{**where, "key": key, "value_text": text} for key, text in settings.items()])
        self._series.append(series)
        return len(self._series) - 1

    def add(self, index: int, value: float, time: int | None) -> None:
        """One sample, its time in microseconds. NaN is how an exporter says that it has no value, and is dropped."""
        if math.isnan(value):
            return
        self._indices.append(index)
        self._values.append(value)
        self._times.append(time)
        if len(self._times) >= BATCH_ROWS:
            self.flush()

    def add_page(self, indices: array[int], values: array[float], time: int | None) -> None:
        """The samples of one scrape, none of them NaN."""
        self._indices.extend(indices)
        self._values.extend(values)
        self._times.extend([time] * len(values))
        if len(self._times) >= BATCH_ROWS:
            self.flush()

    def drop_last(self) -> bool:
        """Take the last sample back; False where it has been written."""
        if not self._times:
            return False
        for column in (self._indices, self._values, self._times):
            column.pop()
        return True

    def flush(self) -> None:
        """Write what has been collected."""
        count = len(self._times)
        if count == 0:
            return
        indices = pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(self._indices)])
        columns = {column: self._each(column, indices) for column in _IDENTITY}
        columns["source"] = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), count), [self._source])
        columns["at_utc"] = pa.array(self._times, COLUMNS["at_utc"].type)
        columns["value"] = pa.Array.from_buffers(pa.float64(), count, [None, pa.py_buffer(self._values)])
        self._sink.write("metric_samples", pa.RecordBatch.from_pydict(columns))
        self._start_batch()

    def _each(self, column: str, indices: pa.Array) -> pa.Array:
        """A column of the series' identity, for each of the samples; texts as a dictionary, for they repeat with every scrape."""
        of_series = pa.array([getattr(each, column) for each in self._series], COLUMNS[column].type)
        if COLUMNS[column].type != pa.string():
            return of_series.take(indices)
        texts = of_series.dictionary_encode()
        return pa.DictionaryArray.from_arrays(texts.indices.take(indices), texts.dictionary)

    def forget(self) -> None:
        """Write what has been collected and drop all series, whose indices are then void."""
        self.flush()
        self._series.clear()
        self._configs.clear()
