"""The second pass: for whose work those waited who waited for a first token.

A request's wait is what its first token took from its dispatch, less what it takes alone. Whom the
replica served instead is reckoned over the *queue's* whole life, which begins when somebody has to
wait at a replica where nobody did, and ends when all there have their first tokens: a request that
finds ten short ones before it, held up by a long one that has just gone, waits for the long one.

Charges. At each moment the replica works for those whose prefill runs, each of whom is charged with
the time of its own prefill; or, while none does, for those that decode, who share the time equally,
as each gets one token a step (whoever waits then waits for their slots or KV, or for the step to
end). So prefills weigh by the tokens they compute and sequences by the tokens they make, both in
seconds of the engine. Who merely waits is charged with nothing.

A wait is divided so: what the party would have waited for its own other requests, had it been there
alone, is its own part; the rest, up to all that others were charged with, is theirs, in proportion
to their charges. If charges do not fill the wait, what is left is *unexplained*: the log shows
nobody who was served (a stall, foreign load, a replica slower than the others). A party's own
queue is Lindley's recursion over its prefills (D. V. Lindley, "The theory of queues with a single
server", 1952): what waits shrinks by the time that passes and grows by each request's own time.

Charges are running sums, one a party: a wait costs one subtraction for each of them, however many
requests there were. Must never: keep anything of a replica where nobody is.
"""

from __future__ import annotations

from typing import NamedTuple

from router.audit.residency import Stay
from router.audit.sweep import END, FIRST, PREFILL, START

_ROUNDING_S = 1e-9  # of running sums


class Wait(NamedTuple):
    """Why one request's first token took what it took, in seconds."""

    stay: Stay
    alone: float  # its own prefill, as on an idle replica
    router: float  # before it was sent to this replica
    blamed: dict[int, float]  # by party, its own other requests included
    unexplained: float


class _Line:
    """One replica while anybody is there."""

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
        self.waiting = 0  # without a first token
        self.prefilling: dict[int, int] = {}  # party: requests
        self.decoding: dict[int, int] = {}
        self.decoding_all = 0
        self.charged: dict[int, float] = {}  # party: seconds
        self.before: dict[int, float] = {}  # ... when the queue began
        self.own: dict[int, tuple[float, float]] = {}  # party: (work left at, if it were alone)

    def advance(self, now: float) -> None:
        """Charge those who are served with the time since the last call."""
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
        """What the newcomer would wait here for its own party's requests alone."""
        work, at = self.own.get(stay.party, (0.0, now))
        work = max(work - (now - at), 0.0)
        self.own[stay.party] = (work + stay.alone, now)
        return work


class Blame:
    """Hears what happens at replicas in the order of time; tells of each wait at its end."""

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}

    def happens(self, now: float, what: int, stay: Stay) -> Wait | None:
        """A stream's first token came: why then. None for all else."""
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
            own = max(charge - prefill, 0.0)  # it does not wait for itself
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
