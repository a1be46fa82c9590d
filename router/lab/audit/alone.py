"""Learns from the log how long a prompt takes to its first token on an idle replica.

Streams are sorted into bins by the number of computed (uncached) tokens, four bins per octave. The
time of a bin is the first of these that is available:

1. The median of streams that were alone at their replica.
2. The median of streams served *straight on*: they waited while another stream got its first token,
   and the next first token at the replica was theirs. The time between the two tokens is about the
   prefill of the second stream. It is longer or shorter by a part that shared a step with the other
   stream, and it includes the decoding of other requests. A fleet that is never idle has many
   streams of this kind.
3. The time of the fastest twentieth of all streams. These streams may have waited, so delays are
   then underestimated.

The second of these times is capped by the third. A longer prompt is not faster than a shorter one,
so no bin is slower than a bin of longer prompts. Between the means of bins the curve is linear.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from math import inf, log2
from typing import Final

from router.lab.sketch import Sketch

_ENOUGH: Final = 5  # minimum number of streams in a bin for the bin's median to be used
_FAST: Final = 0.05
_UNIT: Final = 256  # below this number of tokens, each bin is a quarter of this number wide
_MODELS_MAX: Final = 32  # maximum number of models with their own curve
_MODEL_ENOUGH: Final = 50  # minimum number of requests of a model that has its own curve


class _Bin:
    """Streams with similar numbers of computed tokens."""

    __slots__ = ("everybody", "idle", "idle_tokens", "straight", "tokens")

    def __init__(self) -> None:
        self.everybody = Sketch()
        self.idle = Sketch()
        self.straight = Sketch()
        self.tokens = 0  # total tokens of all streams in the bin
        self.idle_tokens = 0

    @property
    def known(self) -> bool:
        return max(self.idle.count, self.straight.count) >= _ENOUGH

    def point(self) -> tuple[float, float]:
        """Return the tokens and the seconds of the bin, as a point of the curve."""
        idle = self.idle.quantile(0.5)
        if idle is not None and (count := self.idle.count) >= _ENOUGH:
            return self.idle_tokens / count, idle
        seconds = self.everybody.quantile(_FAST) or 0.0
        straight = self.straight.quantile(0.5)
        if straight is not None and self.straight.count >= _ENOUGH:
            seconds = min(seconds, straight)
        return self.tokens / max(self.everybody.count, 1), seconds


class Curve:
    """Seconds to the first token as a piecewise linear function of the computed tokens."""

    __slots__ = ("_seconds", "_tokens")

    def __init__(self, points: list[tuple[float, float]]) -> None:
        """`points`: (tokens, seconds), ascending in both."""
        self._tokens = [tokens for tokens, _ in points]
        self._seconds = [seconds for _, seconds in points]

    def seconds(self, tokens: int) -> float:
        """Return the seconds to the first token of a prompt; 0 if the curve has no points."""
        known, values = self._tokens, self._seconds
        if not known:
            return 0.0
        at = bisect_right(known, tokens)
        if at == 0 or len(known) == 1:
            return values[0]
        at = min(at, len(known) - 1)  # beyond the last point the last segment is extended
        slope = (values[at] - values[at - 1]) / (known[at] - known[at - 1])
        return values[at] + slope * (tokens - known[at])


class Alone:
    """Learns from streams how long a prompt takes on an idle replica.

    There is one curve per model, and a common curve for rare models.
    """

    def __init__(self) -> None:
        self._bins: dict[str | None, dict[int, _Bin]] = {None: {}}
        self._curves: dict[str, Curve] = {}

    def add(self, model: str, uncached: int, seconds: float, *, idle: bool) -> None:
        """Record a prompt with this number of computed tokens and this time to first token."""
        self._curves.clear()
        for one in self._bins_of(model, uncached):
            one.everybody.add(seconds)
            one.tokens += uncached
            if idle:
                one.idle.add(seconds)
                one.idle_tokens += uncached

    def add_straight(self, model: str, uncached: int, seconds: float) -> None:
        """Record a prompt that was served straight on (see the module).

        `seconds`: the time from the previous first token at the replica to the first token of this
        prompt.
        """
        self._curves.clear()
        for one in self._bins_of(model, uncached):
            one.straight.add(seconds)

    def seconds(self, model: str, uncached: int) -> float:
        """Return the time to first token of a prompt on an idle replica; 0: nothing learned."""
        curve = self._curves.get(model)
        if curve is None:
            curve = self._curves[model] = self._curve_of(model)
        return curve.seconds(uncached)

    @property
    def known(self) -> float:
        """Share of streams in bins whose time is not that of the fastest twentieth."""
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
