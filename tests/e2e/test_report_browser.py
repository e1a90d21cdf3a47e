"""The report in a real browser: it draws, links, zooms, reads well to machines, and lets no input run anything.

Needs a Chromium (`apt-get install chromium`) and the `playwright` package, which only drives it; skipped where either is missing.
The accessibility rules are those of axe-core, which a package of the development group carries.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import date
from importlib.resources import files
from io import BytesIO
from itertools import pairwise
from pathlib import Path

import pytest

from pipelines import compare, compare_words, fleet_report
from pipelines.report import FIGURES, write_report
from tests import synthetic
from tests.chromium import CHROMIUM, LACKING, launch
from tests.pipelines import test_compare as compared

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser: pip install playwright")
AXE = files("axe_playwright_python") / "axe.min.js"
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=LACKING)

PHONE, DESKTOP = 390, 1280


@dataclass
class Opened:
    """A page that is drawn to its end, and what it did meanwhile that it should not."""

    page: sync_api.Page
    complaints: list[str] = field(default_factory=list)

    def ask(self, script: str, *args):
        return self.page.evaluate(script, *args)

    def until(self, script: str) -> None:
        """Wait for a script to be true; the page's policy forbids the driver's own way, which evaluates a text in the page."""
        for _ in range(200):
            if self.ask(script):
                return
            self.page.wait_for_timeout(50)
        raise AssertionError(script)


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


@pytest.fixture
def show(browser):
    """Open a report; when the test ends, the page has complained of nothing and asked nobody for anything."""
    opened: list[Opened] = []

    def show(html: Path, *, width: int = DESKTOP, theme: str = "light") -> Opened:
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)
        shown = Opened(page)
        opened.append(shown)
        page.on("console", lambda message: shown.complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: shown.complaints.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (shown.complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: shown.complaints.append(request.url) if request.url != html.as_uri() else None)
        page.goto(html.as_uri())
        page.wait_for_selector("body[data-drawn]" if page.query_selector("[data-chart]") else "footer", timeout=60_000)
        return shown

    yield show
    for each in opened:
        each.page.wait_for_timeout(50)
        assert each.complaints == []
        each.page.close()


def reported(analysis: Path) -> Path:
    """The page of an analysis, beside it."""
    write_report(analysis, page := analysis.with_name("report.html"))
    return page


@pytest.fixture
def html(shared) -> Path:
    return shared.once("page", lambda folder: reported(synthetic.analysis(folder, engines=("0", "1"))))


def hard_to_write_on(folder: Path) -> Path:
    """A run that is hard to write on: long names, millions of tokens, pauses of minutes and of milliseconds, every queue."""
    database = synthetic.analysis(
        folder,
        engines=tuple(f"inference-gateway-{number:02}.eu-west.example:8000/0" for number in range(3)),
        file="results/of-a-benchmark-with-a-long-name.json",
        afterwards="""
            alter table queue_time alter seconds type double;
            alter table queue_time alter request_seconds type double;
            update waste set tokens_low = 1000 * tokens_low, tokens_best = 1000 * tokens_best, tokens_high = 1000 * tokens_high;
            update stalls set duration_s = duration_s * case when request_index % 2 = 0 then 400 else 0.01 end;
            update timeline set generation_tokens_per_s = 12345678, waiting = 4321, preemptions = 0;
            insert into queue_time by name select run, engine, unnest(['max_num_seqs', 'token_budget', 'deferred', 'unknown'])
                as cause, 86400 as seconds, 1e6 as request_seconds from queue_time limit 4;
        """,
    )
    return reported(database)


@pytest.fixture
def hard(shared) -> Path:
    return shared.once("hard-page", hard_to_write_on)


@pytest.fixture
def hostile(shared) -> Path:
    return shared.once("hostile-page", lambda folder: reported(synthetic.everything_hostile(folder)))


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_every_chart_draws_within_the_page_in_both_themes(show, html, width, theme):
    shown = show(html, width=width, theme=theme)
    sizes = shown.ask("[...document.querySelectorAll('[data-chart] svg')].map(svg => [svg.clientWidth, svg.clientHeight])")
    assert len(sizes) == shown.ask("document.querySelectorAll('[data-chart]').length") == len(FIGURES)
    assert all(0 < wide <= width and high > 40 for wide, high in sizes)
    assert shown.ask("document.documentElement.scrollWidth") <= width, "nothing to scroll sideways"
    assert shown.ask(MISPLACED) == [], "no label is cut, or over another"


@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_what_is_hard_to_write_on_has_no_label_cut_or_over_another_either(show, hard, width):
    shown = show(hard, width=width)
    assert shown.ask(MISPLACED) == []
    assert shown.ask("document.documentElement.scrollWidth") <= width
    words = shown.ask("document.body.innerText")
    assert (
        re.findall(r"\b(?:NaN|null|undefined|Infinity|nan)\b|\de[+-]\d|(?<![\d.,])1 (?:requests|rows|pauses|windows)\b", words)
        == []
    )


MISPLACED = """
    [...document.querySelectorAll('[data-chart]')].flatMap(chart => {
        const box = chart.getBoundingClientRect();
        const texts = [...chart.querySelectorAll('svg text')].filter(text => {
            const isSeen = getComputedStyle(text).opacity !== '0' && text.textContent.trim();
            return isSeen && text.getBoundingClientRect().width;
        }).map(text => [text.textContent, text.getBoundingClientRect()]);
        const outside = texts.filter(([, mine]) =>
            mine.left < box.left - 1 || mine.right > box.right + 1 || mine.top < box.top - 1 || mine.bottom > box.bottom + 1);
        const over = texts.flatMap(([text, mine], place) => texts.slice(place + 1).filter(([, other]) =>
            Math.min(mine.right, other.right) - Math.max(mine.left, other.left) > 1 &&
            Math.min(mine.bottom, other.bottom) - Math.max(mine.top, other.top) > 3
        ).map(([other]) => `${text} | ${other}`));
        const svg = chart.querySelector('svg');
        const shrunk = svg.viewBox.baseVal.width > chart.clientWidth + 1 ? ['wider than the page, and shrunk'] : [];
        return [...shrunk, ...outside.map(([text]) => text), ...over].map(text => `${chart.dataset.chart}: ${text}`);
    })
"""


def test_what_a_run_does_not_have_is_drawn_without_a_complaint(show, tmp_path):
    """`show` looks at the console: a scale over nothing complains there."""
    without = """
        update sweep_knee set knee_level = null, cache_limit_low = null, cache_limit_high = null;
        update timeline set kv_usage_ratio = null, prefix_hit_ratio = null, preemptions = null, queue_p99_s = null;
    """
    write_report(synthetic.analysis(tmp_path, engines=("0",), afterwards=without), tmp_path / "report.html")
    shown = show(tmp_path / "report.html")
    assert shown.ask("document.querySelectorAll('[data-chart=sweep] svg').length") == 1


def test_hostile_text_is_shown_and_runs_nothing(show, hostile):
    shown = show(hostile)
    assert "owned" not in shown.page.title().split("run </script>")[0]
    assert shown.page.title().startswith("Preemption · run </script>")
    assert shown.ask("document.images.length") == 0
    assert shown.ask("document.querySelectorAll('main script, header script, svg script, svg image').length") == 0
    assert synthetic.HOSTILE.split("\u2028")[0] in shown.ask("document.querySelector('.run strong').textContent")
    lanes = shown.ask("document.querySelector('#chart-lanes svg').textContent")
    assert "</script>" in lanes, "names stand in charts as text"
    shown.page.hover("#chart-pauses svg .mark-symbol path >> nth=0", force=True)
    shown.until("document.querySelector('#vg-tooltip-element.visible')?.textContent.includes('onerror')")
    assert shown.ask("document.images.length") == 0
    for button in shown.page.query_selector_all("[data-from]")[:4]:
        button.click()


def test_an_injected_script_would_not_run_either(show, html):
    shown = show(html)
    ran = shown.ask("""() => {
        const script = document.createElement('script');
        script.textContent = 'window.injected = true';
        document.body.append(script);
        return Boolean(window.injected);
    }""")
    assert not ran
    assert len(shown.complaints) == 1
    assert "Content Security Policy" in shown.complaints.pop()


def shown_window(shown: Opened) -> str:
    return shown.ask("document.getElementById('shown').textContent")


def points(shown: Opened) -> int:
    """Points of the chart of pauses inside its plot."""
    return shown.ask("""() => {
        const plot = document.querySelector('#chart-pauses .background').getBoundingClientRect();
        return [...document.querySelectorAll('#chart-pauses .mark-symbol path')].filter(point => {
            const box = point.getBoundingClientRect(), middle = (box.left + box.right) / 2;
            return middle >= plot.left && middle <= plot.right;
        }).length;
    }""")


def test_brushing_a_panel_zooms_the_timeline_and_the_charts_linked_to_it(show, html):
    shown = show(html)
    assert shown_window(shown) == "13:08:00 to 13:13:00 UTC"
    before = points(shown)
    shown.ask("document.getElementById('chart-timeline').scrollIntoView({ behavior: 'instant' })")
    box = shown.page.locator("#chart-timeline").bounding_box()
    panel = shown.page.locator("#chart-timeline .mark-area path").first.bounding_box()
    y = panel["y"] + panel["height"] / 2
    shown.page.mouse.move(box["x"] + 0.35 * box["width"], y)
    shown.page.mouse.down()
    shown.page.mouse.move(box["x"] + 0.45 * box["width"], y, steps=6)
    shown.page.mouse.up()
    shown.until("document.getElementById('shown').textContent !== '13:08:00 to 13:13:00 UTC'")
    start, end = shown_window(shown)[:8], shown_window(shown)[12:20]
    assert "13:09:00" < start < end < "13:10:40"
    shown.page.wait_for_timeout(800)
    assert 0 < points(shown) < before
    shown.page.click("text=Whole run")
    shown.page.wait_for_timeout(800)
    assert shown_window(shown) == "13:08:00 to 13:13:00 UTC"
    assert points(shown) == before


def test_keyboard_and_links_reach_every_window(show, html):
    shown = show(html)
    shown.page.focus("[data-zoom=in]")
    shown.page.keyboard.press("Enter")
    shown.page.wait_for_timeout(500)
    assert shown_window(shown) == "13:09:15 to 13:11:45 UTC"
    shown.page.click(".also [data-from] >> nth=0")
    shown.page.wait_for_timeout(500)
    assert shown_window(shown).startswith("13:08:5")
    shown.page.select_option("#engine", "1")
    shown.page.wait_for_timeout(500)
    dead = shown.ask(
        "[...document.querySelectorAll('a')].filter(a => !document.getElementById(a.hash.slice(1))).map(a => a.outerHTML)"
    )
    assert dead == []


def test_the_theme_button_swaps_the_tones_of_page_and_charts(show, html):
    shown = show(html)
    bar = "document.querySelector('#chart-waste .mark-rect path').getAttribute('fill').toUpperCase()"
    paper = "getComputedStyle(document.body).backgroundColor"
    assert (shown.ask(bar), shown.ask(paper)) == ("#C0569A", "rgb(255, 255, 255)")
    shown.page.click("#theme")
    shown.until(f"{bar} === '#D98ABA'")
    assert shown.ask(paper) == "rgb(20, 23, 26)"
    shown.page.emulate_media(media="print")
    assert shown.ask(paper) == "rgb(255, 255, 255)", "paper is white"


def test_headings_landmarks_and_names_are_there_for_those_who_listen(show, html):
    shown = show(html)
    levels = shown.ask("[...document.querySelectorAll('h1,h2,h3')].map(h => +h.tagName[1])")
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert shown.ask("['header', 'nav', 'main', 'footer'].every(name => document.querySelectorAll(name).length >= 1)")
    labels = shown.ask("[...document.querySelectorAll('[data-chart]')].map(chart => chart.getAttribute('aria-label'))")
    assert all(label.startswith("Chart. ") and len(label) > 40 for label in labels)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_axe_finds_no_violation(show, html, width, theme):
    shown = show(html, width=width, theme=theme)
    shown.ask("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    shown.ask(AXE.read_text(encoding="utf-8"))
    found = shown.ask("axe.run().then(result => result.violations.map(v => v.id + ': ' + v.nodes.map(n => n.html).join(' ')))")
    assert found == []


@pytest.fixture
def fleet_page(tmp_path, fleet) -> Path:
    fleet.given(
        "fleet.engine_days",
        """
        day         run                             engine  verdict             severity  wasted_gpu_seconds_low  wasted_gpu_seconds_best  wasted_gpu_seconds_high  recomputed_tokens_best  recompute_share_best  preemptions_best  pressure_hours
        2026-01-01  gateway-00.eu-west.example:800  0       queue_token_budget  80        11000                   12345                    15000                    123456789               0.123                 12345             23.5
        2026-01-01  gateway-01.eu-west.example:800  0       healthy             0         0                       0                        0                        -                       -                     -                 -
        """,  # noqa: E501 - a table
    )
    fleet.rows("fleet.totals")
    fleet.con.execute(
        "create or replace table fleet.episodes as select 1 as position, run, engine, verdict, severity, "
        "timestamptz '2026-01-01 09:00:00+00' as window_start, timestamptz '2026-01-01 09:01:00+00' as window_end, "
        "'152 preemptions in 32 s: running requests lost their KV blocks because the pool was full.' as summary "
        "from fleet.engine_days where severity > 0"
    )
    unheld = [("preemptions_per_hour", [f"gateway-{each:02}.eu-west.example:800" for each in range(30)])]
    page = fleet_report.page(fleet.con, date(2026, 1, 1), unheld=unheld)
    (tmp_path / "fleet.html").write_text(page, encoding="utf-8")
    return tmp_path / "fleet.html"


@pytest.fixture
def comparison_page(tmp_path) -> Path:
    found = compare.compare(compared.side(preemptions=149), compared.side(preemptions=0, seqs="9", wait_s=0.9))
    (tmp_path / "compare.html").write_text(compare_words.page(found), encoding="utf-8")
    return tmp_path / "compare.html"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("which", ["fleet_page", "comparison_page"])
def test_the_pages_without_charts_fit_a_phone_and_read_well_to_machines(show, request, which, theme):
    shown = show(request.getfixturevalue(which), width=PHONE, theme=theme)
    assert shown.ask("document.documentElement.scrollWidth") <= PHONE
    assert shown.ask("Math.max(...[...document.querySelectorAll('tr')].map(row => row.clientHeight))") < 120, "no row is a tower"
    shown.ask(AXE.read_text(encoding="utf-8"))
    assert (
        shown.ask("axe.run().then(result => result.violations.map(v => v.id + ': ' + v.nodes.map(n => n.html).join(' ')))") == []
    )


def test_no_table_of_the_fleets_page_goes_beyond_a_screen(show, fleet_page):
    shown = show(fleet_page, width=1400)
    wide = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth).map(e => e.ariaLabel)"
    assert shown.ask(wide) == []


@pytest.fixture
def hundred(shared) -> Path:
    """The page of a day of a hundred engines."""
    return shared.once(
        "page-of-a-hundred",
        lambda folder: reported(synthetic.analysis(folder, engines=synthetic.HUNDRED, afterwards=synthetic.A_DAY)),
    )


@pytest.mark.parametrize("which", ["html", "hundred"])
def test_charts_are_drawn_from_the_top_of_the_page_and_each_lets_the_reader_in_between(show, request, which):
    """How soon the first is there is measured by `tests/benchmarks/bench_report.py`."""
    shown = show(request.getfixturevalue(which))
    drawn = shown.ask("[...document.querySelectorAll('[data-chart]')].map(chart => Number(chart.dataset.drawn))")
    assert len(drawn) > 1
    assert drawn == sorted(drawn)
    assert drawn[0] < drawn[-1]


def test_a_click_on_an_engine_s_strip_shows_that_engine(show, html):
    shown = show(html)
    assert shown.ask("document.getElementById('engine').value") == "0"
    shown.ask("document.getElementById('chart-engines').scrollIntoView({ behavior: 'instant', block: 'center' })")
    box = shown.page.locator("#chart-engines .role-frame.background, #chart-engines .background").first.bounding_box()
    shown.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 0.7 * box["height"])  # the second of two strips
    shown.until("document.getElementById('engine').value === '1'")


NO_WINDOWS = [
    ("99:99", "13:10:00", "99:99 is no time of day; type one such as 13:08:00"),
    ("", "13:10:00", "Nothing is no time of day; type one such as 13:08:00"),
    ("13:20:00", "13:10:00", "13:20:00 is outside of the run, which is 13:08:00 to 13:13:00 UTC"),
    ("13:10:30", "13:09:40", "13:09:40 is not after 13:10:30"),
]


def test_two_times_that_are_no_window_of_the_run_are_said_to_be_and_change_nothing(show, html):
    shown = show(html)
    shown.page.fill("#from", "13:09:20")
    shown.page.fill("#to", "13:10:00")
    shown.page.keyboard.press("Tab")
    shown.until("document.getElementById('shown').textContent === '13:09:20 to 13:10:00 UTC'")
    drawn = points(shown)
    for begin, end, said in NO_WINDOWS:
        shown.page.fill("#from", begin)
        shown.page.fill("#to", end)
        shown.page.keyboard.press("Tab")
        shown.page.wait_for_timeout(50)
        assert shown_window(shown) == said
        assert points(shown) == drawn
    shown.page.click("[data-zoom=later]")
    shown.until("document.getElementById('shown').textContent === '13:09:40 to 13:10:20 UTC'")


def test_a_table_that_goes_on_beyond_the_edge_of_a_phone_is_shaded_there_until_its_end(show, html):
    shown = show(html, width=PHONE)
    image_of = pytest.importorskip("PIL.Image").open
    index = shown.ask("[...document.querySelectorAll('.scroll')].findIndex(each => each.scrollWidth > each.clientWidth + 40)")
    assert index >= 0
    place = shown.page.locator(".scroll").nth(index)
    place.scroll_into_view_if_needed()

    def edge() -> int:
        """How light most of the last column of pixels is, of 255."""
        image = image_of(BytesIO(place.screenshot())).convert("L")
        column = sorted(image.crop((image.width - 2, 0, image.width - 1, image.height)).tobytes())
        return column[len(column) // 2]

    shaded = edge()
    place.evaluate("element => element.scrollLeft = element.scrollWidth")
    assert shaded < edge() - 20


def test_two_times_typed_list_the_requests_that_paused_between_them_and_why(show, html):
    shown = show(html)
    shown.page.fill("#from", "13:09:20")
    shown.page.fill("#to", "13:10:00")
    shown.page.keyboard.press("Tab")
    shown.until("document.getElementById('shown').textContent === '13:09:20 to 13:10:00 UTC'")
    summary = shown.ask("document.querySelector('#pauses-listed summary').textContent")
    rows = shown.ask(
        "[...document.querySelectorAll('#pauses-listed tbody tr')].map(row => [...row.cells].map(cell => cell.textContent))"
    )
    assert summary == f"{len(rows)} pauses in {len({row[0] for row in rows})} requests from 13:09:20 to 13:10:00 UTC"
    assert 2 < len(rows) < 20
    assert all("13:09:00" < began < "13:10:00" for _, began, *_ in rows)
    assert {cause for *_, cause, _ in rows} <= {"Preemption", "Prefill interference", "Cause not told"}
    shown.page.click("text=Whole run")
    shown.until("document.querySelector('#pauses-listed summary').textContent === 'The 15 longest pauses'")
