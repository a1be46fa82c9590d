"""Collects samples of prefill and decode times from a log, in two passes.

The first pass finds streams whose prefill did not overlap another prefill. The best samples are
streams that arrived at an idle replica; the other streams overlapped decoding sequences only.

The second pass needs the fitted prefill times. It measures decode steps: a stream of n+1 tokens
took n steps. The number of sequences in these steps, and their context, are averages over the time
in which the replica prefilled nothing. The sample also has the amount of prefill work that the
replica did for other requests during the stream.

At most `SAMPLES_MAX` samples of each kind are kept. They are a uniform random choice with a fixed
seed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import inf
from random import Random
from typing import Final, Generic, NamedTuple, TypeVar

from router.lab.audit.residency import END, FIRST, PREFILL, START, Stay
from router.lab.sketch import Sketch

T = TypeVar("T")

SAMPLES_MAX: Final = 20_000
# Minimum number of steps of a decode sample; a shorter sample would be inaccurate.
STEPS_MIN: Final = 8
# Maximum share of a decode sample's time for other streams' prefills.
PREFILL_SHARE_MAX: Final = 0.5
_ONE_STEP_S: Final = 0.003  # first tokens within this time of each other belong to one step
_STUCK_S: Final = 0.5  # a replica is full if requests wait this long and none is prefilled
_MODELS_MAX: Final = 1000


class PrefillSample(NamedTuple):
    """A stream's time from dispatch to first token, in seconds, and the work in this time."""

    seconds: float
    tokens: int  # computed prompt tokens
    squares: int  # end^2 - start^2 of the computed part of the prompt
    sequences: int  # sequences that decoded at the replica; 0: the replica was idle
    context: float  # total context tokens of these sequences
    counted: bool  # the engine reported prompt tokens and cached tokens


class DecodeSample(NamedTuple):
    """A stream's time from its first token to its last, in seconds, and the work in this time."""

    seconds: float
    steps: int
    sequences: float  # average number of decoding sequences, including this stream
    context: float  # average of the total context tokens of the decoding sequences
    prefill_s: float  # seconds of work for other prefills, without the constant time of a step
    prefills: int  # the number of steps with a prefill


class Reservoir(Generic[T]):
    """Keeps a uniform random choice of at most `size` items.

    The method is Vitter's algorithm R (ACM TOMS 1985).
    """

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


class _Replica:
    """The load of a replica while it has requests."""

    __slots__ = ("arrived", "base", "decoding", "rate", "requests", "waiting")

    def __init__(self) -> None:
        self.requests = 0  # number of requests at the replica now
        self.arrived = 0  # number of requests that arrived since the replica was last idle
        self.waiting = 0  # number of requests without a first token
        self.decoding = 0
        # The total context tokens of the decoding sequences are base + rate * time.
        self.base = 0.0
        self.rate = 0.0

    def context(self, now: float) -> float:
        return max(self.base + self.rate * now, 0.0)

    def decodes(self, stay: Stay, sign: int, zero: float) -> None:
        """Record that a request begins (`sign` +1) or ends (-1) to decode.

        `zero`: the time that counts as 0 in `context`.
        """
        tokens = (stay.output or 1) - 1
        passed = stay.end - stay.first
        rate = tokens / passed if passed > 0.0 else 0.0
        self.decoding += sign
        self.rate += sign * rate
        self.base += sign * (stay.prompt + 1 - rate * (stay.first - zero))
        if not self.decoding:
            self.base = self.rate = 0.0  # remove accumulated rounding errors


class PrefillPass:
    """The first pass, which collects samples of prefills."""

    def __init__(self) -> None:
        self.streams = 0
        self.longest_s = 0.0
        self.idle: Reservoir[PrefillSample] = Reservoir()
        # Samples of streams that overlapped only decoding sequences.
        self.busy: Reservoir[PrefillSample] = Reservoir()
        self.all: Reservoir[PrefillSample] = Reservoir()  # samples of all streams, with any overlap
        self.tpot = Sketch()
        self.models: Counter[str] = Counter()
        self._replicas: dict[str, _Replica] = {}
        self._zero = -inf

    def event(self, now: float, what: int, stay: Stay) -> None:
        if self._zero == -inf:
            self._zero = now
        replica = self._replicas.get(stay.replica)
        if replica is None:
            replica = self._replicas[stay.replica] = _Replica()
        if what == START:
            self._count(stay)
            replica.requests += 1
            replica.arrived += 1
            replica.waiting += 1
            # If no other request is waiting, no other prefill overlaps this one, unless a request
            # arrives before its first token.
            stay.mark = (replica.arrived, replica.requests == 1) if replica.waiting == 1 else None
        elif what == FIRST:
            replica.waiting -= 1
            if stay.streamed and stay.uncached > 0:
                self._sample(now, stay, replica)
            stay.mark = None
            replica.decodes(stay, 1, self._zero)
        elif what == END:
            replica.decodes(stay, -1, self._zero)
            replica.requests -= 1
            if not replica.requests:
                del self._replicas[stay.replica]

    def _count(self, stay: Stay) -> None:
        self.longest_s = max(self.longest_s, stay.end - stay.start)
        if stay.model in self.models or len(self.models) < _MODELS_MAX:
            self.models[stay.model] += 1
        if stay.streamed:
            self.streams += 1
            if stay.ok and stay.output is not None and stay.output > 1:
                self.tpot.add((stay.end - stay.first) / (stay.output - 1))

    def _sample(self, now: float, stay: Stay, replica: _Replica) -> None:
        sample = PrefillSample(
            stay.first - stay.start,
            stay.uncached,
            stay.prompt**2 - stay.cached**2,
            replica.decoding,
            replica.context(now - self._zero),
            stay.counted,
        )
        self.all.add(sample)
        arrived, is_idle = stay.mark if isinstance(stay.mark, tuple) else (0, False)
        if arrived == replica.arrived:
            (self.idle if is_idle else self.busy).add(sample)


class _Engine(_Replica):
    """The load of a replica, with sums over time, for the second pass."""

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
        self.work_rate = 0.0  # seconds of prefill work that is done per second
        self.decode_s = 0.0  # seconds in which the replica only decoded
        self.sequences_s = 0.0  # the integral of the number of sequences over this time
        self.context_s = 0.0  # the integral of the context tokens over this time
        self.prefill_s = 0.0  # total work of prefills, in seconds
        self.prefills = 0  # number of steps in which prefills ended
        self.prefilled_at = -inf
        # The time since which requests have waited while none was prefilled; inf: no request waits,
        # or a prefill runs.
        self.stuck_since = inf

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
    """The second pass, which collects samples of decodes.

    `work_s`: returns the seconds of a request's prefill, without the constant time of its steps.
    """

    def __init__(self, work_s: Callable[[Stay], float]) -> None:
        self.samples: Reservoir[DecodeSample] = Reservoir()
        self.streams = 0
        # The maximum number of decoding sequences at one replica, and of their context tokens.
        self.sequences_peak = 0
        self.context_peak = 0.0
        # The same maxima at a replica that was full: requests waited and none was prefilled.
        self.full_sequences = 0
        self.full_context = 0.0
        self._work_s = work_s
        self._engines: dict[str, _Engine] = {}
        self._zero = -inf

    def event(self, now: float, what: int, stay: Stay) -> None:
        if self._zero == -inf:
            self._zero = now
        now -= self._zero  # products with seconds since 1970 would lose precision
        engine = self._engines.get(stay.replica)
        if engine is None:
            engine = self._engines[stay.replica] = _Engine(now)
        engine.advance(now)
        if what == START:
            engine.requests += 1
            engine.waiting += 1
        elif what == PREFILL:
            engine.prefilling += 1
            engine.work_rate += self._rate(stay)
        elif what == FIRST:
            self._first(now, engine, stay)
        elif what == END:
            self._end(engine, stay)
        self._watch(now, engine)
        if not engine.requests:
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
        engine.requests -= 1
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
        """Detect that a replica is full: requests wait, and none is prefilled."""
        if not engine.waiting or engine.prefilling:
            engine.stuck_since = inf
        elif engine.stuck_since == inf:
            engine.stuck_since = now
        elif now - engine.stuck_since > _STUCK_S:
            self.full_sequences = max(self.full_sequences, engine.decoding)
            self.full_context = max(self.full_context, engine.context(now))
