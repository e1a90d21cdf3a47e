"""Progress on stderr: after two seconds one line that is rewritten, on a terminal; elsewhere a line every ten seconds."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import Self, TextIO

SILENT_S = 2.0
REPAINT_S = 0.5
SPARSE_S = 10.0  # between lines where stderr is a file or a pipe
ERASE = "\r\x1b[K"


class Progress:
    """Shows the latest thing told, and for how long; use as a context manager."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._is_terminal = self._stream.isatty()
        self._message = ""
        self._is_over = threading.Event()
        self._painter = threading.Thread(target=self._paint, daemon=True)
        self._started = time.monotonic()

    def tell(self, message: str) -> None:
        """What is being done now."""
        self._message = message

    def __enter__(self) -> Self:
        self._painter.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._is_over.set()
        self._painter.join()

    def _paint(self) -> None:
        said_at = 0.0
        wait = SILENT_S
        while not self._is_over.wait(wait):
            elapsed = time.monotonic() - self._started
            wait = REPAINT_S
            if not self._message:
                continue
            if self._is_terminal:
                self._write(f"{ERASE}{self._message[:60]}, {elapsed:.0f} s")
                said_at = elapsed
            elif elapsed - said_at >= SPARSE_S:
                self._write(f"kvpressure: {self._message}, {elapsed:.0f} s\n")
                said_at = elapsed
        if said_at and self._is_terminal:
            self._write(ERASE)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
