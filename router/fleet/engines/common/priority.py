"""How an engine reads the field `priority`: its dialect, and the virtual deadline that it gets.

Engines compare the numbers of requests that were sent at different times. A number for urgency
alone, or one that grows with the wait in the router, would let later requests overtake earlier ones
without limit. So a number is the time at which the request would be due: its arrival, plus an
offset for its class. It is fixed at the arrival. No request waits for ever, because later requests
get later deadlines.

    due = arrival + (urgency - normal) * level

`level` is the wait that compensates one class: half of `queue.batch_becomes_normal_after`. A
critical request is due another hour earlier. A factor converts the time into the engine's number.
An engine that stores each number for ever must not get the time; its numbers contain only class and
step (`is_bounded`).

Pure. Must never: read a clock, or know an engine. The dialects are in the engines' files.
"""

from __future__ import annotations

from typing import Final

from router.core.urgency import CRITICAL, NORMAL, class_of

EPOCH: Final = 1_767_225_600.0  # 2026-01-01 00:00 UTC, in seconds since 1970
CRITICAL_AHEAD_S: Final = 3600.0
LEAST_LEVEL_S: Final = 1.0
MOST_LEVEL_S: Final = 86_400.0  # upper limit, also if waiting requests do not become more urgent

# Unbounded numbers; 0 is the value of a client that sets none. Examples use 10 for "later", which
# is one class here. Above 30 a number is in the last class.
_HALFWAY: Final = 10.0


def level_s(aging: float) -> float:
    """Seconds of waiting that compensate one class; `aging` is in classes per second."""
    if aging <= 0.0:
        return MOST_LEVEL_S
    return min(MOST_LEVEL_S, max(LEAST_LEVEL_S, 1.0 / aging))


def lower_first(number: float) -> float:
    """The router's number for that of an engine that serves lower numbers first, without limits."""
    far = abs(number)
    return NORMAL + (2.0 * far / (far + _HALFWAY)) * (1.0 if number > 0.0 else -1.0)


class Dialect:
    """How an engine reads `priority`. An engine with the field derives its own class."""

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
        self.name = name  # in the configuration, in metrics and in reports
        self.paths = paths  # paths whose bodies have the field
        self.header = header  # the request header with the number on `header_paths`
        self.header_paths = header_paths
        # the status of an answer that may mean that the field is not supported
        self.refusal = refusal
        self.refusals = refusals  # ... and the text of such an answer: regular expressions
        # A member equivalent to an absent one, for a body that cannot be edited.
        self.absent = b'"priority":' + absent
        self.tells_normal = tells_normal  # False: a normal number is left out where possible

    def read(self, number: float) -> float:
        """A client's finite number in the router's scale, before it is limited to the scale."""
        raise NotImplementedError

    def write(self, urgency: float, arrived: float, level: float, is_bounded: bool) -> bytes:
        """The number as JSON.

        `arrived`: seconds since 1970. `level`: of `level_s`. `is_bounded`: the engine stores each
        number for ever, so the numbers must have few values.
        """
        raise NotImplementedError


SILENT: Final = Dialect("none")  # the engine gets no priority

_PER_S: Final = 10.0


def deadline_number(urgency: float, arrived: float, level: float) -> int:
    """A deadline in tenths of a second. `arrived`: seconds since 1970. `level`: of `level_s`."""
    due = arrived - EPOCH + (urgency - NORMAL) * level
    if class_of(urgency) == CRITICAL:
        due -= CRITICAL_AHEAD_S
    return round(due * _PER_S)


class Deadlines(Dialect):
    """Lower numbers first, any integer: the deadline itself. Such numbers stay below 2**31 until
    2032."""

    def read(self, number: float) -> float:
        return lower_first(number)

    def write(self, urgency: float, arrived: float, level: float, is_bounded: bool) -> bytes:
        return b"%d" % deadline_number(urgency, arrived, level)
