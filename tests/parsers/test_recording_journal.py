"""The recorder's own account, and the parts it cuts its files into."""

import gzip

from reading import cells, read, read_any

from parsers import Source
from parsers.recording_journal import FORMAT
from parsers.rotated import base_of, joined

JOURNAL = """\
{"recorder":"kvpressure 0.1.0","at":1795957926.692,"event":"started","detail":"the log"}
{"recorder":"kvpressure 0.1.0","at":1795958031.1,"event":"scrapes_missed","subject":"http://a/metrics","since":1795958021.1,"count":9}
"""


def test_each_event_is_a_row_with_what_is_missing_since_when():
    form, result = read_any(JOURNAL)
    assert form.name == "recording_journal"
    assert result.table("recordings", "line at_utc event subject since_utc count detail") == [
        ["1", "2026-11-29T13:12:06.692", "started", "-", "-", "-", "the log"],
        ["2", "2026-11-29T13:13:51.1", "scrapes_missed", "http://a/metrics", "2026-11-29T13:13:41.1", "9", "-"],
    ]


def test_a_line_that_is_no_event_is_not_understood():
    page = JOURNAL + '{"recorder":"kvpressure 0.1.0","at":"noon","event":"started"}\n{"recorder":"kvpressure 0.1.0","at":17\n'
    assert read(FORMAT, page).account.not_understood == 2


def test_the_parts_of_a_recording_are_read_as_one_from_the_first_on(tmp_path):
    for number in (2, 10, 1):
        (tmp_path / f"metrics.txt.part-{number:06}.gz").write_bytes(gzip.compress(f"{number}\n".encode()))
    (tmp_path / "metrics.txt").write_text("11\n")
    [whole] = joined([Source(path, path.name.removesuffix(".gz")) for path in sorted(tmp_path.iterdir())])
    with whole.open() as stream:
        assert (whole.name, stream.read().split()) == ("metrics.txt", [b"1", b"2", b"10", b"11"])


def test_what_is_a_part_is_told_by_its_name_alone():
    names = "server.log.1 server.log-20261129 metrics.txt.part-000001 metrics.txt.1 server.log.errors part-000001"
    assert [[base_of(name) or "-"] for name in names.split()] == cells("server.log\nserver.log\nmetrics.txt\n-\n-\n-")
