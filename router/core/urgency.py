"""How urgent a request is: a number on one scale, and the class that is nearest to it.

The scale has five classes at whole numbers: critical 0, high 1, normal 2, low 3, batch 4. Lower is
more urgent, fractions stand between. A class is everything nearer to its number than to another's,
the half-way point belonging to the less urgent one: high is [0.5, 1.5).

Pure values. Must never: import anything of ours, or know what a client, a key or an engine is.
"""

from __future__ import annotations

from typing import Final

CLASSES: Final = ("critical", "high", "normal", "low", "batch")
NUMBERS: Final[dict[str, int]] = {name: number for number, name in enumerate(CLASSES)}
CRITICAL: Final = 0
HIGH: Final = 1
NORMAL: Final = 2
LOW: Final = 3
BATCH: Final = 4

HALF: Final = 0.5  # from a class's number to its end
# Requests of one flow before this one that take it half of the way to its class's end.
_STEPS_HALFWAY: Final = 3.0


class Urgency:
    """One request's urgency. Immutable by agreement: requests share the usual ones."""

    __slots__ = ("name", "number", "rank", "source", "stated", "unstepped")

    def __init__(self, number: float, source: str, unstepped: float = -1.0) -> None:
        """`number` is within the scale, a step within batch may stand behind it: [0, 4.5).
        `unstepped`: the number before such steps; below 0: there were none."""
        self.number = number
        self.unstepped = number if unstepped < 0.0 else unstepped
        self.rank = class_of(number)  # its class by number, ...
        self.name = CLASSES[self.rank]  # ... and by name
        self.source = source  # what said so, in one word; "": nothing did
        self.stated = self.name if source else ""  # the class by name, if something said so

    def __repr__(self) -> str:
        return f"Urgency({self.number:g} {self.name}, by {self.source})"


def class_of(number: float) -> int:
    """The nearest class of a number that is not NaN; beyond the ends the last class there."""
    if number < HALF:
        return CRITICAL
    if number >= BATCH - HALF:
        return BATCH
    return int(number + HALF)


def within(number: float) -> float:
    """The number, brought into the scale. It must not be NaN."""
    if number <= CRITICAL:
        return float(CRITICAL)
    return float(BATCH) if number >= BATCH else float(number)


def clamped(number: float, ceiling: int) -> float:
    """The number, no more urgent than the class `ceiling` itself."""
    return float(ceiling) if number < ceiling else number


def stepped(number: float, steps: int) -> float:
    """A number that many steps less urgent, and still of the same class.

    Each step is smaller than the one before, so that any two counts of steps differ and none ever
    reaches the class's end: `steps / (steps + 3)` of what is left of the class.
    """
    if steps <= 0:
        return number
    end = class_of(number) + HALF
    moved = number + (end - number) * (steps / (steps + _STEPS_HALFWAY))
    # So close to the end that rounding would cross it: stay.
    return moved if moved < end else number
