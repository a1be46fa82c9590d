"""How a router hears of the engines: a poll of each one's metrics every so often, late, and
sometimes never. What `fleet/monitor/poller.py` does, without asking anybody.

An engine is read at the moment of the poll; the router knows `delay_s` later, and the next poll
begins an interval after that, as in the poller: polls of one replica do not overlap.

Must never: tell a router anything that an engine of vLLM's kind does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from random import Random

from router.core.lease import poll_begins
from router.fleet.monitor.poller import gap_s
from router.fleet.replica import Replica
from router.fleet.signals import Signals
from router.fleet.table import Fleet
from router.simulator.clock import Clock
from router.simulator.engine import SimulatedEngine
from router.simulator.scenario import Polls


class SimulatedPoller:
    """The polls of one router."""

    def __init__(
        self,
        clock: Clock,
        fleet: Fleet,
        engines: Mapping[Replica, SimulatedEngine],
        interval_s: float,
        rules: Polls,
        rng: Random,
        *,
        counts_tokens: bool,
    ) -> None:
        """`interval_s`: from what one brought to the beginning of the next; 0: never.
        `counts_tokens`: the pace of running streams is needed, which costs a look at each."""
        self.counts_tokens = counts_tokens
        self.polls = 0  # that have begun
        self.skips_idle = True  # do not tell the fleet what it knows; tests compare both ways
        self.clock = clock
        self.fleet = fleet
        self.interval_s = interval_s
        self.rules = rules
        self.rng = rng
        self._turns: dict[Replica, _Turn] = {}
        if interval_s:
            for replica, engine in engines.items():
                turn = self._turns[replica] = _Turn(self, replica, engine)
                # Spread over one interval, so that a large fleet is not asked all at once.
                turn.rests(interval_s * rng.random())

    def hurry(self, replica: Replica) -> None:
        """Poll a replica as soon as may be, not at its next turn."""
        turn = self._turns.get(replica)
        if turn is not None:
            turn.hurry(self.clock.now)

    def pause_s(self) -> float:
        """Until the next poll of a replica."""
        return self.interval_s * (1.0 + self.rules.jitter * (2.0 * self.rng.random() - 1.0))


class _Turn:
    """One replica's turn in the round."""

    __slots__ = (
        "_began",
        "_due",
        "_engine",
        "_is_hurried",
        "_next",
        "_number",
        "_poller",
        "_replica",
        "_signals",
    )

    def __init__(self, poller: SimulatedPoller, replica: Replica, engine: SimulatedEngine) -> None:
        self._poller = poller
        self._replica = replica
        self._engine = engine
        self._number = 0
        self._began = -inf  # when the last poll did
        self._next = 0.0  # when it is asked again, ...
        self._due = inf  # ... unless it is hurried; infinity: it is being asked
        self._is_hurried = False
        self._signals: Signals | None = None  # on their way; None: nothing is

    def rests(self, until: float) -> None:
        """Ask the engine then."""
        if self._is_hurried:
            self._is_hurried = False
            poller = self._poller
            soonest = self._began + gap_s(poller.interval_s)
            until = min(until, max(poller.clock.now, soonest))
        self._due = until
        self._poller.clock.at(until, self.begins)

    def hurry(self, now: float) -> None:
        """Ask it sooner."""
        self._is_hurried = True
        if self._due < inf:
            self.rests(self._due)

    def begins(self, now: float) -> None:
        """Ask the engine."""
        if now != self._due:
            return  # it was hurried
        self._due = inf
        self._began = now
        poller, replica, engine = self._poller, self._replica, self._engine
        poller.polls += 1
        rules = poller.rules
        is_lost = rules.loss > 0.0 and poller.rng.random() < rules.loss
        signals = engine.signals() if engine.is_up and not is_lost else None
        heard = now + rules.delay_s
        self._next = heard + poller.pause_s()
        if (
            poller.skips_idle
            and signals is replica.signals
            and not replica.inflight
            and not replica.foreign_load
            and not replica.foreign_waiting
        ):
            # Nothing has happened there, nothing of ours is there: the fleet would find everything
            # as it is. Most polls of an idle fleet end here.
            replica.signals_at = heard
            poller.fleet.knowledge.tend()
            self.rests(self._next)
            return
        self._number = poll_begins(replica, now)
        self._signals = signals
        poller.clock.at(heard, self._is_heard)

    def _is_heard(self, now: float) -> None:
        poller, signals = self._poller, self._signals
        if signals is None:
            problem = "timeout" if self._engine.is_up else "refused"
            poller.fleet.unobserved(self._replica, problem, now)
        else:
            self._signals = None
            if poller.counts_tokens:
                self._engine.count_tokens(self._replica)
            poller.fleet.observed(self._replica, signals, self._number, now)
        self.rests(self._next)
