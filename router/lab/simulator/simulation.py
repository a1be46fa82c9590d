"""A run: one fleet, its routers and their traffic, from the first arrival to the last answer.

The same scenario, traffic and seed give exactly the same outcomes in the same order. Memory does
not grow with the number of requests: one arrival is read ahead, and each outcome is passed to the
recorder and not kept.

Must never: read a real clock, or lose a request without an outcome.
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
from router.fleet.membership import Duty
from router.lab.simulator.clock import Clock
from router.lab.simulator.engine import NeighbourRequest, SimulatedEngine
from router.lab.simulator.hedges import Hedges
from router.lab.simulator.messages import Messages
from router.lab.simulator.outcome import Outcome
from router.lab.simulator.recorder import LoadRecorder, Recorder
from router.lab.simulator.router import SimulatedRouter
from router.lab.simulator.scenario import Fault, Group, Neighbour, Scenario
from router.lab.simulator.signals import SimulatedPoller, SimulatedProber
from router.lab.simulator.totals import Totals, counted
from router.lab.simulator.traffic import Arrival, ContinuesAfterFailure, Traffic

# A function that is called after each arrival, with the simulated time in seconds and the numbers
# of arrived and ended requests.
Progress = Callable[[float, int, int], None]


def simulate(
    scenario: Scenario,
    traffic: Traffic,
    recorder: Recorder,
    *,
    progress: Progress | None = None,
    until: float | None = None,
) -> Totals:
    """Run a simulation to its end. Requests that arrive later than `until` seconds are left out.

    Raises ValueError if the traffic does not fit the scenario or goes back in time. Raises
    PolicyConfigError if the scenario's policy is invalid, and TraceError if a trace is invalid.
    Raises RuntimeError if the simulator itself has a bug (events are missing, or resources are
    still held at the end).
    """
    return Simulation(scenario, traffic, recorder, progress=progress, until=until).run()


class Simulation:
    """A simulation run, which begins with the call of `run`."""

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
        self._after_failure = traffic if isinstance(traffic, ContinuesAfterFailure) else None
        self._recorder = recorder
        self._progress = progress
        self._until = inf if until is None else until
        self._source: Iterator[Arrival] = iter(())
        self._ahead: Arrival | None = None  # the next arrival of the source
        self._requests = 0
        self._ended = 0
        self._ends: dict[Reason, int] = {}
        self.engines = tuple(
            engine for group in scenario.groups for engine in self._engines_of(group)
        )
        self._router_rng = Random(f"deal {scenario.seed}")  # chooses the router of each request
        self._tenants: dict[str, int] = {}  # the number of each tenant, in order of arrival
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
                counts_tokens=config.queue.enabled and Rules(config).bounds_pace,
            )
            for router in self.routers
        )
        for router, poller in zip(self.routers, self.pollers, strict=True):
            if router.queue is not None:
                router.queue.poll_early = poller.poll_early
        self._probers = tuple(
            SimulatedProber(
                clock,
                router.fleet,
                config.health,
                Random(f"probes {router.number} of {scenario.seed}"),
            )
            for router in self.routers
        )
        if scenario.channel is not None and len(self.routers) > 1:
            self._messages = Messages(clock, scenario.channel, self.routers, scenario.seed)
        for fault in scenario.faults:
            clock.at(fault.at, partial(self._begin_fault, fault))
            if fault.until < inf:
                clock.at(fault.until, partial(self._end_fault, fault))
        for number, neighbour in enumerate(scenario.neighbours):
            clock.at(neighbour.at, partial(self._neighbour_arrives, number, neighbour))

    def _engines_of(self, group: Group) -> Iterator[SimulatedEngine]:
        # The simulation needs no events for single tokens, so engines may process many steps at
        # once.
        scenario = self.scenario
        core = replace(
            group.core, token_events=False, leap=True, kv_events=scenario.config.prefix.exact
        )
        network_s = scenario.network_of(group)
        for _ in range(group.replicas):
            yield SimulatedEngine(
                self.clock,
                core,
                group.timing,
                network_s,
                scenario.straggling,
                scenario.seed,
            )

    def run(self) -> Totals:
        """Run the simulation. This method must be called only once."""
        clock = self.clock
        self._source = iter(self._traffic)
        clock.unfinished += 1  # counts the source as unfinished work until it is exhausted
        self._next()
        if isinstance(self._recorder, LoadRecorder) and self.scenario.sample_s:
            clock.at(0.0, partial(self._sample, self._recorder))
        with _rare_garbage_collection():
            clock.run()
        self._check()
        return self._totals()

    # -- requests -----------------------------------------------------------------------------

    def _next(self) -> None:
        """Read the next arrival of the source and schedule it."""
        clock = self.clock
        arrival = next(self._source, None)
        if arrival is None or arrival.at > self._until:
            self._ahead = None
            clock.unfinished -= 1
            return
        self._check_time(arrival)
        self._ahead = arrival
        clock.at(arrival.at, self._arrives)

    def _arrives(self, now: float) -> None:
        arrival = self._ahead
        assert arrival is not None
        self._dispatch(arrival, now)
        self._next()

    def _follower_arrives(self, arrival: Arrival, now: float) -> None:
        self.clock.unfinished -= 1
        self._dispatch(arrival, now)

    def _dispatch(self, arrival: Arrival, now: float) -> None:
        """Give a request to one of its tenant's routers, at random."""
        self._requests += 1
        routers = self.routers
        if len(routers) == 1:
            routers[0].take(arrival, now)
        else:
            each = self.scenario.routers_per_tenant
            number = int(self._router_rng.random() * (each or len(routers)))
            if each:
                tenants = self._tenants
                number += each * tenants.setdefault(arrival.tenant, len(tenants))
            routers[number % len(routers)].take(arrival, now)
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
        elif self._after_failure is not None:
            following = self._after_failure.follow_failed(outcome.arrival, now)
        else:
            return
        for arrival in following:
            self._check_time(arrival)
            if arrival.at <= self._until:
                clock.unfinished += 1
                clock.at(arrival.at, partial(self._follower_arrives, arrival))

    def _check_time(self, arrival: Arrival) -> None:
        if not self.clock.now <= arrival.at < inf:
            raise ValueError(
                f"{self._traffic.name}: request {arrival.number} arrives at {arrival.at} s, but "
                f"the clock is at {self.clock.now} s; arrivals must be in order of time, and finite"
            )

    # -- faults and samples -------------------------------------------------------------------

    def _begin_fault(self, fault: Fault, now: float) -> None:
        if fault.kind == "drain":
            self._set_duty(fault.replica, Duty.DRAINING)
            return
        engine = self.engines[fault.replica]
        engine.begin_fault(fault, now)
        if fault.kind == "kill":
            for router, prober in zip(self.routers, self._probers, strict=True):
                prober.watch(router.fleet.replicas[f"r{fault.replica}"], engine)

    def _end_fault(self, fault: Fault, now: float) -> None:
        if fault.kind == "drain":
            self._set_duty(fault.replica, Duty.IN_SERVICE)
        else:
            self.engines[fault.replica].end_fault(fault, now)

    def _set_duty(self, number: int, duty: int) -> None:
        for router in self.routers:
            router.fleet.set_duty(router.fleet.replicas[f"r{number}"], duty)

    def _neighbour_arrives(self, number: int, neighbour: Neighbour, now: float) -> None:
        request = NeighbourRequest(number, neighbour, self.clock)
        if self.engines[neighbour.replica].receive(request, now):
            self.clock.unfinished += 1

    def _sample(self, recorder: LoadRecorder, now: float) -> None:
        recorder.sampled(now, [engine.load for engine in self.engines])
        self.clock.at(now + self.scenario.sample_s, partial(self._sample, recorder))

    # -- the end ------------------------------------------------------------------------------

    def _check(self) -> None:
        """Check that no router or engine holds a resource. Raises RuntimeError otherwise."""
        leaks = [leak for router in self.routers for leak in router.leaks()]
        for number, engine in enumerate(self.engines):
            core = engine.core
            if engine.load or core.kv_reserved:
                leaks.append(f"engine {number}: {engine.load} requests, {core.kv_reserved} blocks")
        if self._ended != self._requests:
            leaks.append(f"{self._requests} requests arrived, {self._ended} ended")
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
def _rare_garbage_collection() -> Iterator[None]:
    """Run the cyclic garbage collector rarely, and never on objects that exist before the run.

    A run creates no reference cycles, and the usual thresholds cost a seventh of its time. The
    modules, the fleet and its routers are many objects, which each full collection would visit.
    """
    usual = gc.get_threshold()
    gc.set_threshold(1_000_000, 50, 100)
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*usual)
