"""How an engine reads the field `priority`: its dialect, and the virtual deadline it is told.

Engines compare the numbers of requests that were sent at different times. A number that states
urgency alone, or that grows with the wait in the router, lets later requests overtake earlier ones
without end. So a number is the time at which the request would be due: its arrival, plus an offset
for its class. It is fixed at the arrival. No request waits for ever, because later requests get
later deadlines.

    due = arrival + (urgency - normal) * level

`level` is the wait that makes up for one class: half of `queue.batch_becomes_normal_after`. A
critical request is due an hour earlier still. One factor of the time makes the engine's number. An
engine that keeps each number that it is told must not be told the time; its numbers state class and
step only (`is_bounded`).

Pure. Must never: read a clock, or know an engine. The dialects are in the engines' files.
"""

from __future__ import annotations

from typing import Final

from router.core.urgency import CRITICAL, NORMAL, class_of

EPOCH: Final = 1_767_225_600.0  # 2026-01-01 00:00 UTC, in seconds since 1970
CRITICAL_AHEAD_S: Final = 3600.0
LEAST_LEVEL_S: Final = 1.0
MOST_LEVEL_S: Final = 86_400.0  # also where waiting requests do not become more urgent

# Numbers without ends, where 0 is what a client gets that states nothing: 10 is what examples use
# for "later", one class. Beyond 30 a number is in the last class.
_HALFWAY: Final = 10.0


def level_s(aging: float) -> float:
    """Seconds of waiting that make up for one class; `aging` is in classes a second."""
    if aging <= 0.0:
        return MOST_LEVEL_S
    return min(MOST_LEVEL_S, max(LEAST_LEVEL_S, 1.0 / aging))


def lower_first(number: float) -> float:
    """The router's number for one of an engine that serves lower numbers first, without ends."""
    far = abs(number)
    return NORMAL + (2.0 * far / (far + _HALFWAY)) * (1.0 if number > 0.0 else -1.0)


class Dialect:
    """How an engine reads `priority`. An engine that has the field derives a class of its own."""

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
        self.paths = paths  # whose bodies have the field
        self.header = header  # the request header that has the number on `header_paths`
        self.header_paths = header_paths
        self.refusal = refusal  # the status of an answer that may say that the field is not known
        self.refusals = refusals  # ... and the words of such an answer: regular expressions
        # A member that has the effect of an absent one, for a body that cannot be edited.
        self.absent = b'"priority":' + absent
        self.tells_normal = tells_normal  # False: a normal number is left out where it can be

    def read(self, number: float) -> float:
        """A client's finite number in the router's scale, before it is brought into its ends."""
        raise NotImplementedError

    def write(self, urgency: float, arrived: float, level: float, is_bounded: bool) -> bytes:
        """The number as JSON. `arrived`: seconds since 1970. `level`: of `level_s`. `is_bounded`:
        the engine keeps each number that it is told, and must not get ever new ones."""
        raise NotImplementedError


SILENT: Final = Dialect("none")  # the engine is told nothing

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
