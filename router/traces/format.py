"""What a format is: how its first line looks, and how its rows become arrivals.

A reader gives arrivals with `at` in seconds of the file's own clock; what all formats have in
common (order, spreading, the beginning at 0, limits) is done once, in `trace`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec

from router.core.unreadable import NOT_JSON
from router.simulator.traffic import Arrival, TraceError
from router.traces.lines import Lines, excerpt

TOKENS_MAX: Final = 100_000_000  # of one prompt or answer; ten times the longest context there is
TIME_MAX: Final = 1e11  # seconds, three thousand years: beyond it a clock was read as a number
_YEAR_MS: Final = 3.2e10  # what is longer is no duration but a wrong column

Milliseconds = Annotated[float, msgspec.Meta(ge=0.0, le=_YEAR_MS)]
Tokens = Annotated[int, msgspec.Meta(ge=0, le=TOKENS_MAX)]

HEAD_ROWS: Final = 1000  # looked at before reading, to measure what a format leaves open
HEAD_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What a reader may be told; `prepare` fills in what is left open."""

    block_tokens: int = 0  # tokens of a block of the file's; 0: the format's own, or measured
    slot_s: float | None = None  # arrivals are quantised to this; None: measured; 0: they are not
    window_s: float | None = None  # by how much rows may be out of order; None: the format's own
    held_rows: int = 1_000_000  # rows held at most for that
    skip_failed: bool = False  # leave out what is known to have failed
    output_tokens: int = 0  # of a request whose answer nobody counted; 0: the log's mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One kind of file."""

    name: str
    looks: str  # for people whose file fits none
    fits: Callable[[bytes], bool]  # is this its first line?
    read: Callable[[Lines, ReadOptions], Iterator[Arrival]]
    block_tokens: int  # of its blocks, unless told otherwise
    # Measures what the options leave open, on a pass of its own. None: there is nothing.
    prepare: Callable[[Lines, ReadOptions], ReadOptions] | None = None
    grid_s: float = 0.0  # its times may be multiples of this, and then are known no better
    orders: bool = False  # `read` brings rows into order itself


def keys_of(line: bytes) -> set[str]:
    """The members of a JSON object; none of anything else."""
    try:
        return set(msgspec.json.decode(line, type=dict[str, msgspec.Raw]))
    except NOT_JSON:
        return set()


def bad_json(lines: Lines, err: Exception) -> TraceError:
    """What to raise about a line that `msgspec` refused."""
    if isinstance(err, msgspec.ValidationError):
        problem = str(err)
        return lines.error(problem[0].lower() + problem[1:])
    if isinstance(err, UnicodeDecodeError):
        return lines.error("not UTF-8")
    cut = ", and the file ends here: it is incomplete" if lines.is_cut else ""
    return lines.error(f"not a JSON object: {err}{cut}")


def bad_length(lines: Lines, name: str, value: int, least: int) -> TraceError:
    """What to raise about a number of tokens that cannot be one."""
    return lines.error(f"{name} is {excerpt(value)}, not {least} to {TOKENS_MAX:,} tokens")
