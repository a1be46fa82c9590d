"""How long a prompt takes to its first token on an idle replica, learned from the log itself.

Streams are sorted into bins by the tokens that had to be computed, four bins an octave. What a bin
says, the best first:

1. The median of those that met a replica with nobody else on it.
2. The median of those served *straight on*: they waited while another got its first token, and the
   next one there was theirs. The time between the two is their prefill, give or take a part that
   shared a step with the other, and what others decoded meanwhile. A fleet that is never idle has
   these in plenty.
3. The fastest twentieth of all, which may well have waited: delays are then told too small.

The second is never taken to be slower than the third. As a longer prompt is not faster than a
shorter one, no bin is slower than one of longer prompts. Between the means of bins it is linear.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from math import inf, log2
from typing import Final

from router.core.sketch import Sketch

_ENOUGH: Final = 5  # in a bin, to believe their median
_FAST: Final = 0.05
_UNIT: Final = 256  # tokens below which bins are as wide as this quarter
_MODELS_MAX: Final = 32  # with a curve of their own
_MODEL_ENOUGH: Final = 50  # requests for that


class _Bin:
    """Streams of about as many tokens."""

    __slots__ = ("everybody", "idle", "idle_tokens", "straight", "tokens")

    def __init__(self) -> None:
        self.everybody = Sketch()
        self.idle = Sketch()
        self.straight = Sketch()
        self.tokens = 0  # of everybody
        self.idle_tokens = 0

    @property
    def known(self) -> bool:
        return max(self.idle.count, self.straight.count) >= _ENOUGH

    def point(self) -> tuple[float, float]:
        """(tokens, seconds)."""
        idle = self.idle.quantile(0.5)
        if idle is not None and (count := self.idle.count) >= _ENOUGH:
            return self.idle_tokens / count, idle
        seconds = self.everybody.quantile(_FAST) or 0.0
        straight = self.straight.quantile(0.5)
        if straight is not None and self.straight.count >= _ENOUGH:
            seconds = min(seconds, straight)
        return self.tokens / max(self.everybody.count, 1), seconds


class Curve:
    """Seconds to the first token over tokens to compute: straight lines between points."""

    __slots__ = ("_seconds", "_tokens")

    def __init__(self, points: list[tuple[float, float]]) -> None:
        """`points`: (tokens, seconds), ascending in both."""
        self._tokens = [tokens for tokens, _ in points]
        self._seconds = [seconds for _, seconds in points]

    def seconds(self, tokens: int) -> float:
        """0 where nothing is known."""
        known, values = self._tokens, self._seconds
        if not known:
            return 0.0
        at = bisect_right(known, tokens)
        if at == 0 or len(known) == 1:
            return values[0]
        at = min(at, len(known) - 1)  # beyond the last point goes on as before it
        slope = (values[at] - values[at - 1]) / (known[at] - known[at - 1])
        return values[at] + slope * (tokens - known[at])


class Alone:
    """Learns from streams, then tells. One curve a model, and a common one for the rare ones."""

    def __init__(self) -> None:
        self._bins: dict[str | None, dict[int, _Bin]] = {None: {}}
        self._curves: dict[str, Curve] = {}

    def add(self, model: str, uncached: int, seconds: float, *, idle: bool) -> None:
        """A prompt with so many tokens to compute showed its first token after so long."""
        self._curves.clear()
        for one in self._bins_of(model, uncached):
            one.everybody.add(seconds)
            one.tokens += uncached
            if idle:
                one.idle.add(seconds)
                one.idle_tokens += uncached

    def add_straight(self, model: str, uncached: int, seconds: float) -> None:
        """... so long after another's first token, for which it had waited."""
        self._curves.clear()
        for one in self._bins_of(model, uncached):
            one.straight.add(seconds)

    def seconds(self, model: str, uncached: int) -> float:
        """What such a prompt takes alone; 0 if nothing at all was learned."""
        curve = self._curves.get(model)
        if curve is None:
            curve = self._curves[model] = self._curve_of(model)
        return curve.seconds(uncached)

    @property
    def known(self) -> float:
        """Share of streams in bins that rest on more than the fastest twentieth."""
        seen = known = 0
        for one in self._bins[None].values():
            count = one.everybody.count
            seen += count
            known += count if one.known else 0
        return known / seen if seen else 0.0

    def _bins_of(self, model: str, uncached: int) -> Iterator[_Bin]:
        number = int(4.0 * log2(1.0 + uncached / _UNIT))
        for name in (None, model):
            bins = self._bins.get(name)
            if bins is None:
                if len(self._bins) > _MODELS_MAX:
                    continue
                bins = self._bins[name] = {}
            one = bins.get(number)
            if one is None:
                one = bins[number] = _Bin()
            yield one

    def _curve_of(self, model: str) -> Curve:
        bins = self._bins.get(model, {})
        if sum(one.everybody.count for one in bins.values()) < _MODEL_ENOUGH:
            bins = self._bins[None]
        points: list[tuple[float, float]] = []
        least = inf
        for number in sorted(bins, reverse=True):
            tokens, seconds = bins[number].point()
            least = min(least, seconds)
            points.append((tokens, least))
        return Curve(points[::-1])
