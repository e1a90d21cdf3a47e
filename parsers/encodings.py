"""Text in UTF-16, as PowerShell's `>` writes it, read as the UTF-8 that everything else is in. Knows no format.

    ff fe 49 00 4e 00 46 00 4f 00 …   INFO …, behind the mark of its byte order
    49 00 4e 00 46 00 4f 00 …         the same without it, as what was cut off in front, or appended to, begins

Without the mark it is told by its NULs: in nearly every character of a log one of the two bytes is 0, always the same one, and
the other a letter; nothing that is not text looks like that. Anything else goes through as it is.
"""

from __future__ import annotations

import codecs
import io
from typing import Any

LOOKED_AT = 4096  # bytes
FEWEST = 32  # bytes that are enough to tell it without the mark
LEAST, NEARLY_ALL = 0.7, 0.97  # of the characters are ASCII; of these are printed
_READ = 1 << 20
_LETTERS = frozenset(b"\t\n\r" + bytes(range(0x20, 0x7F)))


def as_utf8(stream: io.RawIOBase) -> io.RawIOBase:
    """The stream, recoded where it is UTF-16; what is no character of that becomes a replacement character."""
    return _Recoded(stream)


class _Recoded(io.RawIOBase):
    """Looks at the first bytes once they are asked for, and then knows whether it has anything to do."""

    def __init__(self, stream: io.RawIOBase) -> None:
        self._stream = stream
        self._decoder: codecs.IncrementalDecoder | None = None
        self._is_begun, self._is_ended, self._recoded = False, False, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        decoder = self._decoder
        if self._is_begun and decoder is None:
            return self._stream.readinto(buffer) or 0
        if decoder is None:
            self._is_begun, size = True, self._stream.readinto(buffer) or 0
            begin = bytes(buffer[: min(size, LOOKED_AT)])
            encoding, mark = utf16(begin)
            if encoding is None:
                return size
            decoder = self._decoder = codecs.getincrementaldecoder(encoding)("replace")
            self._recoded = self._recode(decoder, bytes(buffer[mark:size]))
        while not self._recoded and not self._is_ended:
            self._recoded = self._recode(decoder, self._stream.read(_READ) or b"")
        part, self._recoded = self._recoded[: len(buffer)], self._recoded[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)

    def _recode(self, decoder: codecs.IncrementalDecoder, data: bytes) -> bytes:
        self._is_ended = not data
        return decoder.decode(data, final=not data).encode("utf-8", "replace")

    def close(self) -> None:
        self._stream.close()
        super().close()


def utf16(begin: bytes) -> tuple[str | None, int]:
    """The encoding, where a text that begins so is in UTF-16, and how long the mark in front of it is; None where it is not."""
    if begin.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return None, 0
    for encoding, mark in (("utf-16-le", codecs.BOM_UTF16_LE), ("utf-16-be", codecs.BOM_UTF16_BE)):
        if begin.startswith(mark):
            return encoding, len(mark)
    for encoding, high, low in (("utf-16-le", begin[1::2], begin[0::2]), ("utf-16-be", begin[0::2], begin[1::2])):
        characters = bytes(one for one, other in zip(low, high, strict=False) if not other)
        letters = sum(map(_LETTERS.__contains__, characters))
        if len(begin) >= FEWEST and len(characters) >= LEAST * len(high) and letters >= NEARLY_ALL * len(characters):
            return encoding, 0
    return None, 0
