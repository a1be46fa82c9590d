"""What a log shows of how long an engine's work takes, as samples for a fit.

Two passes. The first finds streams whose prefill nobody else's got into the way of: best those that
met an idle replica, else those that met only decoding sequences. The second, which must know how
long prefills take, finds how long decode steps took and who was in them: a stream of n+1 tokens was
in n steps; how many sequences were in these with it, and how much context they had together, is
averaged over the time in which the replica prefilled nothing; the prefills that it sat through are
told with it.

Bounded: at most `SAMPLES_MAX` of a kind are kept, a fair choice among all, the same every time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import inf
from random import Random
from typing import Final, Generic, NamedTuple, TypeVar

from router.audit.residency import Stay
from router.audit.sweep import END, FIRST, PREFILL, START
from router.core.sketch import Sketch

T = TypeVar("T")

SAMPLES_MAX: Final = 20_000
STEPS_MIN: Final = 8  # of a decode sample: fewer say little and weigh as much
PREFILL_SHARE_MAX: Final = 0.5  # of a decode sample's time that went into others' prefills
_ONE_STEP_S: Final = 0.003  # first tokens that are not further apart are of one step
_STUCK_S: Final = 0.5  # nobody was prefilled for so long although somebody waited: it was full
_MODELS_MAX: Final = 1000


class PrefillSample(NamedTuple):
    """A stream's time from dispatch to first token. Seconds and tokens."""

    seconds: float
    tokens: int  # computed
    squares: int  # end^2 - start^2 of what was computed
    sequences: int  # that decoded meanwhile; 0: the replica was idle
    context: float  # their tokens together
    counted: bool  # the engine said how many tokens, and how many of them were cached


class DecodeSample(NamedTuple):
    """A stream's time from its first token to its last."""

    seconds: float
    steps: int
    sequences: float  # on average, itself included
    context: float
    prefill_s: float  # others' prefills that these steps did as well, less their steps' own time
    prefills: int  # steps that did


class Reservoir(Generic[T]):
    """A fair choice of at most `size` of all that came (Vitter's algorithm R, ACM TOMS 1985)."""

    def __init__(self, size: int = SAMPLES_MAX) -> None:
        self.kept: list[T] = []
        self.seen = 0
        self._size = size
        self._rng = Random(1)

    def add(self, item: T) -> None:
        self.seen += 1
        if len(self.kept) < self._size:
            self.kept.append(item)
        elif (at := self._rng.randrange(self.seen)) < self._size:
            self.kept[at] = item


class _Place:
    """A replica while anybody is there."""

    __slots__ = ("base", "came", "decoding", "here", "rate", "waiting")

    def __init__(self) -> None:
        self.here = 0
        self.came = 0
        self.waiting = 0
        self.decoding = 0
        # Context of those that decode: base + rate * time.
        self.base = 0.0
        self.rate = 0.0

    def context(self, now: float) -> float:
        return max(self.base + self.rate * now, 0.0)

    def decodes(self, stay: Stay, sign: int, zero: float) -> None:
        """It begins (+1) or ends (-1) to decode. `zero`: what times are counted from."""
        tokens = (stay.output or 1) - 1
        passed = stay.end - stay.first
        rate = tokens / passed if passed > 0.0 else 0.0
        self.decoding += sign
        self.rate += sign * rate
        self.base += sign * (stay.prompt + 1 - rate * (stay.first - zero))
        if not self.decoding:
            self.base = self.rate = 0.0  # free of rounding errors again


class PrefillPass:
    """The first pass."""

    def __init__(self) -> None:
        self.streams = 0
        self.longest_s = 0.0
        self.idle: Reservoir[PrefillSample] = Reservoir()
        self.busy: Reservoir[PrefillSample] = Reservoir()  # met decoding sequences only
        self.everybody: Reservoir[PrefillSample] = Reservoir()  # whatever they met
        self.tpot = Sketch()
        self.models: Counter[str] = Counter()
        self._places: dict[str, _Place] = {}
        self._zero = -inf

    def happens(self, now: float, what: int, stay: Stay) -> None:
        if self._zero == -inf:
            self._zero = now
        place = self._places.get(stay.replica)
        if place is None:
            place = self._places[stay.replica] = _Place()
        if what == START:
            self._comes(stay)
            place.here += 1
            place.came += 1
            place.waiting += 1
            # Nobody is prefilled before it, nor will be, as long as nobody comes after it.
            stay.mark = (place.came, place.here == 1) if place.waiting == 1 else None
        elif what == FIRST:
            place.waiting -= 1
            if stay.streamed and stay.uncached > 0:
                self._sample(now, stay, place)
            stay.mark = None
            place.decodes(stay, 1, self._zero)
        elif what == END:
            place.decodes(stay, -1, self._zero)
            place.here -= 1
            if not place.here:
                del self._places[stay.replica]

    def _comes(self, stay: Stay) -> None:
        self.longest_s = max(self.longest_s, stay.end - stay.start)
        if stay.model in self.models or len(self.models) < _MODELS_MAX:
            self.models[stay.model] += 1
        if stay.streamed:
            self.streams += 1
            if stay.ok and stay.output is not None and stay.output > 1:
                self.tpot.add((stay.end - stay.first) / (stay.output - 1))

    def _sample(self, now: float, stay: Stay, place: _Place) -> None:
        sample = PrefillSample(
            stay.first - stay.start,
            stay.uncached,
            stay.prompt**2 - stay.cached**2,
            place.decoding,
            place.context(now - self._zero),
            stay.counted,
        )
        self.everybody.add(sample)
        came, is_idle = stay.mark if isinstance(stay.mark, tuple) else (0, False)
        if came == place.came:
            (self.idle if is_idle else self.busy).add(sample)


class _Engine(_Place):
    """A replica while anybody is there, with sums over the time in which it prefilled nothing."""

    __slots__ = (
        "clock",
        "context_s",
        "decode_s",
        "prefill_s",
        "prefilled_at",
        "prefilling",
        "prefills",
        "sequences_s",
        "stuck_since",
        "work_rate",
    )

    def __init__(self, now: float) -> None:
        super().__init__()
        self.clock = now
        self.prefilling = 0
        self.work_rate = 0.0  # of those: seconds of work a second
        self.decode_s = 0.0  # time in which it only decoded
        self.sequences_s = 0.0  # ... times sequences
        self.context_s = 0.0  # ... times context
        self.prefill_s = 0.0  # work of prefills
        self.prefills = 0  # steps that ended one
        self.prefilled_at = -inf
        self.stuck_since = inf  # somebody waits, and nobody is prefilled

    def advance(self, now: float) -> None:
        passed = now - self.clock
        if passed <= 0.0:
            return
        if self.prefilling:
            self.prefill_s += passed * self.work_rate
        elif self.decoding:
            self.decode_s += passed
            self.sequences_s += passed * self.decoding
            self.context_s += passed * self.context(self.clock + 0.5 * passed)
        self.clock = now

    def sums(self) -> tuple[float, float, float, float, int]:
        return self.decode_s, self.sequences_s, self.context_s, self.prefill_s, self.prefills


class DecodePass:
    """The second pass. `work_s`: how long a stay's prefill takes, less its steps' own time."""

    def __init__(self, work_s: Callable[[Stay], float]) -> None:
        self.samples: Reservoir[DecodeSample] = Reservoir()
        self.streams = 0
        self.sequences_peak = 0  # at one replica
        self.context_peak = 0.0
        self.full_sequences = 0  # ... while others waited and none was prefilled: it was full
        self.full_context = 0.0
        self._work_s = work_s
        self._engines: dict[str, _Engine] = {}
        self._zero = -inf

    def happens(self, now: float, what: int, stay: Stay) -> None:
        if self._zero == -inf:
            self._zero = now
        now -= self._zero  # epoch seconds times tokens per second would cost digits
        engine = self._engines.get(stay.replica)
        if engine is None:
            engine = self._engines[stay.replica] = _Engine(now)
        engine.advance(now)
        if what == START:
            engine.here += 1
            engine.waiting += 1
        elif what == PREFILL:
            engine.prefilling += 1
            engine.work_rate += self._rate(stay)
        elif what == FIRST:
            self._first(now, engine, stay)
        elif what == END:
            self._end(engine, stay)
        self._watch(now, engine)
        if not engine.here:
            del self._engines[stay.replica]

    def _first(self, now: float, engine: _Engine, stay: Stay) -> None:
        engine.waiting -= 1
        engine.prefilling -= 1
        engine.work_rate = engine.work_rate - self._rate(stay) if engine.prefilling else 0.0
        engine.decodes(stay, 1, self._zero)
        if now - engine.prefilled_at > _ONE_STEP_S:
            engine.prefills += 1
        engine.prefilled_at = now
        stay.mark = engine.sums()
        self.sequences_peak = max(self.sequences_peak, engine.decoding)
        self.context_peak = max(self.context_peak, engine.context(now))

    def _end(self, engine: _Engine, stay: Stay) -> None:
        engine.decodes(stay, -1, self._zero)
        engine.here -= 1
        assert isinstance(stay.mark, tuple)
        then, stay.mark = stay.mark, None
        if not (stay.streamed and stay.ok) or stay.output is None:
            return
        self.streams += 1
        seconds, steps = stay.end - stay.first, stay.output - 1
        if steps < STEPS_MIN or seconds <= 0.0:
            return
        decode_s, sequences_s, context_s, prefill_s, prefills = (
            after - before for after, before in zip(engine.sums(), then, strict=True)
        )
        if decode_s <= 0.0 or prefill_s > PREFILL_SHARE_MAX * seconds:
            return
        self.samples.add(
            DecodeSample(
                seconds,
                steps,
                sequences_s / decode_s,
                context_s / decode_s,
                prefill_s,
                int(prefills),
            )
        )

    def _rate(self, stay: Stay) -> float:
        passed = stay.first - stay.prefill
        return self._work_s(stay) / passed if passed > 0.0 else 0.0

    def _watch(self, now: float, engine: _Engine) -> None:
        """Notice a replica that lets nobody in: all its slots or its KV are taken."""
        if not engine.waiting or engine.prefilling:
            engine.stuck_since = inf
        elif engine.stuck_since == inf:
            engine.stuck_since = now
        elif now - engine.stuck_since > _STUCK_S:
            self.full_sequences = max(self.full_sequences, engine.decoding)
            self.full_context = max(self.full_context, engine.context(now))
