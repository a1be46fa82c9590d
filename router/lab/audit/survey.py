"""The first pass over the log: collects parties, their load, and the speed of the replicas.

The speed includes the time of a prompt on an idle replica. Keeps counts, and a bounded number of
parties and replicas (`Heavy`). The second pass (`blame`) needs these results before it begins. Must
never keep a row or a stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import Final

from router.core.errors import Reason, Source
from router.core.urgency import NUMBERS
from router.intake.prompt import GENERATES
from router.lab.audit.alone import Alone
from router.lab.audit.heavy import Heavy
from router.lab.audit.parties import Party
from router.lab.audit.residency import Stay, stay_of
from router.lab.audit.rows import Row
from router.lab.audit.sweep import END, FIRST, START
from router.lab.sketch import Sketch

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
        """Learn prompt times from requests that were alone or served straight on (see `alone`)."""
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
