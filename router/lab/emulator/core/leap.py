"""The current step of an engine, or a series of consecutive steps without any event between them.

A decode step of B sequences with ctx tokens of context lasts d0 + d1*B + d2*ctx (see `timing`).
Each step adds B tokens to the context. So step k of a series of decode steps (k = 1 is the first
step) ends at

    begin + k*first_s + more_s * k*(k - 1)/2          more_s = d2*B

and the number of the step that runs at a given time is the root of a quadratic equation. All times
are in seconds. Time must never go back, and steps may take 0 s. This module knows no requests.

`step_s`: the duration of one step of an engine, from the coefficients explained in `timing.py`.

The function is here because this file is compiled. `Timing` is not compiled, because it is pickled:
a frozen dataclass compiled by mypyc cannot be unpickled.
"""

from __future__ import annotations

from math import sqrt


def step_s(
    prefill_s: float,
    prefill_token_s: float,
    prefill_square_s: float,
    decode_s: float,
    decode_sequence_s: float,
    decode_context_s: float,
    tokens: int,
    squares: int,
    sequences: int,
    context: int,
) -> float:
    """Duration, in seconds, of a step that prefills `tokens` tokens and decodes `sequences`
    sequences. The other arguments are those of `Timing` and `Timing.step_s`.
    """
    if not tokens:
        return decode_s + decode_sequence_s * sequences + decode_context_s * context
    seconds = prefill_token_s * tokens + prefill_square_s * squares
    if not sequences:
        return prefill_s + seconds
    return (
        max(prefill_s, decode_s)
        + seconds
        + decode_sequence_s * sequences
        + decode_context_s * context
    )


class Leap:
    """A series of steps. An engine core reuses one object; `steps` is 0 while no step runs."""

    __slots__ = ("_begin", "_first_s", "_more_s", "counted", "end", "steps")

    def __init__(self) -> None:
        self.steps = 0
        self.counted = 0  # number of steps of the series whose end the core has already counted
        self.end = 0.0  # end time of the last step
        self._begin = 0.0
        self._first_s = 0.0
        self._more_s = 0.0

    def start(self, begin: float, first_s: float, more_s: float, steps: int) -> None:
        """Start a series of `steps` steps at time `begin`.

        Each step lasts `more_s` seconds (not negative) longer than the step before it.
        """
        self._begin = begin
        self._first_s = first_s
        self._more_s = more_s
        self.counted = 0
        self.steps = steps
        self.end = begin + first_s if steps == 1 else self.end_of(steps)

    def end_of(self, step: int) -> float:
        return self._begin + (step * self._first_s + self._more_s * (step * (step - 1) // 2))

    def under_way(self, now: float) -> int:
        """Number of the first step that ends at or after `now`; if all have ended, of the last."""
        if now > self.end:
            return self.steps
        since = now - self._begin
        if self.steps == 1 or since <= 0.0:
            return 1
        # This form of the root stays exact when `more_s` is almost zero. The remaining rounding
        # error is less than one step; the two loops below correct it.
        even_s = self._first_s - self._more_s / 2
        step = int(2 * since / (even_s + sqrt(even_s * even_s + 2 * self._more_s * since)))
        step = min(max(step, 1), self.steps)
        while step > 1 and self.end_of(step - 1) >= now:
            step -= 1
        while step < self.steps and self.end_of(step) < now:
            step += 1
        return step

    def cut(self, step: int) -> None:
        """End the series with step number `step`."""
        if step < self.steps:
            self.steps = step
            self.end = self.end_of(step)

    def put_off(self, seconds: float) -> None:
        """Delay the end of the current step, which must be the last one of the series."""
        self.end += seconds
