"""Lines of SQL, typed at a prompt or piped in: where a statement ends, the dot commands between statements, the prompt itself."""

from __future__ import annotations

import cmd
import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import duckdb
import pyarrow as pa

from pipelines.duck import INTERRUPTED
from pipelines.sqlshell import DOT_COMMANDS, QueryError, dot_rows, give, results
from pipelines.texttable import printable

PROMPT_BEGIN, PROMPT_MORE = "kvpressure> ", "       ...> "
MODES = ("auto", "table", "line", "csv", "json", "markdown")
WORDS = frozenset(
    re.findall(
        r"\w+",
        """and as asc between by case count current_date date day desc describe distinct else end exists explain false filter from
        group having in inner interval is join left like limit max median min not null on or order over partition pivot qualify
        round select sum summarize then true union unnest using when where with""",
    )
)
DOT_WORDS = (".exit", *(command.split()[0] for command in DOT_COMMANDS))
PROMPT_ROWS = (
    100  # a prompt shows no more of an answer than this; `-o`, a pipe and a query on the command line have no such limit
)


class Lines:
    """What is given line by line: statements that end with `;`, and dot commands between them."""

    def __init__(self, con: duckdb.DuckDBPyConnection, mode: str | None = None) -> None:
        self._con = con
        self._text = ""  # of a statement that has begun
        self.mode = mode  # how results are shown; None is auto
        self.is_over = False  # after `.quit`

    @property
    def is_pending(self) -> bool:
        """Whether a statement has begun and not ended."""
        return bool(self._text)

    def take(self, line: str) -> Iterator[pa.Table]:
        """The results that a line asks for, where it is a dot command or ends a statement. QueryError where it has none."""
        if not self._text and line.lstrip().startswith((".", "\\")):
            yield from self._dot(line)
            return
        text = f"{self._text}{line.rstrip()}\n"
        self._text = "" if _is_blank(text) else text
        if _is_whole(text):
            yield from self.rest()

    def rest(self) -> Iterator[pa.Table]:
        """The results of what has begun, though nothing ended it."""
        text, self._text = self._text, ""
        yield from results(self._con, text)

    def give_up(self) -> None:
        """Forget the statement that has begun."""
        self._text = ""

    def _dot(self, line: str) -> Iterator[pa.Table]:
        word, *rest = line.rstrip("; \n").split() or [""]
        if word in (".quit", ".exit"):
            self.is_over = True
        elif word == ".mode":
            if len(rest) != 1 or rest[0] not in MODES:
                raise QueryError(f"`.mode` takes one of {', '.join(MODES)}; it is {self.mode or 'auto'}")
            self.mode = None if rest[0] == "auto" else rest[0]
        elif (table := dot_rows(self._con, line)) is not None:
            yield table
        else:
            raise QueryError(f"`{word}`: no such command; `.help` lists them")


def _is_whole(text: str) -> bool:
    """Whether the last thing in it, comments apart, is a `;` that is no part of a string or a name."""
    tokens = [(begin, kind) for begin, kind in duckdb.tokenize(text) if kind != duckdb.token_type.comment]
    if not tokens or tokens[-1][1] != duckdb.token_type.operator:
        return False
    return text.encode()[tokens[-1][0] :].startswith(b";")


def _is_blank(text: str) -> bool:
    """Whether it is nothing but space and comments that have ended."""
    return not re.sub(r"--[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL).strip()


def answer_each(
    con: duckdb.DuckDBPyConnection, lines: Iterable[str], *, kind: str | None = None, output: Path | None = None
) -> None:
    """Show what each line asks for, as it comes, or write the last result to `output`. QueryError at the first fault."""
    session = Lines(con, kind)
    last = None
    for table in _results(session, lines):
        last = table
        if output is None:
            give(table, kind=session.mode)
    if output is not None:
        give(pa.table({}) if last is None else last, kind=session.mode, output=output)


def _results(session: Lines, lines: Iterable[str]) -> Iterator[pa.Table]:
    for line in lines:
        yield from session.take(line)
        if session.is_over:
            return
    yield from session.rest()


class Prompt(cmd.Cmd):
    """The lines that somebody types, with history and completion; a fault is told, and the next line is taken."""

    intro = "Read-only SQL; end a statement with `;`. `.tables`, `.schema TABLE`, `.mode line`, `.help`, `.quit`."
    prompt = PROMPT_BEGIN

    def __init__(self, con: duckdb.DuckDBPyConnection, mode: str | None = None) -> None:
        super().__init__()
        self._con = con
        self._lines = Lines(con, mode)
        self._known: list[str] | None = None  # names to complete to, asked for at the first Tab

    def cmdloop(self, intro: str | None = None) -> None:
        """The loop; an interrupt gives up the statement that is being typed or run, and nothing else."""
        try:
            super().cmdloop(intro)
        except (KeyboardInterrupt, RuntimeError) as error:
            if isinstance(error, RuntimeError) and str(error) != INTERRUPTED:
                raise
            print("\n(given up; `.quit` leaves)")
            self._lines.give_up()
            self.prompt = PROMPT_BEGIN
            self.cmdloop("")

    def preloop(self) -> None:
        """Take up the history of earlier prompts, once."""
        with contextlib.suppress(ImportError, OSError):
            import readline

            if not readline.get_current_history_length():
                readline.read_history_file(_history_file())

    def postloop(self) -> None:
        """Keep the history for later prompts."""
        with contextlib.suppress(ImportError, OSError):
            import readline

            _history_file().parent.mkdir(parents=True, exist_ok=True)
            readline.set_history_length(1000)
            readline.write_history_file(_history_file())

    def completenames(self, text: str, *_: object) -> list[str]:
        """Tab at the beginning of a line: a dot command, or a word of SQL."""
        return self.completedefault(text)

    def completedefault(self, *ignored: object) -> list[str]:
        """Tab anywhere: tables with and without their schema, columns, words of SQL."""
        text = str(ignored[0])
        found = {word for word in (*DOT_WORDS, *WORDS, *self._names()) if word.lower().startswith(text.lower())}
        return sorted(word.upper() if text.isupper() and word in WORDS else word for word in found)

    def _names(self) -> list[str]:
        """Tables and columns that need no quotes."""
        if self._known is None:
            rows = self._con.sql(
                "select distinct unnest([table_name, concat(table_schema, '.', table_name), column_name]) "
                "from information_schema.columns"
            ).fetchall()
            self._known = [name for (name,) in rows if name.isascii() and name.replace("_", "").replace(".", "").isalnum()]
        return self._known

    def onecmd(self, line: str) -> bool:
        """A dot command, a part of a statement, or its end. True ends the prompt."""
        if line == "EOF":
            print()
            return True
        try:
            for table in self._lines.take(line):
                give(table.slice(0, PROMPT_ROWS), kind=self._lines.mode)
                if table.num_rows > PROMPT_ROWS:
                    print(f"({PROMPT_ROWS} of {table.num_rows} rows)")
        except QueryError as error:
            print(printable(str(error)))
        self.prompt = PROMPT_MORE if self._lines.is_pending else PROMPT_BEGIN
        return self._lines.is_over


def _history_file() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "kvpressure" / "sql_history"
