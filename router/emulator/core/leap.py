"""The steps under way: one, or many in a row between which nothing happens.

A decode step of B sequences lasts d0 + d1*B + d2*ctx, and each adds B tokens to the context. So
step k of such a row (1 is the first) ends at

    begin + k*first_s + more_s * k*(k - 1)/2          more_s = d2*B

and which step is under way at a moment is the root of a quadratic. Pure arithmetic, in seconds; it
knows nothing of requests. Must never: turn back, or forget that steps of no length at all exist.
"""

from __future__ import annotations

from math import sqrt


class Leap:
    """One per engine core, started again and again; `steps` is 0 while none is under way."""

    __slots__ = ("_begin", "_first_s", "_more_s", "counted", "end", "steps")

    def __init__(self) -> None:
        self.steps = 0
        self.counted = 0  # of these, those whose end the core has already accounted for
        self.end = 0.0  # of the last one
        self._begin = 0.0
        self._first_s = 0.0
        self._more_s = 0.0

    def start(self, begin: float, first_s: float, more_s: float, steps: int) -> None:
        """Steps in a row from `begin` on; each lasts `more_s` (not negative) longer than the one
        before."""
        self._begin = begin
        self._first_s = first_s
        self._more_s = more_s
        self.counted = 0
        self.steps = steps
        self.end = begin + first_s if steps == 1 else self.end_of(steps)

    def end_of(self, step: int) -> float:
        return self._begin + (step * self._first_s + self._more_s * (step * (step - 1) // 2))

    def under_way(self, now: float) -> int:
        """The first step that ends at or after `now`; the last one if all have ended before."""
        if now > self.end:
            return self.steps
        since = now - self._begin
        if self.steps == 1 or since <= 0.0:
            return 1
        # In this form the root loses no digits when more_s is next to nothing. What rounding leaves
        # of an error is less than a step: `end_of` has the last word.
        even_s = self._first_s - self._more_s / 2
        step = int(2 * since / (even_s + sqrt(even_s * even_s + 2 * self._more_s * since)))
        step = min(max(step, 1), self.steps)
        while step > 1 and self.end_of(step - 1) >= now:
            step -= 1
        while step < self.steps and self.end_of(step) < now:
            step += 1
        return step

    def cut(self, step: int) -> None:
        """It ends with this step."""
        if step < self.steps:
            self.steps = step
            self.end = self.end_of(step)

    def put_off(self, seconds: float) -> None:
        """The step under way, the last one, ends that much later."""
        self.end += seconds
