"""What first contents of one model take lately: the line that predicts them, and how far off it is.

Streams and whole answers are apart: what is whole shows nothing before its last token.

How far off: observed over predicted, in sketches of five seconds each, of which the last six are
looked at. Where few requests come, a sketch waits for samples, for a minute at most. Attempts that
were cut short have sketches of their own; `policies/hedging/curve.py` says how they count.

Must never: grow with the number of requests.
"""

from __future__ import annotations

from typing import Final

from policies.hedging.curve import Curve
from router.core.sketch import Sketch
from router.dispatch.ttft_fit import TtftFit
from router.wire.sweep import NEVER

SLICES: Final = 6
SLICE_S: Final = 5.0
SLICE_LONGEST_S: Final = 60.0  # a slice that nobody fills
SLICE_SAMPLES: Final = 16  # a slice with fewer goes on
WARM: Final = 20  # whole samples; with fewer nothing is late
FORGET_S: Final = 300.0  # after so long without a request nothing of before counts
REFRESH_S: Final = 1.0
# Of a sketch, as an error of the ratio. A sample lies up to this share above what its bucket tells,
# so the curve is drawn through the buckets' upper ends: nobody is late who only shares a bucket.
ACCURACY: Final = 0.02
# Samples taken in between two refreshes. What comes beyond is left out, cut or not.
FRESH: Final = 512
_LONGEST: Final = 1e6  # times the prediction; beyond it there is nothing to tell apart


class Ttfts:
    """One model's. Times are monotonic seconds."""

    def __init__(self, now: float) -> None:
        self.fit = TtftFit()
        self.curve: Curve | None = None  # None: too few samples so far
        self.refresh_at = now + REFRESH_S
        self.used_at = now
        # The plan: a copy is asked for when both have passed. NEVER: no copy.
        self.ratio = NEVER  # times the prediction
        self.seconds = NEVER
        self._began = [now]  # of each slice, the latest last
        self._shown = [Sketch(ACCURACY)]
        self._cut = [Sketch(ACCURACY)]
        self._count = 0  # whole samples in the latest slice
        # Ratios since the last refresh, those of cut attempts below 0: a sketch costs more to add
        # to than all the rest of a request.
        self._fresh: list[float] = []

    def shown(self, tokens: int, took_s: float, predicted_s: float, now: float) -> None:
        """A first content came; `tokens` were ahead of it, its own among them."""
        self.fit.add(tokens, took_s, now)
        if predicted_s > 0.0 and len(self._fresh) < FRESH:
            self._fresh.append(took_s / predicted_s)

    def cut(self, tokens: int, waited_s: float, predicted_s: float, now: float) -> None:
        """An attempt ended that had waited so long and shown nothing."""
        if predicted_s > 0.0:
            self.fit.add_cut(tokens, waited_s, now)
            if len(self._fresh) < FRESH:
                self._fresh.append(-waited_s / predicted_s)

    def refresh(self, now: float) -> None:
        """Draw line and curve anew."""
        self.refresh_at = now + REFRESH_S
        if now - self.used_at > FORGET_S:
            self._began.clear()
            self._shown.clear()
            self._cut.clear()
            self._fresh.clear()
            self._turn(now)
        self.used_at = now
        self._count_fresh()
        age_s = now - self._began[-1]
        if age_s >= SLICE_LONGEST_S or (age_s >= SLICE_S and self._count >= SLICE_SAMPLES):
            self._turn(now)
        self.fit.refit(self._began[0])
        shown = [pair for sketch in self._shown for pair in _counts(sketch)]
        if sum([count for _, count in shown]) < WARM:
            self.curve = None
        else:
            cut = [pair for sketch in self._cut for pair in _counts(sketch)]
            self.curve = Curve(shown, cut)

    def _turn(self, now: float) -> None:
        """Begin another slice and forget the oldest."""
        self._began.append(now)
        self._shown.append(Sketch(ACCURACY))
        self._cut.append(Sketch(ACCURACY))
        if len(self._began) > SLICES:
            del self._began[0], self._shown[0], self._cut[0]
        self._count = 0

    def _count_fresh(self) -> None:
        shown, cut = self._shown[-1], self._cut[-1]
        for ratio in self._fresh:
            if ratio > 0.0:
                shown.add(min(ratio, _LONGEST))
                self._count += 1
            else:
                cut.add(min(-ratio, _LONGEST))
        self._fresh.clear()


def _counts(sketch: Sketch) -> list[tuple[float, int]]:
    """(a value that none of them exceeds, how many) of each bucket."""
    found = []
    before = 0
    for value, seen in sketch.cumulative():
        found.append((value / (1.0 - ACCURACY), seen - before))
        before = seen
    return found
