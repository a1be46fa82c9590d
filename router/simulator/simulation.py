"""A run: one fleet, its routers and their traffic, from the first arrival to the last answer.

The same scenario, traffic and seed give the same outcomes in the same order, to the last bit.
Memory does not grow with the number of requests: arrivals are taken one ahead, and what has ended
is handed to the recorder and forgotten.

Must never: look at a real clock, or let a request go without an outcome.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import inf
from random import Random

from router.admission.rules import Rules
from router.core.errors import Reason
from router.simulator.clock import Clock
from router.simulator.engine import SimulatedEngine
from router.simulator.hedges import Hedges
from router.simulator.outcome import Outcome
from router.simulator.probes import SimulatedProber
from router.simulator.queue_counts import counted
from router.simulator.recorder import LoadRecorder, Recorder
from router.simulator.router import SimulatedRouter
from router.simulator.scenario import Fault, Group, Scenario
from router.simulator.signals import SimulatedPoller
from router.simulator.totals import Totals
from router.simulator.traffic import Arrival, GoesOn, Traffic

# Called after each arrival with the simulated seconds and the requests that have come and ended.
Progress = Callable[[float, int, int], None]


def simulate(
    scenario: Scenario,
    traffic: Traffic,
    recorder: Recorder,
    *,
    progress: Progress | None = None,
    until: float | None = None,
) -> Totals:
    """Run it to its end. `until`: what arrives later (seconds) does not come.

    Raises ValueError if the traffic does not fit the scenario or goes back in time,
    PolicyConfigError for the scenario's policy, TraceError for a trace, and RuntimeError if the
    simulator itself has lost something.
    """
    return Simulation(scenario, traffic, recorder, progress=progress, until=until).run()


class Simulation:
    """A run that is built, and not begun."""

    def __init__(
        self,
        scenario: Scenario,
        traffic: Traffic,
        recorder: Recorder,
        *,
        progress: Progress | None = None,
        until: float | None = None,
    ) -> None:
        if scenario.core.block_size != traffic.block_tokens:
            raise ValueError(
                f"the engines' blocks have {scenario.core.block_size} tokens, "
                f"those of the traffic {traffic.block_tokens}"
            )
        self.scenario = scenario
        config = scenario.config
        self.clock = clock = Clock()
        self._traffic = traffic
        self._goes_on: GoesOn | None = traffic if isinstance(traffic, GoesOn) else None
        self._recorder = recorder
        self._progress = progress
        self._until = inf if until is None else until
        self._source: Iterator[Arrival] = iter(())
        self._ahead: Arrival | None = None  # the next one of the source
        self._requests = 0
        self._ended = 0
        self._ends: dict[Reason, int] = {}
        self.engines = tuple(
            engine for group in scenario.groups for engine in self._engines_of(group)
        )
        self._deal = Random(f"deal {scenario.seed}")
        self.routers = tuple(
            SimulatedRouter(number, clock, scenario, self.engines, self._has_ended)
            for number in range(1 if scenario.shared else scenario.routers)
        )
        self.pollers = tuple(
            SimulatedPoller(
                clock,
                router.fleet,
                router.engines,
                config.polling.interval_s,
                scenario.polls,
                Random(f"polls {router.number} of {scenario.seed}"),
                counts_tokens=config.queue.enabled and Rules(config.queue).bounds_pace,
            )
            for router in self.routers
        )
        for router, poller in zip(self.routers, self.pollers, strict=True):
            if router.queue is not None:
                router.queue.hurry = poller.hurry
        self._probers = tuple(
            SimulatedProber(
                clock,
                router.fleet,
                config.health,
                Random(f"probes {router.number} of {scenario.seed}"),
            )
            for router in self.routers
        )
        for fault in scenario.faults:
            clock.at(fault.at, partial(self._fails, fault))
            if fault.until < inf:
                clock.at(fault.until, partial(self._recovers, fault))

    def _engines_of(self, group: Group) -> Iterator[SimulatedEngine]:
        # Single tokens concern nobody here; an engine goes from one end to the next at once.
        core = replace(group.core, token_events=False, leap=True, kv_events=False)
        scenario = self.scenario
        for _ in range(group.replicas):
            yield SimulatedEngine(
                self.clock,
                core,
                group.timing,
                scenario.network_s,
                scenario.straggling,
                scenario.seed,
            )

    def run(self) -> Totals:
        """Once."""
        clock = self.clock
        self._source = iter(self._traffic)
        clock.holds += 1  # the source
        self._next()
        if isinstance(self._recorder, LoadRecorder) and self.scenario.sample_s:
            clock.at(0.0, partial(self._sample, self._recorder))
        with _seldom_collected():
            clock.run()
        self._check()
        return self._totals()

    # -- requests -----------------------------------------------------------------------------

    def _next(self) -> None:
        """Look at what the source brings next."""
        clock = self.clock
        arrival = next(self._source, None)
        if arrival is None or arrival.at > self._until:
            self._ahead = None
            clock.holds -= 1
            return
        self._must_be_to_come(arrival)
        self._ahead = arrival
        clock.at(arrival.at, self._comes)

    def _comes(self, now: float) -> None:
        arrival = self._ahead
        assert arrival is not None
        self._deal_out(arrival, now)
        self._next()

    def _follows(self, arrival: Arrival, now: float) -> None:
        self.clock.holds -= 1
        self._deal_out(arrival, now)

    def _deal_out(self, arrival: Arrival, now: float) -> None:
        self._requests += 1
        routers = self.routers
        if len(routers) == 1:
            routers[0].take(arrival, now)
        else:
            routers[int(self._deal.random() * len(routers))].take(arrival, now)
        if self._progress is not None:
            self._progress(now, self._requests, self._ended)

    def _has_ended(self, outcome: Outcome) -> None:
        self._ended += 1
        reason = outcome.reason
        self._ends[reason] = self._ends.get(reason, 0) + 1
        self._recorder.ended(outcome)
        clock = self.clock
        now = clock.now
        following: Iterable[Arrival]
        if reason is Reason.OK:
            following = self._traffic.follow(outcome.arrival, now)
        elif self._goes_on is not None:
            following = self._goes_on.follow_failed(outcome.arrival, now)
        else:
            return
        for arrival in following:
            self._must_be_to_come(arrival)
            if arrival.at <= self._until:
                clock.holds += 1
                clock.at(arrival.at, partial(self._follows, arrival))

    def _must_be_to_come(self, arrival: Arrival) -> None:
        if not self.clock.now <= arrival.at < inf:
            raise ValueError(
                f"{self._traffic.name}: request {arrival.number} comes at {arrival.at} s, "
                f"when it is {self.clock.now} s"
            )

    # -- the world ----------------------------------------------------------------------------

    def _fails(self, fault: Fault, now: float) -> None:
        engine = self.engines[fault.replica]
        engine.fails(fault, now)
        if fault.kind == "kill":
            for router, prober in zip(self.routers, self._probers, strict=True):
                prober.watch(router.fleet.replicas[f"r{fault.replica}"], engine)

    def _recovers(self, fault: Fault, now: float) -> None:
        self.engines[fault.replica].recovers(fault, now)

    def _sample(self, recorder: LoadRecorder, now: float) -> None:
        recorder.sampled(now, [engine.load for engine in self.engines])
        self.clock.at(now + self.scenario.sample_s, partial(self._sample, recorder))

    # -- the end ------------------------------------------------------------------------------

    def _check(self) -> None:
        """Nothing is held by anybody. Raises RuntimeError."""
        leaks = [leak for router in self.routers for leak in router.leaks()]
        for number, engine in enumerate(self.engines):
            core = engine.core
            if engine.load or core.kv_reserved:
                leaks.append(f"engine {number}: {engine.load} requests, {core.kv_reserved} blocks")
        if self._ended != self._requests:
            leaks.append(f"{self._requests} requests came, {self._ended} ended")
        if leaks:
            raise RuntimeError("the simulator leaks: " + "; ".join(leaks))

    def _totals(self) -> Totals:
        metrics = [router.metrics for router in self.routers]
        return Totals(
            events=self.clock.events,
            requests=self._requests,
            ends=self._ends,
            seconds=self.clock.now,
            engines=tuple(engine.totals() for engine in self.engines),
            polls=sum(poller.polls for poller in self.pollers),
            retries=sum(sum(m.retries_by_cause.values()) for m in metrics),
            ejections=sum(sum(m.ejections_by_replica.values()) for m in metrics),
            policy_errors=sum(m.policy_errors for m in metrics),
            hedges=Hedges.of(router.hedger.metrics for router in self.routers),
            queues=counted(router.queue for router in self.routers),
            evictions=sum(r.knowledge.prefixes.stats.evictions for r in self.routers),
        )


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """Look for cycles of garbage rarely: a run makes none, and looking at what is alive thousands
    of times costs it a seventh of its time."""
    usual = gc.get_threshold()
    gc.set_threshold(100_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*usual)
