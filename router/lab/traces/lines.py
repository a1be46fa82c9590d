"""Reads the lines of one file, plain or gzip, once, and counts them.

Files may be larger than memory. The length of a line is limited, so that a binary file given by
mistake is an error and does not exhaust the memory. Errors contain the number of the latest line.
Must never: hold more than one line.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from os import fstat
from typing import Final, cast

from router.lab.simulator.traffic import TraceError

LINE_MAX: Final = 64 << 20  # bytes; a row with a million blocks has about 10 MB
_BUFFER: Final = 256 << 10
_GZIP: Final = b"\x1f\x8b"  # the first bytes of gzip data (RFC 1952, 2.3.1)
_BOM: Final = b"\xef\xbb\xbf"


class Lines:
    """The lines of one file. Iterate once, then call `close`. Raises OSError if the file cannot be
    opened.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.number = 0  # the number of the latest line; blank lines count
        self.is_cut = False  # the latest line has no newline: the file ended within it
        # Number of rows that were skipped or completed with estimates, by reason.
        self.notes: dict[str, int] = {}
        self._raw = open(path, "rb", buffering=0)  # noqa: SIM115 - closed by `close`
        self._total = fstat(self._raw.fileno()).st_size
        self._read = 0
        is_gzip = self._raw.read(2) == _GZIP
        self._raw.seek(0)
        # GzipFile.readline is Python code. BufferedReader.readline is C code, 7 times as fast.
        source = cast(io.RawIOBase, gzip.GzipFile(fileobj=self._raw)) if is_gzip else self._raw
        self._file = io.BufferedReader(source, _BUFFER)

    def __iter__(self) -> Iterator[bytes]:
        """Yield lines that are not blank, with their newlines. Raises TraceError."""
        readline = self._file.readline
        while True:
            try:
                line = readline(LINE_MAX + 1)
            except (EOFError, gzip.BadGzipFile, zlib.error) as err:
                self.number += 1
                raise self.error(f"damaged gzip data: {err}") from None
            if not line:
                return
            self.number += 1
            if line[-1] != 0x0A:
                if len(line) > LINE_MAX:
                    raise self.error(f"a line of over {LINE_MAX >> 20} MiB: not a trace")
                self.is_cut = True
            if self.number == 1:
                line = line.removeprefix(_BOM)
            if not line.isspace() and line:
                yield line

    def error(self, problem: str) -> TraceError:
        """An error about the latest line."""
        return TraceError(self.path, max(self.number, 1), problem)

    def note(self, what: str) -> None:
        """Count the latest row under the note `what`."""
        self.notes[what] = self.notes.get(what, 0) + 1

    def position(self) -> tuple[int, int]:
        """Bytes read from the file (compressed, for gzip), and its size. Thread-safe."""
        try:
            self._read = self._raw.tell()
        except ValueError:  # the file is closed: return the last position
            pass
        return self._read, self._total

    def close(self) -> None:
        """Close the file. May be called more than once."""
        self.position()
        self._file.close()
        self._raw.close()


def excerpt(text: object) -> str:
    """A value from a file for an error message: at most 80 printable ASCII characters."""
    shown = ascii(text)
    return shown if len(shown) <= 80 else shown[:77] + "..."
