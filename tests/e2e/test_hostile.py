"""Names in inputs are an outsider's: whatever a model, a request, a label or a file is called, nothing that shows it runs it."""

from __future__ import annotations

import csv
import io
import re
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from pipelines import cli

SCRIPT = "<script>window.hacked=1</script><img src=x onerror=window.hacked=1>"
ESCAPE = "\x1b]0;hacked\x07\x1b[2J"
FORMULA = '=HYPERLINK("http://hacked","x")'
SQL = "'; drop table verdicts; --"
MARKDOWN = "[click](javascript:hacked) `x` | y"
NAMES = (SCRIPT, ESCAPE, FORMULA, SQL, MARKDOWN)


def run(*arguments: object) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = cli.main([str(each) for each in arguments])
    return code, out.getvalue(), err.getvalue()


def with_hostile_names(folder: Path) -> tuple[Path, str]:
    """A metrics page and a log in which every name is hostile; also those of the files, as far as a file system goes."""
    (folder / "in").mkdir()
    label = ",".join(f'l{i}="{name}"' for i, name in enumerate(NAMES)).replace(FORMULA, FORMULA.replace('"', r"\""))
    pages = []
    for second in range(0, 120, 5):
        pages.append(f"# scrape_unix_ms {1795957591000 + second * 1000}")
        for name in NAMES:
            model = name.replace('"', r"\"")
            for metric, value in (("num_requests_running", 3), ("num_requests_waiting", 2), ("kv_cache_usage_perc", 0.97)):
                pages.append(f'vllm:{metric}{{engine="{model}",model_name="{model}",{label}}} {value}')
            pages.append(f'vllm:num_preemptions_total{{engine="{model}",model_name="{model}"}} {second}')
    (folder / "in" / "=cmd<img src=x onerror=hacked>\x1b[2J.txt").write_text("\n".join(pages) + "\n")
    stats = "Avg prompt throughput: 10.0 tokens/s, Running: 3 reqs, Waiting: 1 reqs, GPU KV cache usage: 92.1%"
    log = [f"INFO 11-29 13:06:{s:02} [loggers.py:118] Engine 000: {stats}" for s in range(40)]
    log += [f"INFO 11-29 13:06:41 [request_logger.py:65] Received request {name}: prompt: 'x'" for name in NAMES]
    log += [f"non-default args: {{'model': '{SCRIPT}', 'served_model_name': '{ESCAPE}'}}"]
    (folder / "in" / "-server'; drop table x; --.log").write_text("\n".join(log) + "\n")
    (folder / "in" / "@sum(1+1)|x`.json").write_text(f"{SCRIPT}{ESCAPE}\n")
    code, out, err = run("analyze", folder / "in", "--out", folder / "out", "--name", SCRIPT)
    assert code == 0, err
    return folder / "out", out + err


@pytest.fixture
def analysis(shared):
    return shared.once("hostile", with_hostile_names)


def test_nothing_steers_the_terminal(analysis):
    out, printed = analysis
    code, table, err = run("sql", out, "select * from engines")
    assert code == 0, err
    for text in (printed, table, run("parse", out.parent / "in", "--out", out.parent / "parsed")[1]):
        assert re.sub(r"[\n]", "", text).isprintable(), [each for each in text if not each.isprintable()][:9]


def test_the_report_has_the_names_as_text_alone(analysis):
    page = (analysis[0] / "report.html").read_text(encoding="utf-8")
    assert "window.hacked" in page  # it is shown
    assert "<script>window.hacked" not in page
    assert not re.search(r"<img[^>]*onerror", page)


def test_the_ticket_has_no_link_no_tag_and_no_row_of_its_own(analysis):
    ticket = (analysis[0] / "summary.md").read_text(encoding="utf-8")
    assert "\x1b" not in ticket
    assert not re.search(r"(?<!\\)<(?:script|img)", ticket)
    assert not re.search(r"(?<!\\)\[click(?<!\\)\]\(javascript", ticket)


def test_a_spreadsheet_finds_no_formula(analysis):
    code, text, _ = run("sql", analysis[0], "select source, path, error from sources", "--format", "csv")
    assert code == 0
    rows = list(csv.reader(io.StringIO(text)))
    assert len(rows) >= 4
    assert not [cell for row in rows for cell in row if cell.startswith(("=", "+", "-", "@"))]


def test_nothing_is_written_beside_the_output_and_no_table_is_lost(analysis):
    out, _ = analysis
    assert {path.name for path in out.parent.iterdir()} <= {"in", "out", "parsed"}
    code, text, _ = run("sql", out, "select count(*) as n from verdicts", "--format", "csv")
    assert (code, text.split()[1] != "0") == (0, True)


@pytest.mark.parametrize("name", ["../../up", "..", "/etc/x", "a/b", ".", "run=1/../.."])
def test_no_name_of_a_run_leads_out_of_the_folder(tmp_path, name):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "m.txt").write_text("vllm:num_requests_running 3\n")
    from pipelines.lake import Lake  # noqa: PLC0415

    lake = Lake.of(tmp_path / "lake", run=name)
    assert lake.path("raw.sources").resolve().is_relative_to(tmp_path / "lake" / "raw" / "sources")
