"""The first pass over the log: collects parties, their load, and the speed of the replicas.

The speed includes the time of a prompt on an idle replica. Keeps counts, and a bounded number of
parties and replicas (`Heavy`). The second pass (`blame`) needs these results before it begins. Must
never keep a row or a stay.

`Curve`, `Alone`: learns from the log how long a prompt takes to its first token on an idle replica.

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
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from math import inf, log2
from typing import Final

from router.core.errors import Reason, Source
from router.core.urgency import NUMBERS
from router.intake.prompt import GENERATES
from router.lab.audit.parties import Heavy, Party
from router.lab.audit.residency import END, FIRST, START, Row, Stay, stay_of
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


PARTIES_MAX: Final = 1024  # maximum number of parties watched in the first pass
REPLICAS_MAX: Final = 4096
_ONE_STEP_S: Final = 0.003  # first tokens within this time of each other are from one engine step


class PartyFigures:
    """The figures of one party. Token counts are the engine's, or else the router's estimates."""

    __slots__ = ("failed", "output", "prompt", "requests", "ttft")

    def __init__(self) -> None:
        self.requests = 0
        self.failed = 0  # requests that failed because of the replica or the router
        self.prompt = 0
        self.output = 0
        self.ttft = Sketch()  # times to first token of streams

    def merge(self, other: PartyFigures) -> None:
        """Add all counts of `other`."""
        self.requests += other.requests
        self.failed += other.failed
        self.prompt += other.prompt
        self.output += other.output
        self.ttft.merge(other.ttft)


class QueueFigures:
    """The figures of one class's requests in the router's queue."""

    __slots__ = ("in_vain", "requests", "waits")

    def __init__(self) -> None:
        self.requests = 0
        self.waits = Sketch()  # seconds in the queue, of requests that waited
        self.in_vain = 0  # requests that waited and that no replica answered


class ReplicaFigures:
    """The figures of one replica."""

    __slots__ = ("attempts", "failures")

    def __init__(self) -> None:
        self.attempts = 0
        # Attempts that failed because of the replica, by reason.
        self.failures: Counter[str] = Counter()


class _Place:
    """The requests at one replica, while it has requests."""

    __slots__ = ("came", "here", "served_at", "straight")

    def __init__(self) -> None:
        self.here = 0
        self.came = 0
        self.served_at = -inf  # time of the latest first token at the replica
        # Arguments for `Alone.add_straight`. They are dropped if another first token follows in the
        # same step.
        self.straight: tuple[str, int, float] | None = None


class Survey:
    """Processes the rows of a file, and then the events at replicas in order of time."""

    def __init__(self, name_of: Callable[[Row], Party]) -> None:
        self.rows = 0
        self.failed = 0  # requests that failed because of the replica or the router
        self.answers = 0  # answers of routes that generate tokens
        self.streams = 0  # streams with a known first token
        self.uncounted = 0  # prompts without an engine's count
        self.uncached_unknown = 0  # prompts without a count of cached tokens
        self.begin = inf
        self.end = -inf
        self.longest_s = 0.0
        self.parties: Heavy[Party, PartyFigures] = Heavy(PARTIES_MAX, PartyFigures)
        self.replicas: Heavy[str, ReplicaFigures] = Heavy(REPLICAS_MAX, ReplicaFigures)
        self.queues: dict[str, QueueFigures] = {}  # figures by class
        self.tpot = Sketch()  # seconds per token after the first
        self.alone = Alone()
        self._name_of = name_of
        self._places: dict[str, _Place] = {}

    def stays(self, rows: Iterable[Row]) -> Iterator[Stay]:
        """Count rows, and yield the stays of their requests at replicas."""
        for row in rows:
            self._count(row)
            stay = stay_of(row)
            if stay is not None:
                self.longest_s = max(self.longest_s, stay.end - stay.start)
                yield stay

    def happens(self, now: float, what: int, stay: Stay) -> None:
        """Learn prompt times from requests that were alone or served straight on (see `Alone`)."""
        place = self._places.get(stay.replica)
        if place is None:
            place = self._places[stay.replica] = _Place()
        if what == START:
            place.here += 1
            place.came += 1
            # A stream is alone if no other request is at the replica at its start, and none arrives
            # before its first token.
            stay.mark = place.came if place.here == 1 else 0
        elif what == FIRST:
            if stay.streamed:
                idle = stay.mark == place.came
                self.alone.add(stay.model, stay.uncached, stay.first - stay.start, idle=idle)
                self._served(now, stay, place)
        elif what == END:
            place.here -= 1
            if not place.here:
                self._settle(place)
                del self._places[stay.replica]

    def _served(self, now: float, stay: Stay, place: _Place) -> None:
        """Handle a first token.

        Check whether the stream was served straight on, and in a step without other first tokens.
        """
        passed = now - place.served_at
        if passed < _ONE_STEP_S:
            place.straight = None  # there are two first tokens in one step
        else:
            self._settle(place)
            if stay.start < place.served_at:
                place.straight = stay.model, stay.uncached, passed
        place.served_at = now

    def _settle(self, place: _Place) -> None:
        """Record the latest stream served straight on: its step had no other first token."""
        if place.straight is not None:
            self.alone.add_straight(*place.straight)
            place.straight = None

    def _count(self, row: Row) -> None:
        self.rows += 1
        self.begin = min(self.begin, row.ts)
        self.end = max(self.end, row.ended)
        prompt = row.prompt_tokens or row.estimated_tokens or 0
        output = row.output_tokens or 0
        party = self.parties.touch(self._name_of(row), max(prompt + output, 1))
        party.requests += 1
        party.prompt += prompt
        party.output += output
        if row.reason != Reason.OK and _source(row.reason) is not Source.CLIENT:
            party.failed += 1
            self.failed += 1
        if row.priority in NUMBERS:
            self._count_wait(row)
        for replica, _, reason, _ in row.attempts:
            figures = self.replicas.touch(replica, 1.0)
            figures.attempts += 1
            if reason != Reason.OK and _source(reason) is Source.REPLICA:
                figures.failures[reason] += 1
        if row.replica and row.kind in GENERATES:
            self._count_answer(row, party)

    def _count_wait(self, row: Row) -> None:
        figures = self.queues.get(row.priority)
        if figures is None:
            figures = self.queues[row.priority] = QueueFigures()
        figures.requests += 1
        if row.queue_ms is not None:
            figures.waits.add(row.queue_ms * 1e-3)
            figures.in_vain += not row.replica

    def _count_answer(self, row: Row, party: PartyFigures) -> None:
        self.answers += 1
        if row.prompt_tokens is None:
            self.uncounted += 1
        if row.cached_tokens is None:
            self.uncached_unknown += 1
        if not row.stream or row.ttft_ms is None:
            return
        self.streams += 1
        party.ttft.add(row.ttft_ms * 1e-3)
        if row.output_tokens is not None and row.output_tokens > 1:
            tpot = (row.duration_ms - row.ttft_ms) * 1e-3 / (row.output_tokens - 1)
            self.tpot.add(tpot)


def _source(reason: str) -> Source:
    """Return the source of a failure. A reason of a newer router is attributed to the router."""
    try:
        return Reason[reason.upper()].source
    except KeyError:
        return Source.ROUTER
