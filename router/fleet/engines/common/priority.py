"""Defines how an engine reads the field `priority` (its dialect), and which number a request gets.

Engines compare the numbers of requests that were sent at different times. If the number depended on
the urgency alone, urgent requests that arrive later would always overtake earlier ones. So the
number is a virtual deadline: the arrival time of the request, plus an offset for its class. The
number is fixed when the request arrives. No request waits for ever, because later requests get
later deadlines.

    due = arrival + (urgency - normal) * level

`level` is the waiting time in seconds that makes up for one class: half of
`queue.batch_becomes_normal_after`. The deadline of a critical request is earlier by one more hour.
A factor converts the deadline into the engine's number. If an engine stores each number for ever,
its numbers do not contain the time. They depend only on the class of a request and its urgency
within the class (`is_bounded`).

Pure. Must never: read a clock, or depend on an engine. The dialects are in the engines' files.
"""

from __future__ import annotations

from typing import Final

from router.core.urgency import CRITICAL, NORMAL, class_of

# The time from which deadlines are counted: 2026-01-01 00:00 UTC, in seconds since 1970.
EPOCH: Final = 1_767_225_600.0
CRITICAL_AHEAD_S: Final = 3600.0
LEAST_LEVEL_S: Final = 1.0
MOST_LEVEL_S: Final = 86_400.0  # Upper limit of `level`; this limit is used if aging is off.

# A client's number that makes a request one class less urgent, for engines with unbounded numbers
# and the default 0. Examples in engine documentation use 10 for "later". A request with a number
# above 30 is in the least urgent class.
_HALFWAY: Final = 10.0


def level_s(aging: float) -> float:
    """Return how many seconds of waiting make up for one class. `aging`: classes per second."""
    if aging <= 0.0:
        return MOST_LEVEL_S
    return min(MOST_LEVEL_S, max(LEAST_LEVEL_S, 1.0 / aging))


def lower_first(number: float) -> float:
    """Return the urgency for a client's number, where the engine serves lower numbers first."""
    far = abs(number)
    return NORMAL + (2.0 * far / (far + _HALFWAY)) * (1.0 if number > 0.0 else -1.0)


class Dialect:
    """How an engine reads `priority`. Engines with priorities have a subclass."""

    def __init__(
        self,
        name: str,
        paths: frozenset[bytes] = frozenset(),
        *,
        header: bytes = b"",
        header_paths: frozenset[bytes] = frozenset(),
        refusal: int = 0,
        refusals: tuple[bytes, ...] = (),
        absent: bytes = b"null",
        tells_normal: bool = True,
    ) -> None:
        self.name = name  # The name in the configuration, in metrics and in reports.
        self.paths = paths  # The paths whose bodies have the field.
        self.header = header  # The request header for the number on `header_paths`.
        self.header_paths = header_paths
        # An engine's answer with this status may mean that the engine does not support the field.
        self.refusal = refusal
        # Regular expressions for the text of an answer by which the engine rejects the field.
        self.refusals = refusals
        # A `priority` member with the same effect as a body without `priority`, for a body that
        # cannot be edited.
        self.absent = b'"priority":' + absent
        # False: the number of a normal request is left out where possible.
        self.tells_normal = tells_normal

    def read(self, number: float) -> float:
        """Return the urgency for a client's finite number; it may be outside the router's scale."""
        raise NotImplementedError

    def write(self, urgency: float, arrived: float, level: float, is_bounded: bool) -> bytes:
        """Return the engine's number as JSON.

        `arrived`: seconds since 1970. `level`: the result of `level_s`. `is_bounded`: the engine
        stores each number for ever, so the numbers must have few values.
        """
        raise NotImplementedError


SILENT: Final = Dialect("none")  # The dialect of an engine that gets no priorities.

_PER_S: Final = 10.0


def deadline_number(urgency: float, arrived: float, level: float) -> int:
    """Return a deadline in tenths of a second after EPOCH. Arguments: see `Dialect.write`."""
    due = arrived - EPOCH + (urgency - NORMAL) * level
    if class_of(urgency) == CRITICAL:
        due -= CRITICAL_AHEAD_S
    return round(due * _PER_S)


class Deadlines(Dialect):
    """The dialect of engines that serve lower numbers first and accept any integer.

    The number is the deadline itself; it stays below 2**31 until 2032.
    """

    def read(self, number: float) -> float:
        return lower_first(number)

    def write(self, urgency: float, arrived: float, level: float, is_bounded: bool) -> bytes:
        return b"%d" % deadline_number(urgency, arrived, level)
