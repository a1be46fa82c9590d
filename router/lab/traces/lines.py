"""Reads the lines of one file, plain or gzip, once, and counts them.

Files may be larger than memory. The length of a line is limited, so that a binary file given by
mistake is an error and does not exhaust the memory. Errors contain the number of the latest line.
Must never: hold more than one line.

`keys_of`, `is_event`, `check_incomplete`: checks that the readers of access logs share: limits,
events between the lines, damaged lines.

`by_arrival`: puts the rows of an access log into the order of their arrivals.

The rows of a log are in order of the ENDS of the requests. A request that took ten minutes is in
the log ten minutes later than a short request that arrived at the same time. So each row is held in
a heap until the log is `WINDOW_S` seconds past its arrival.

Must never: hold more than `HELD_ROWS` rows or `HELD_BLOCKS` blocks, or yield arrivals out of order.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from math import inf
from os import fstat
from typing import Annotated, Final, TypeVar, cast

import msgspec

from router.core.unreadable import NOT_JSON
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


# Maximum tokens of one prompt or answer; ten times the longest context in use.
TOKENS_MAX: Final = 100_000_000
TIME_MAX: Final = 1e11  # seconds, 3,000 years; a larger value has another unit or is not a time
_EVENT: Final = frozenset({"ts", "level", "message"})  # `router.observe.events` writes them
_YEAR_MS: Final = 3.2e10  # one year in ms; longer durations are invalid
INCOMPLETE: Final = "skipped: incomplete line"
_INCOMPLETE_MOST: Final = 8  # so many incomplete lines are skipped even if they are the majority

Milliseconds = Annotated[float, msgspec.Meta(ge=0.0, le=_YEAR_MS)]
Tokens = Annotated[int, msgspec.Meta(ge=0, le=TOKENS_MAX)]

# Rows and bytes at the beginning of a file that are read to measure options that are not given.
HEAD_ROWS: Final = 1000
HEAD_BYTES: Final = 16 << 20


def keys_of(line: bytes) -> set[str]:
    """Return the member names of a JSON object; empty if the line is not a JSON object."""
    try:
        return set(msgspec.json.decode(line, type=dict[str, msgspec.Raw]))
    except NOT_JSON:
        return set()


def is_event(line: bytes) -> bool:
    """Return whether a line is an event of the router, not a request of its access log.

    Both are in one file if standard output and standard error were captured together, as container
    runtimes do.
    """
    return keys_of(line) >= _EVENT


def check_incomplete(lines: Lines, line: bytes, err: Exception) -> None:
    """Count an incomplete line, which is no JSON and is to be skipped. `err`: from its decoding.

    A full disk leaves such lines, also in the middle, and a log is read while it is written. Raises
    TraceError for JSON with a wrong value, and if such lines are more than half of a longer file.
    """
    if isinstance(err, msgspec.ValidationError) and _is_json(line):
        raise bad_json(lines, err) from None
    lines.note(INCOMPLETE)
    count = lines.notes[INCOMPLETE]
    if count > _INCOMPLETE_MOST and 2 * count > lines.number:
        raise bad_json(lines, err) from None


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line)
    except NOT_JSON:
        return False
    return True


def bad_json(lines: Lines, err: Exception) -> TraceError:
    """Return the error for a line that `msgspec` cannot decode."""
    if isinstance(err, msgspec.ValidationError):
        problem = str(err)
        return lines.error(problem[0].lower() + problem[1:])
    if isinstance(err, UnicodeDecodeError):
        return lines.error("not UTF-8")
    cut = "; the file is truncated here" if lines.is_cut else ""
    return lines.error(f"not a JSON object: {err}{cut}")


def bad_length(lines: Lines, name: str, value: int, least: int) -> TraceError:
    """Return the error for a number of tokens out of range."""
    return lines.error(f"{name} is {excerpt(value)}; allowed are {least} to {TOKENS_MAX:,} tokens")


T = TypeVar("T")

# Seconds; requests end sooner, although long answers to agents take minutes.
WINDOW_S: Final = 900.0
HELD_ROWS: Final = 1_000_000
# Maximum number of blocks of all held rows: 190 MB at six bytes per block.
HELD_BLOCKS: Final = 32_000_000


def by_arrival(
    lines: Lines,
    rows: Iterable[tuple[float, float, int, T]],
    held_rows: int = HELD_ROWS,
    window_s: float = WINDOW_S,
) -> Iterator[T]:
    """Sort rows by arrival time. `rows` has tuples (arrival time, write time, blocks, row).

    The write time is when the row was written to the file. Write times must be nearly ascending.
    Raises TraceError for a row that arrives before a row that has been yielded.
    """
    held: list[tuple[float, int, int, T]] = []
    blocks_held = 0
    newest = passed = -inf
    is_full = False  # a row was yielded before the end of its window, to keep a limit
    for number, (at, written, blocks, row) in enumerate(rows):
        if not -TIME_MAX <= at <= written <= TIME_MAX:
            raise lines.error(f"invalid time: {at:g} s, {written - at:g} s long")
        if at < passed:
            why = (
                f"no more than {held_rows:,} rows or {HELD_BLOCKS:,} blocks are held for sorting"
                if is_full
                else f"rows may be out of order by {window_s:g} s"
            )
            raise lines.error(
                f"arrived {newest - at:.1f} s before the newest row; {why}; "
                "sort the rows by their time"
            )
        heappush(held, (at, number, blocks, row))
        blocks_held += blocks
        if written > newest:
            newest = written
        while held:
            is_over = len(held) > held_rows or blocks_held > HELD_BLOCKS
            if held[0][0] > newest - window_s:
                if not is_over:
                    break
                is_full = True
            passed, _, blocks, row = heappop(held)
            blocks_held -= blocks
            yield row
    while held:
        yield heappop(held)[3]
