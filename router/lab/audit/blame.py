"""The second pass over the log: finds the parties that caused each wait for a first token.

A party is a tenant in a class (see `parties`). A request's wait is its time from dispatch to first
token, minus the time that it would take on an idle replica. The causes are computed since the begin
of the replica's *queue*. The queue begins when a request must wait at a replica where no request
waited, and ends when all requests there have their first tokens. For example, a request waits
behind ten short requests, which were all delayed by a long request that has just finished. Then the
wait is attributed to the long request.

The time of a replica is charged to parties. While prefills run, the passing time is charged to a
party once per running prefill. While no prefill runs, the time is divided equally among the
decoding requests, because each gets one token per step. (Waiting requests then wait for a free slot
of the engine, for KV blocks, or for the end of the step.) So prefills count by their computed
tokens and decoding sequences by their generated tokens, both in seconds of the engine. Waiting
requests are not charged.

A wait is divided into three parts:

- The own part of the request's party is the wait that the request would have if the replica had
  only requests of that party.
- The rest, up to the sum of all charges of other parties, is attributed to these parties in
  proportion to their charges.
- If the charges do not cover the wait, the remainder is *unexplained*: the log shows no request
  that was served in this time. The replica may have stalled, may be slower than other replicas, or
  may have load that is not in the log.

The own part is computed with Lindley's recursion over the party's prefills (D. V. Lindley, "The
theory of queues with a single server", 1952). The party's waiting work shrinks by the passing time
and grows by the prefill time of each new request.

Charges are running sums, one per party. So a wait costs one subtraction per party, for any number
of requests. Must never keep state of a replica without requests.

`Parts`, `Victim`, `Site`: adds up the waits of the second pass: by delayed party, by causing party,
and by replica.

The waits of each party's slowest hundredth of requests are also added up separately. Must never
keep a single wait.

`Roster`: gives numbers to the parties of the second pass.

A party is a tenant in a class (see `parties`). The parties with the most tokens have their own
numbers; all other parties of a class share one number. Numbers are small and without gaps, so that
matrices by party are small. Must never hold more than `named` parties with their own number, and
`CLASSES_MAX` classes of other parties.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from router.lab.audit.parties import OTHERS, Heavy, Party
from router.lab.audit.residency import END, FIRST, PREFILL, START, Stay
from router.lab.audit.survey import PartyFigures
from router.lab.sketch import Sketch

CLASSES_MAX: Final = 16


class Roster:
    """The numbers of parties. Created once, from the results of the first pass."""

    def __init__(self, watched: Heavy[Party, PartyFigures], named: int) -> None:
        self.parties: list[Party] = []
        self.figures: list[PartyFigures] = []
        # How often the first pass dropped a party, because it had the fewest tokens.
        self.unwatched = watched.displaced
        self._numbers: dict[Party, int] = {}
        for party, entry in watched.heaviest():
            if len(self.parties) < named:
                self._numbers[party] = self._enrol(party, entry.value)
            else:
                number = self._numbers[party] = self._other(party)
                self.figures[number].merge(entry.value)

    def number(self, party: Party) -> int:
        known = self._numbers.get(party)
        return self._other(party) if known is None else known

    def _enrol(self, party: Party, figures: PartyFigures) -> int:
        self.parties.append(party)
        self.figures.append(figures)
        return len(self.parties) - 1

    def _other(self, party: Party) -> int:
        others = Party(OTHERS, party.priority)
        number = self._numbers.get(others)
        if number is None:
            kinds = sum(party.name == OTHERS for party in self.parties)
            if kinds >= CLASSES_MAX:
                others = Party(OTHERS, "")
                number = self._numbers.get(others)
            if number is None:
                number = self._numbers[others] = self._enrol(others, PartyFigures())
        return number


@dataclass(slots=True)
class Parts:
    """Parts of times to first token, in seconds, summed over some requests."""

    requests: int = 0
    alone_s: float = 0.0  # the requests' own prefills, as on an idle replica
    others_s: float = 0.0  # waits for other parties' requests
    itself_s: float = 0.0  # waits for other requests of the same party
    router_s: float = 0.0  # time in the router, before dispatch to the replica that answered
    unexplained_s: float = 0.0

    def add(self, wait: Wait, others_s: float, itself_s: float) -> None:
        self.requests += 1
        self.alone_s += wait.alone
        self.others_s += others_s
        self.itself_s += itself_s
        self.router_s += wait.router
        self.unexplained_s += wait.unexplained

    @property
    def total_s(self) -> float:
        return self.alone_s + self.others_s + self.itself_s + self.router_s + self.unexplained_s

    def share(self, seconds: float) -> float:
        total = self.total_s
        return seconds / total if total > 0.0 else 0.0


class Victim:
    """The waits of one party."""

    __slots__ = ("all", "by", "tail", "tail_by", "without")

    def __init__(self) -> None:
        self.all = Parts()
        self.tail = Parts()  # the parts of requests at or above the party's p99
        self.by: dict[int, float] = {}  # seconds of wait by causing party
        self.tail_by: dict[int, float] = {}
        self.without = Sketch()  # TTFT minus the part attributed to others


class Site:
    """The waits at one replica."""

    __slots__ = ("seconds", "unexplained_s")

    def __init__(self) -> None:
        self.seconds = 0.0  # sum of the times from dispatch to first token
        self.unexplained_s = 0.0


class Tally:
    """The sums of all waits.

    `tails`: by party, the TTFT from which a request is in the party's slowest hundredth.
    """

    def __init__(self, tails: Mapping[int, float]) -> None:
        self.victims: dict[int, Victim] = {}
        self.sites: dict[str, Site] = {}
        self._tails = tails

    def add(self, wait: Wait, replica: str | None) -> None:
        """Add one wait.

        `replica`: where the request waited; None: figures of that replica are not needed.
        """
        party = wait.stay.party
        victim = self.victims.get(party)
        if victim is None:
            victim = self.victims[party] = Victim()
        itself = wait.blamed.get(party, 0.0)
        others = sum(wait.blamed.values()) - itself
        ttft = wait.stay.ttft
        victim.all.add(wait, others, itself)
        victim.without.add(ttft - others)
        _add(victim.by, wait.blamed)
        if ttft >= self._tails.get(party, 0.0):
            victim.tail.add(wait, others, itself)
            _add(victim.tail_by, wait.blamed)
        if replica is not None:
            site = self.sites.setdefault(replica, Site())
            site.seconds += ttft - wait.router
            site.unexplained_s += wait.unexplained


def _add(sums: dict[int, float], parts: Mapping[int, float]) -> None:
    for party, seconds in parts.items():
        sums[party] = sums.get(party, 0.0) + seconds


_ROUNDING_S = 1e-9  # rounding error of running sums, in seconds


class Wait(NamedTuple):
    """The parts of one request's time to first token, in seconds."""

    stay: Stay
    alone: float  # seconds of its own prefill, as on an idle replica
    router: float  # seconds from arrival to dispatch to this replica
    blamed: dict[int, float]  # seconds of wait by causing party, the own party included
    unexplained: float


class _Line:
    """The requests and the charges at one replica, while it has requests."""

    __slots__ = (
        "before",
        "charged",
        "clock",
        "decoding",
        "decoding_all",
        "here",
        "own",
        "prefilling",
        "waiting",
    )

    def __init__(self, now: float) -> None:
        self.clock = now
        self.here = 0
        self.waiting = 0  # number of requests without a first token
        self.prefilling: dict[int, int] = {}  # number of prefilling requests by party
        self.decoding: dict[int, int] = {}
        self.decoding_all = 0
        self.charged: dict[int, float] = {}  # charged seconds by party
        self.before: dict[int, float] = {}  # `charged` at the begin of the present queue
        # By party: the work in seconds that would remain if the replica had only requests of this
        # party, and the time of this value.
        self.own: dict[int, tuple[float, float]] = {}

    def advance(self, now: float) -> None:
        """Charge the time since the last call to the parties whose requests are served."""
        passed = now - self.clock
        if passed <= 0.0:
            return
        self.clock = now
        charged = self.charged
        if self.prefilling:
            for party, count in self.prefilling.items():
                charged[party] = charged.get(party, 0.0) + passed * count
        elif self.decoding:
            each = passed / self.decoding_all
            for party, count in self.decoding.items():
                charged[party] = charged.get(party, 0.0) + each * count

    def join(self, stay: Stay, now: float) -> float:
        """Return the wait that the new request would have with only its own party's requests."""
        work, at = self.own.get(stay.party, (0.0, now))
        work = max(work - (now - at), 0.0)
        self.own[stay.party] = (work + stay.alone, now)
        return work


class Blame:
    """Processes events at replicas in order of time, and returns each wait when it ends."""

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}

    def happens(self, now: float, what: int, stay: Stay) -> Wait | None:
        """Process one event. Returns the wait if the event is a stream's first token, else None."""
        line = self._lines.get(stay.replica)
        if line is None:
            line = self._lines[stay.replica] = _Line(now)
        line.advance(now)
        party = stay.party
        wait = None
        if what == START:
            if not line.waiting:
                line.before = line.charged.copy()
            line.waiting += 1
            line.here += 1
            stay.mark = line.join(stay, now), line.before
        elif what == PREFILL:
            _more(line.prefilling, party)
        elif what == FIRST:
            if stay.streamed:
                wait = _divided(stay, line.charged)
            stay.mark = None
            _fewer(line.prefilling, party)
            _more(line.decoding, party)
            line.waiting -= 1
            line.decoding_all += 1
        elif what == END:
            _fewer(line.decoding, party)
            line.decoding_all -= 1
            line.here -= 1
            if not line.here:
                del self._lines[stay.replica]
        return wait


def _divided(stay: Stay, charged: dict[int, float]) -> Wait:
    assert isinstance(stay.mark, tuple)
    own_queue, before = stay.mark
    prefill = stay.first - stay.prefill
    waited = stay.prefill - stay.start
    others: dict[int, float] = {}
    own = 0.0
    for party, seconds in charged.items():
        charge = seconds - before.get(party, 0.0)
        if party == stay.party:
            own = max(charge - prefill, 0.0)  # a request does not wait for itself
        elif charge > _ROUNDING_S:
            others[party] = charge
    theirs = sum(others.values())
    explained = min(waited, own + theirs)
    mine = min(max(own_queue, explained - theirs), own, explained)
    share = (explained - mine) / theirs if theirs else 0.0
    blamed = {party: charge * share for party, charge in others.items()}
    if mine > 0.0:
        blamed[stay.party] = mine
    return Wait(stay, prefill, stay.waited, blamed, max(waited - explained, 0.0))


def _more(counts: dict[int, int], party: int) -> None:
    counts[party] = counts.get(party, 0) + 1


def _fewer(counts: dict[int, int], party: int) -> None:
    left = counts[party] - 1
    if left:
        counts[party] = left
    else:
        del counts[party]
