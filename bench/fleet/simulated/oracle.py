"""An oracle for comparison: a router that sees the true state of every simulated engine.

It sends each request to the engine on which that request's first token comes earliest. For that it
knows each engine's queue, batch and prefix cache, and the requests on their way. It considers only
the current request, so it is not the best possible router: a policy that leaves room for later
requests can be better.

Must never be offered to users, because no real router has this knowledge.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, ClassVar

from bench.fleet.forecast import first_token_s
from policies.base import RoutingPolicy
from policies.facts import C, Candidate, Context, Pick, RequestView
from router.dispatch.chooser import Policies
from router.lab.simulator.engine import SimulatedEngine
from router.lab.simulator.simulation import Simulation

NAME = "oracle"
BASE = "round_robin"  # the policy in the configuration, which the oracle replaces


def install(simulation: Simulation) -> None:
    """Make all routers of a simulation use one oracle. The simulation must not have begun."""
    oracle = Oracle(simulation)
    for router in simulation.routers:
        router.chooser.policies = Policies(oracle, {}, simulation.scenario.config.routing.sample)


class Oracle(RoutingPolicy):
    """The oracle, as a routing policy that all routers of one simulation share."""

    sees_all: ClassVar[bool] = True

    def __init__(self, simulation: Simulation) -> None:
        self._clock = simulation.clock
        self._network_s = simulation.scenario.network_s
        self._engines: dict[Any, SimulatedEngine] = {}
        for router in simulation.routers:
            self._engines |= router.engines
        # Requests that were sent and have not reached their engine: time of arrival at the engine,
        # prompt tokens, block hashes.
        self._sent: dict[SimulatedEngine, deque[tuple[float, int, Sequence[int]]]] = {}

    def pick(self, view: RequestView, candidates: Sequence[C], ctx: Context) -> Pick[C]:
        best = min(candidates, key=lambda one: (self._first_token_s(view, one), one.load))
        return Pick(best, "true state")

    def on_dispatch(self, view: RequestView, candidate: Candidate, ctx: Context) -> None:
        sent = self._sent.setdefault(self._engines[candidate], deque())
        sent.append((self._clock.now + self._network_s, view.prompt_tokens, view.blocks))

    def _first_token_s(self, view: RequestView, candidate: Candidate) -> float:
        now = self._clock.now
        engine = self._engines[candidate]
        sent = self._sent.get(engine)
        while sent and sent[0][0] <= now:
            sent.popleft()
        before = [(tokens, hashes) for _, tokens, hashes in sent] if sent else ()
        return first_token_s(engine.core, view.prompt_tokens, view.blocks, now, before=before)
