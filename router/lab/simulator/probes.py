"""Simulates the active probes of `fleet/monitor/probe.py`, for replicas that were killed.

A successful probe of a replica that the router considers healthy changes nothing. Therefore only
killed replicas are probed, until the router considers them healthy again.

Must never: probe a replica if the result cannot change anything. Probes of 1,000 replicas every
five seconds would be half of all events in a run with little traffic.
"""

from __future__ import annotations

from functools import partial
from random import Random

from router.config.model import Health as Rules
from router.fleet.replica import Replica
from router.fleet.table.fleet import Fleet
from router.lab.simulator.clock import Clock
from router.lab.simulator.engine import SimulatedEngine


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
