"""An oracle for comparison: a router that sees the true state of every simulated engine.

It sends each request where that request's own first token comes earliest, with the engine's queue,
batch, prefix cache and the requests on their way known exactly. It is greedy, so it is no bound: a
policy that leaves room for later requests can do better.

Must never be offered to users: no router can know what it knows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, ClassVar

from policies.base import RoutingPolicy
from policies.facts import C, Candidate, Context, Pick, RequestView
from router.dispatch.chooser import Policies
from router.emulator.core.forecast import first_token_s
from router.simulator.engine import SimulatedEngine
from router.simulator.simulation import Simulation

NAME = "oracle"
BASE = "round_robin"  # the configured policy that the oracle replaces


def install(simulation: Simulation) -> None:
    """Let every router of a simulation that has not begun ask one oracle."""
    oracle = Oracle(simulation)
    for router in simulation.routers:
        router.chooser.adopt(Policies(oracle, {}), simulation.scenario.config.routing.sample)


class Oracle(RoutingPolicy):
    """The routing policy of all routers of one simulation."""

    sees_all: ClassVar[bool] = True

    def __init__(self, simulation: Simulation) -> None:
        self._clock = simulation.clock
        self._network_s = simulation.scenario.network_s
        self._engines: dict[Any, SimulatedEngine] = {}
        for router in simulation.routers:
            self._engines |= router.engines
        # Requests that are sent and have not reached their engine: arrival there, tokens, hashes.
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
