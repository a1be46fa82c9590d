"""Checks that the readers of access logs share: limits, events between the lines, damaged lines."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from router.core.unreadable import NOT_JSON
from router.lab.simulator.traffic import TraceError
from router.lab.traces.lines import Lines, excerpt

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
