"""Which contents a day of an engine is made of, and their rows as the raw tables of one run.

A content covers a day where one of its times lies in it, or in the quarter of an hour before. An earlier log that states the
engine's settings is taken for these alone. Rows after the day are left out, so a file that grows changes no day that is over.
Parts of a rotated log are one source, its lines counted through. A file without times is of the day its path names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from parsers import InputError, Sink
from parsers.columns import TABLES
from pipelines import fetched, intake
from pipelines.config import Config, Engine
from pipelines.contents import LOCAL_REACH, Content, Contents, bare_name
from pipelines.duck import connect, literal
from pipelines.lake import Lake
from pipelines.partition import INPUT, SETTINGS, Manifest, Used
from pipelines.patterns import Found
from pipelines.storage import Store

REACH = timedelta(seconds=900)  # before the day: the scrape that its first counters are told from (sql/lib/times.sql)
SETTINGS_DAYS = 35  # how far back a log with the engine's settings is looked for

ROWS_AT_A_TIME = 1 << 17

Roles = dict[str, str]  # hash of a content -> what it is to the day


@dataclass(frozen=True)
class Window:
    """A day of an engine: from midnight to midnight, and the zone of the stamps that name none."""

    since: datetime
    until: datetime
    zone: str | None

    @classmethod
    def of(cls, config: Config, engine: Engine, day: date) -> Window:
        """The window of a day."""
        return cls(*config.window(day), engine.settings.timezone)

    def holds(self, content: Content) -> bool:
        """Whether something of the content lies in the day itself; a clock of no known zone is taken for UTC here."""
        return content.covers(self.since, self.until, self.zone or "UTC")

    def reaches(self, content: Content) -> bool:
        """Whether something of it lies in the day or shortly before."""
        return content.covers(self.since - REACH, self.until, self.zone)

    def edges(self, content: Content) -> tuple[datetime, datetime] | None:
        """First and last time of a content; None where it has none."""
        spans = content.spans(self.until, self.zone)
        return (min(first for first, _ in spans), max(last for _, last in spans)) if spans else None


# which contents


def choose(config: Config, engine: Engine, day: date, contents: Contents) -> Roles:
    """The contents of the files that are there which the day is made of; none where no file covers the day itself."""
    around, window = (day - timedelta(days=1), day, day + timedelta(days=1)), Window.of(config, engine, day)
    files = [*engine.files(around), *fetched.found(config, engine, around)]
    learned = contents.learn(files)
    named = {contents.digest_of(each) for each in files if each.day == day}
    untimed = {digest for digest, each in learned.items() if digest in named and each.format and not each.is_timed}
    inside = {digest for digest, each in learned.items() if window.reaches(each)} | untimed
    inside -= {part for digest in inside for part in learned[digest].extends}
    if not untimed and not any(window.holds(learned[digest]) for digest in inside):
        return {}
    roles = dict.fromkeys(sorted(inside), INPUT)
    if settings := _latest_settings(learned.values(), window) or _earlier_settings(engine, day, window, contents):
        roles.setdefault(settings.digest, SETTINGS)
    return roles


@dataclass(frozen=True)
class Lack:
    """What is to be told of a day's files: in one sentence, which is the same for a whole fleet."""

    how: str = ""
    is_fault: bool = False  # there are files, and none of the day can be read
    is_of_day: bool = True  # rather than of any that the lake does not have


def unread(engine: Engine, day: date, contents: Contents, before: Manifest | None, *, has_others: bool) -> Lack:
    """What cannot be read of the files that the day was made of `before`, or that may be of it; nothing where all can.

    A file that is no log any more is told whenever the day is looked at. One that is empty by now is as one that is gone: so is a
    log that was just rotated.
    """
    files = engine.files((day,))
    faults = [(each, fault) for each in files if (fault := contents.fault(each))]
    replaced = _replaced(before, files, contents) if before else set()
    lost = [fault for each, fault in faults if bare_name(Path(each.name).name) in replaced and _is_something_else(each, contents)]
    if lost:
        return Lack(f"what was read of it before is kept, but it cannot be read any more: {_first(lost)}", not has_others)
    closed = [refused(folder) for folder in engine.closed((day,))]
    unopened = closed + [fault for each, fault in faults if contents.digest_of(each) is None]
    if has_others or before:
        return Lack(f"beside what is read, there is what cannot be: {_first(unopened)}" if unopened else "", is_of_day=False)
    of_day = [fault for each, fault in faults if each.day == day]
    if of_day or (faults and len(faults) == len(files)):
        told = of_day or [fault for _, fault in faults]
        whose = "its one file cannot" if len(told) == 1 else f"none of its {len(told)} files can"
        return Lack(f"{whose} be read: {_first(told)}", True, bool(of_day))
    if closed and not files:
        return Lack(_first(closed), is_fault=True, is_of_day=False)
    if unopened:
        others = f"what can be read of {', '.join(engine.settings.paths)} tells nothing of this day"
        return Lack(f"{others}, and there is what cannot be: {_first(unopened)}", is_fault=True, is_of_day=False)
    return Lack()


def refused(folder: str) -> str:
    """What is told of a folder that may not be looked into."""
    return f"{folder} cannot be looked into (Permission denied); check its permissions"


def _replaced(done: Manifest, files: Iterable[Found], contents: Contents) -> set[str]:
    """Names of what a day was made of and no file has any more, also not as its beginning."""
    here = {digest for each in files if (digest := contents.digest_of(each))}
    here |= {part for digest in here for part in _known(contents, digest).extends}
    return {used.name for used in done.inputs if used.role == INPUT and used.content not in here}


def _is_something_else(found: Found, contents: Contents) -> bool:
    """Whether a file is no log, or cannot be opened, so that nobody knows."""
    digest = contents.digest_of(found)
    content = _known(contents, digest) if digest else None
    return content is None or (content.format is None and content.bytes > 0)


def _first(faults: list[str]) -> str:
    return f"{faults[0]} (and {len(faults) - 1} more)" if len(faults) > 1 else faults[0]


def lack(engine: Engine, day: date) -> str:
    """Why a day has no input: what was looked for and what to look at, in one sentence that is the same for a whole fleet."""
    settings = engine.settings
    paths = ", ".join(settings.paths)
    if engine.files((day,)):
        return f"what matches {paths} tells nothing of this day; check that it is still written, and the `timezone` of its stamps"
    server = f"the Prometheus server has nothing of {settings.selector or 'it'}" if settings.prometheus else ""
    nowhere = f"no file matches {paths}" if paths else ""
    what = " and ".join(filter(None, (nowhere, server)))
    return (
        f"{what}; check {'the paths' if paths else '`selector`'} in the configuration, and that the engine's data still arrives"
    )


def _latest_settings(learned: Iterable[Content], window: Window) -> Content | None:
    """The last log before the day's reach that states settings; metrics state theirs with each scrape."""
    logs = [each for each in learned if each.is_log and each.rows.get("engine_config")]
    said = [each for each in logs if each.ends_before(window.since - REACH, window.zone)]
    return max(said, key=lambda each: (window.edges(each) or (window.since,))[-1], default=None)


def _earlier_settings(engine: Engine, day: date, window: Window, contents: Contents) -> Content | None:
    """The same among files of earlier days, where paths name the day; the nearest day first."""
    earlier = [
        each for each in engine.files() if each.day and timedelta(days=1) < day - each.day <= timedelta(days=SETTINGS_DAYS)
    ]
    for of_day in sorted({each.day for each in earlier if each.day}, reverse=True):
        if found := _latest_settings(contents.learn(each for each in earlier if each.day == of_day).values(), window):
            return found
    return None


def accounts_for(manifest: Manifest, roles: Roles, contents: Contents, window: Window) -> bool:
    """Whether a finished day was made of all these contents, or of what they were when the day was over."""
    recorded = {each.content: each for each in manifest.inputs}
    return all(
        digest in recorded or any(_is_over(recorded.get(part), role, window) for part in _known(contents, digest).extends)
        for digest, role in roles.items()
    )


def _is_over(used: Used | None, role: str, window: Window) -> bool:
    if used is None:
        return False
    return role == SETTINGS or (used.last is not None and datetime.fromisoformat(used.last) >= window.until)


def still_kept(manifest: Manifest, roles: Roles, contents: Contents) -> Roles:
    """What a finished day was made of whose file is gone, as far as its rows are kept and nothing there begins with it."""
    grown = {part for digest in roles for part in _known(contents, digest).extends}
    has_settings = SETTINGS in roles.values()
    return {
        used.content: used.role
        for used in manifest.inputs
        if used.content not in roles
        and used.content not in grown
        and not (used.role == SETTINGS and has_settings)
        and contents.kept(used.content)
    }


def _known(contents: Contents, digest: str) -> Content:
    content = contents.kept(digest)
    if content is None:
        raise InputError(f"raw/{digest}: its rows are no longer in the lake; make the day anew with --fresh")
    return content


# their rows


@dataclass(frozen=True)
class Piece:
    """A content in a day: what it is to it, and what its rows are called there."""

    content: Content
    role: str
    source: str
    lines_before: int  # in earlier parts of the same log
    used: Used


def pieces(roles: Roles, contents: Contents, window: Window) -> list[Piece]:
    """The contents in order of time, each under a name of its own; parts of one log share theirs."""
    known = [_known(contents, digest) for digest in roles]
    ordered = sorted(known, key=lambda each: ((window.edges(each) or (window.until,))[0], each.digest))
    lines: dict[str, int] = {}
    found = []
    for each in ordered:
        name, number = each.name, 1
        while name in lines and not each.is_log:
            number += 1
            name = f"{each.name} ({number})"
        edges = window.edges(each)
        last = edges[1].isoformat() if edges else None
        used = Used(each.digest, each.name, each.bytes, roles[each.digest], last)
        found.append(Piece(each, roles[each.digest], name, lines.get(name, 0), used))
        lines[name] = lines.get(name, 0) + each.lines
    return found


def lay_out(found: Iterable[Piece], window: Window, contents: Contents, *, store: Store, lake: Lake) -> None:
    """Write the raw tables of the day into a run's lake."""
    with lake.store.workplace() as folder:
        with connect() as con, Sink(folder) as sink:
            store.open_on(con)
            for piece in found:
                for table in sorted(piece.content.rows):
                    if piece.role == INPUT or table == "engine_config":
                        rows = con.sql(_slice(piece, table, window, store.uri(contents.table(piece.content, table))))
                        for batch in rows.to_arrow_reader(ROWS_AT_A_TIME):
                            sink.write(table, batch)
        intake.place(folder, lake)


def _slice(piece: Piece, table: str, window: Window, uri: str) -> str:
    """The rows of a table that the day needs, under the piece's name."""
    named = {"source": f"{literal(piece.source)} as source"}
    if "line" in TABLES[table]:
        named["line"] = f"line + {piece.lines_before} as line"
    where = " or ".join(_conditions(table, window)) or "true"
    return f"select * replace ({', '.join(named.values())}) from read_parquet({literal(uri)}) where {where}"


def _conditions(table: str, window: Window) -> Iterator[str]:
    """When a row is kept: alternatives, none where all are."""
    columns = TABLES[table]
    if table == "spans":
        moment = "coalesce(end_at, start_at + to_microseconds((e2e_s * 1e6)::bigint), start_at)"
        yield f"{moment} is null"
        yield _between(moment, window.since - REACH, window.until)
    elif "at_utc" in columns:
        begin = None if table == "engine_config" else window.since - REACH
        has_local = "at_local" in columns
        yield "at_utc is null and (at_local is null or is_counted(at_local))" if has_local else "at_utc is null"
        yield _between("at_utc", begin, window.until)
        if has_local:
            yield f"at_utc is null and ({_between_local('at_local', begin, window)})"


def _between(moment: str, begin: datetime | None, end: datetime) -> str:
    before = f"{moment} < timestamptz '{end.isoformat()}'"
    return f"({moment} >= timestamptz '{begin.isoformat()}' and {before})" if begin else f"({before})"


def _between_local(stamp: str, begin: datetime | None, window: Window) -> str:
    """The same for a clock that names no zone; one that names no year either is compared within the year."""
    zone, slack = ZoneInfo(window.zone or "UTC"), timedelta() if window.zone else LOCAL_REACH
    # what was said up to half a year ago has no lower bound of its own: a stamp without a year would be of any
    first = (begin or window.until - timedelta(days=180)) - slack
    low, high = (edge.astimezone(zone).replace(tzinfo=None) for edge in (first, window.until + slack))
    own_year = f"year({stamp}) >= 2010 and {stamp} < timestamp '{high}'" + (f" and {stamp} >= timestamp '{low}'" if begin else "")
    within = f"({stamp} - to_years((year({stamp}) - 2000)::integer))"
    low, high = low.replace(year=2000), high.replace(year=2000)
    of_year = f"{within} >= timestamp '{low}' {'and' if low <= high else 'or'} {within} < timestamp '{high}'"
    return f"({own_year}) or (year({stamp}) < 2010 and not is_counted({stamp}) and ({of_year}))"
