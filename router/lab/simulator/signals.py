"""Simulates the polls of the engines' metrics (`fleet/monitor/poller.py`), with delay and loss.

The metrics are read at the beginning of a poll. The router gets the metrics `delay_s` later. The
next poll of the same replica begins an interval after that, so polls of one replica do not overlap.

Must never: give a router metrics that vLLM does not export.

`SimulatedProber`: simulates the active probes of `fleet/monitor/probe.py`, for replicas that were
killed.

A successful probe of a replica that the router considers healthy changes nothing. Therefore only
killed replicas are probed, until the router considers them healthy again.

Must never: probe a replica if the result cannot change anything. Probes of 1,000 replicas every
five seconds would be half of all events in a run with little traffic.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import inf
from random import Random

from router.config.model import Health as Rules
from router.core.lease import poll_begins
from router.fleet.monitor.poller import gap_s
from router.fleet.replica import Replica
from router.fleet.signals import Signals
from router.fleet.table.fleet import Fleet
from router.lab.simulator.clock import Clock
from router.lab.simulator.engine import SimulatedEngine
from router.lab.simulator.scenario import Polls


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
        """`interval_s` is the time from the result of a poll to the next poll; 0: no polls.

        If `counts_tokens` is set, each poll counts the tokens of running streams. This takes time
        for each stream, and is needed only if the queue limits the time per token.
        """
        self.counts_tokens = counts_tokens
        self.polls = 0  # number of polls that have begun
        # True: polls that would change nothing are shortened. Tests compare both settings.
        self.skips_idle = True
        self.clock = clock
        self.fleet = fleet
        self.interval_s = interval_s
        self.rules = rules
        self.rng = rng
        self._replicas: dict[Replica, _PolledReplica] = {}
        if interval_s:
            for replica, engine in engines.items():
                polled = self._replicas[replica] = _PolledReplica(self, replica, engine)
                # The first polls are spread over one interval, to avoid a burst in a large fleet.
                polled.schedule(interval_s * rng.random())

    def poll_early(self, replica: Replica) -> None:
        """Poll a replica as soon as the minimum gap between polls allows."""
        polled = self._replicas.get(replica)
        if polled is not None:
            polled.poll_early(self.clock.now)

    def pause_s(self) -> float:
        """Seconds until the next poll of a replica, with jitter."""
        return self.interval_s * (1.0 + self.rules.jitter * (2.0 * self.rng.random() - 1.0))


class _PolledReplica:
    """The polls of one replica."""

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
        self._began = -inf  # when the last poll began
        self._next = 0.0  # the regular time of the next poll
        self._due = inf  # the scheduled time of the next poll; infinity: a poll is running
        self._is_hurried = False
        self._signals: Signals | None = None  # the result of the running poll; None: it failed

    def schedule(self, until: float) -> None:
        """Schedule the next poll for the time `until`, or earlier if an early poll is requested."""
        if self._is_hurried:
            self._is_hurried = False
            poller = self._poller
            soonest = self._began + gap_s(poller.interval_s)
            until = min(until, max(poller.clock.now, soonest))
        self._due = until
        self._poller.clock.at(until, self._begin)

    def poll_early(self, now: float) -> None:
        """Poll earlier than scheduled, or soon after the running poll."""
        self._is_hurried = True
        if self._due < inf:
            self.schedule(self._due)

    def _begin(self, now: float) -> None:
        """Read the engine's metrics."""
        if now != self._due:
            return  # the poll was rescheduled
        self._due = inf
        self._began = now
        poller, replica, engine = self._poller, self._replica, self._engine
        poller.polls += 1
        rules = poller.rules
        is_lost = rules.loss > 0.0 and poller.rng.random() < rules.loss
        signals = engine.signals() if engine.is_up and not is_lost else None
        received = now + rules.delay_s
        self._next = received + poller.pause_s()
        if (
            poller.skips_idle
            and signals is replica.reports.signals
            and not replica.inflight
            and not replica.foreign_load
            and not replica.foreign_waiting
        ):
            # The replica's metrics are unchanged and no requests are there, so the poll would not
            # change the fleet table. Most polls of an idle fleet end here.
            replica.reports.repeated(received)
            poller.fleet.knowledge.tend()
            self.schedule(self._next)
            return
        self._number = poll_begins(replica, now)
        self._signals = signals
        poller.clock.at(received, self._receive)

    def _receive(self, now: float) -> None:
        poller, signals = self._poller, self._signals
        if signals is None:
            problem = "timeout" if self._engine.is_up else "refused"
            poller.fleet.polls.unobserved(self._replica, problem, now)
        else:
            self._signals = None
            if poller.counts_tokens:
                self._engine.count_tokens(self._replica)
            poller.fleet.polls.observed(self._replica, signals, self._number, now)
        self.schedule(self._next)


class SimulatedProber:
    """The probes of one router."""

    def __init__(self, clock: Clock, fleet: Fleet, rules: Rules, rng: Random) -> None:
        self._clock = clock
        self._fleet = fleet
        self._rules = rules
        self._rng = rng
        self._watched: dict[Replica, None] = {}

    def watch(self, replica: Replica, engine: SimulatedEngine) -> None:
        """Probe a replica from now on, because its engine was killed."""
        if replica not in self._watched:
            self._watched[replica] = None
            due = self._clock.now + self._rules.interval_s * self._rng.random()
            self._clock.at(due, partial(self._probe, replica, engine))

    def _probe(self, replica: Replica, engine: SimulatedEngine, now: float) -> None:
        is_up = engine.is_up
        self._fleet.probes.probed(replica, is_up)
        if is_up and replica.health.up:
            del self._watched[replica]
            return
        pause = self._rules.interval_s * self._rng.uniform(0.8, 1.2)
        self._clock.at(now + pause, partial(self._probe, replica, engine))
