"""The lines of one file, plain or gzip, with their numbers: one pass over it.

Files larger than memory are usual, and so are files that are no traces at all: a line has a limit,
so that a disk image given by mistake is an error and not the end of the process. Whatever is wrong
is told with the number of the line that was read last. Must never: hold more than one line.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from os import fstat
from typing import Final, cast

from router.simulator.traffic import TraceError

LINE_MAX: Final = 64 << 20  # bytes; a row of a million blocks has about ten million
_BUFFER: Final = 256 << 10
_GZIP: Final = b"\x1f\x8b"  # RFC 1952, 2.3.1
_BOM: Final = b"\xef\xbb\xbf"


class Lines:
    """Iterate it once, then `close` it. Raises OSError if the file cannot be opened."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.number = 0  # of the line read last, blank ones counted
        self.is_cut = False  # the line read last has no end: the file ended within it
        self.notes: dict[str, int] = {}  # what a reader did to rows: how often
        self._raw = open(path, "rb", buffering=0)  # noqa: SIM115 - closed by `close`
        self._total = fstat(self._raw.fileno()).st_size
        self._read = 0
        is_gzip = self._raw.read(2) == _GZIP
        self._raw.seek(0)
        # GzipFile.readline is Python; BufferedReader's, over it, is C and seven times as fast.
        source = cast(io.RawIOBase, gzip.GzipFile(fileobj=self._raw)) if is_gzip else self._raw
        self._file = io.BufferedReader(source, _BUFFER)

    def __iter__(self) -> Iterator[bytes]:
        """Lines that are not blank, with their ends. Raises TraceError."""
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
                    raise self.error(f"a line of over {LINE_MAX >> 20} MiB: this is no trace")
                self.is_cut = True
            if self.number == 1:
                line = line.removeprefix(_BOM)
            if not line.isspace() and line:
                yield line

    def error(self, problem: str) -> TraceError:
        """What to raise about the line read last."""
        return TraceError(self.path, max(self.number, 1), problem)

    def note(self, what: str) -> None:
        """Count something that was done to the row at hand."""
        self.notes[what] = self.notes.get(what, 0) + 1

    def position(self) -> tuple[int, int]:
        """Bytes read of the file (compressed ones, if it is), and its size. From any thread."""
        try:
            self._read = self._raw.tell()
        except ValueError:  # closed: what it was then
            pass
        return self._read, self._total

    def close(self) -> None:
        """May be called again."""
        self.position()
        self._file.close()
        self._raw.close()


def excerpt(text: object) -> str:
    """A piece of somebody's file for an error message: short, and in printable characters."""
    shown = ascii(text)
    return shown if len(shown) <= 80 else shown[:77] + "..."
