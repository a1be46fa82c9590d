"""The urgency of a request: a number on one scale, and the priority class nearest to it.

The scale has five classes at whole numbers: critical 0, high 1, normal 2, low 3, batch 4. A lower
number is more urgent; fractions are allowed. A number belongs to the nearest class. A number
half-way between two classes belongs to the less urgent one. So class high is the range [0.5, 1.5).

Must never: import another module of this project, or depend on clients, keys or engines.
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

HALF: Final = 0.5  # The distance from a class's number to the end of the class's range.
# With this many steps, an urgency number moves half of the way to the end of its class.
_STEPS_HALFWAY: Final = 3.0


class Urgency:
    """The urgency of one request. Must not be changed, because requests share instances."""

    __slots__ = ("name", "number", "rank", "source", "stated", "unstepped")

    def __init__(self, number: float, source: str, unstepped: float = -1.0) -> None:
        """`number` is in [0, 4.5). Only steps (see `stepped`) move a batch request above 4.

        `source` is a word for what set the number; "" if the number is a default. `unstepped` is
        the number before the steps; below 0: there were no steps.
        """
        self.number = number
        self.unstepped = number if unstepped < 0.0 else unstepped
        self.rank = class_of(number)  # The class as a number, 0 to 4.
        self.name = CLASSES[self.rank]  # The class as a name.
        self.source = source
        # The name of the class; "" if the class is the default.
        self.stated = self.name if source else ""

    def __repr__(self) -> str:
        return f"Urgency({self.number:g} {self.name}, by {self.source})"


def class_of(number: float) -> int:
    """Return the class nearest to a number, also for a number outside the scale.

    `number` must not be NaN.
    """
    if number < HALF:
        return CRITICAL
    if number >= BATCH - HALF:
        return BATCH
    return int(number + HALF)


def within(number: float) -> float:
    """Return `number`, limited to the scale of urgencies. `number` must not be NaN."""
    if number <= CRITICAL:
        return float(CRITICAL)
    return float(BATCH) if number >= BATCH else float(number)


def clamped(number: float, ceiling: int) -> float:
    """Return `number`, limited to be no more urgent than the class `ceiling`."""
    return float(ceiling) if number < ceiling else number


def stepped(number: float, steps: int) -> float:
    """Return a number that is less urgent by `steps` steps, but still in the same class.

    The steps move the number by `steps / (steps + 3)` of the distance to the end of its class. Each
    step is smaller than the one before. So two different counts of steps give different numbers,
    and no number reaches the end of the class.
    """
    if steps <= 0:
        return number
    end = class_of(number) + HALF
    moved = number + (end - number) * (steps / (steps + _STEPS_HALFWAY))
    # If rounding would move the number out of its class, it stays unchanged.
    return moved if moved < end else number
