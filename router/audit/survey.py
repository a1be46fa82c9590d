"""The first pass over the log: who is there, how much, how fast, and how long a prompt takes alone.

Counts, and a bounded number of parties and replicas (`Heavy`). What it learns is what the second
pass (`blame`) needs to know before it begins. Must never: keep a row or a stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import Final

from router.audit.alone import Alone
from router.audit.heavy import Heavy
from router.audit.parties import Party
from router.audit.residency import Stay, stay_of
from router.audit.rows import Row
from router.audit.sweep import END, FIRST, START
from router.core.errors import Reason, Source, source_of
from router.core.sketch import Sketch
from router.core.urgency import NUMBERS
from router.intake.prompt import GENERATES

PARTIES_MAX: Final = 1024  # watched in the first pass
REPLICAS_MAX: Final = 4096
_ONE_STEP_S: Final = 0.003  # first tokens that are not further apart are of one step


class PartyFigures:
    """Of one party. Tokens are the engine's counts, or the best there is."""

    __slots__ = ("cached", "failed", "known", "output", "prompt", "requests", "ttft")

    def __init__(self) -> None:
        self.requests = 0
        self.failed = 0  # by the replica's or the router's doing
        self.prompt = 0
        self.output = 0
        self.known = 0  # prompt tokens of which is known how many were cached
        self.cached = 0  # ... and how many that is
        self.ttft = Sketch()  # of streams

    @property
    def hit_rate(self) -> float | None:
        return self.cached / self.known if self.known else None

    def merge(self, other: PartyFigures) -> None:
        """Count all that `other` counted."""
        self.requests += other.requests
        self.failed += other.failed
        self.prompt += other.prompt
        self.output += other.output
        self.known += other.known
        self.cached += other.cached
        self.ttft.merge(other.ttft)


class QueueFigures:
    """Of the requests of one class."""

    __slots__ = ("in_vain", "requests", "waits")

    def __init__(self) -> None:
        self.requests = 0
        self.waits = Sketch()  # in the queue, of those that waited there
        self.in_vain = 0  # of these, that no replica answered


class ReplicaFigures:
    """Of one replica."""

    __slots__ = ("attempts", "failures", "retries")

    def __init__(self) -> None:
        self.attempts = 0
        self.retries = 0  # of these, after another attempt had failed
        self.failures: Counter[str] = Counter()  # attempts that failed by its doing, by reason


class _Place:
    """A replica while anybody is there."""

    __slots__ = ("came", "here", "served_at", "straight")

    def __init__(self) -> None:
        self.here = 0
        self.came = 0
        self.served_at = -inf  # when the last first token came
        self.straight: tuple[str, int, float] | None = None  # for `Alone`, unless another comes


class Survey:
    """Hears rows in the file's order, then what happens at replicas in the order of time."""

    def __init__(self, name_of: Callable[[Row], Party]) -> None:
        self.rows = 0
        self.unanswered = 0  # that no replica answered
        self.failed = 0  # rows that ended by the replica's or the router's doing
        self.answers = 0  # of routes that generate
        self.streams = 0  # whose first token was seen
        self.uncounted = 0  # prompts that no engine counted
        self.uncached_unknown = 0  # prompts of which no engine told how much was cached
        self.begin = inf
        self.end = -inf
        self.longest_s = 0.0
        self.parties: Heavy[Party, PartyFigures] = Heavy(PARTIES_MAX, PartyFigures)
        self.replicas: Heavy[str, ReplicaFigures] = Heavy(REPLICAS_MAX, ReplicaFigures)
        self.queues: dict[str, QueueFigures] = {}  # by class
        self.tpot = Sketch()  # seconds per token after the first
        self.alone = Alone()
        self._name_of = name_of
        self._places: dict[str, _Place] = {}

    def stays(self, rows: Iterable[Row]) -> Iterator[Stay]:
        """Count rows; the stays among them."""
        for row in rows:
            self._count(row)
            stay = stay_of(row)
            if stay is None:
                self.unanswered += 1
            else:
                self.longest_s = max(self.longest_s, stay.end - stay.start)
                yield stay

    def happens(self, now: float, what: int, stay: Stay) -> None:
        """Learn how long prompts take, from those that met nobody or were served straight on."""
        place = self._places.get(stay.replica)
        if place is None:
            place = self._places[stay.replica] = _Place()
        if what == START:
            place.here += 1
            place.came += 1
            # Alone at its first token: it came to nobody, and nobody came since.
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
        """A first token came. Was it served straight on, and by itself?"""
        passed = now - place.served_at
        if passed < _ONE_STEP_S:
            place.straight = None  # two in one step
        else:
            self._settle(place)
            if stay.start < place.served_at:
                place.straight = stay.model, stay.uncached, passed
        place.served_at = now

    def _settle(self, place: _Place) -> None:
        """No other first token came in the same step as the last one."""
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
        for replica, kind, reason, _ in row.attempts:
            figures = self.replicas.touch(replica, 1.0)
            figures.attempts += 1
            figures.retries += kind == "retry"
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
        elif row.prompt_tokens:
            party.known += row.prompt_tokens
            party.cached += min(row.cached_tokens, row.prompt_tokens)
        if not row.stream or row.ttft_ms is None:
            return
        self.streams += 1
        party.ttft.add(row.ttft_ms * 1e-3)
        if row.output_tokens is not None and row.output_tokens > 1:
            tpot = (row.duration_ms - row.ttft_ms) * 1e-3 / (row.output_tokens - 1)
            self.tpot.add(tpot)


def _source(reason: str) -> Source:
    """Who is to blame; what a newer router calls by another name is its own doing."""
    try:
        return source_of(Reason(reason))
    except ValueError:
        return Source.ROUTER
