"""One simulated router: the objects that decide in the proxy, built as `app/parts.py` builds them,
on a virtual clock and without anything that touches a socket.

A router sees the others only as everybody does: through what engines tell.

Must never: decide anything itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any, Final, cast

from policies.contract import RequestView
from router.config.model import Prefix, Retry, Routing
from router.config.model import Replica as ReplicaConfig
from router.core.urgency import NORMAL, NUMBERS, stepped
from router.dispatch.chooser import Chooser, Policies
from router.dispatch.engine_numbers import EPOCH, deadline_number, level_s
from router.dispatch.hedger import Hedger
from router.dispatch.retry import Budget
from router.fleet.knowledge import Knowledge
from router.fleet.prefix import TokenRatio
from router.fleet.replica import Replica
from router.fleet.table import Fleet
from router.intake.flow import NO_FLOW, Flow, Pending
from router.observe.hedge_counts import HedgeCounts
from router.observe.metrics import Metrics
from router.simulator.clock import Clock, Timers
from router.simulator.engine import SimulatedEngine
from router.simulator.exchange import SimulatedExchange
from router.simulator.line import SimulatedLine
from router.simulator.outcome import Outcome
from router.simulator.scenario import Scenario
from router.simulator.traffic import Arrival

# A router measures prompts in bytes. Traffic comes in tokens; it is given this many bytes for each,
# which is what the router assumes, and never learns otherwise.
TOKEN_BYTES: Final = TokenRatio.DEFAULT


class SimulatedRouter:
    """All that one router knows, and the requests that are under way through it."""

    def __init__(
        self,
        number: int,
        clock: Clock,
        scenario: Scenario,
        engines: Sequence[SimulatedEngine],
        on_end: Callable[[Outcome], None],
    ) -> None:
        """Raises PolicyConfigError."""
        self.number = number
        self.most_attempts = scenario.attempts
        self.first_token_s = scenario.first_token_s
        self.whole_s = scenario.whole_s
        self.token_gap_s = scenario.token_gap_s
        self.exchanges: dict[int, SimulatedExchange] = {}  # under way, by number
        self.arrived = 0
        self._clock = clock
        self._on_end = on_end
        self._rng = rng = Random(f"router {number} of {scenario.seed}")
        core = scenario.core
        rules = Prefix(
            block_bytes=int(core.block_size * TOKEN_BYTES),
            blocks=scenario.prefix_blocks,
            entries=scenario.prefix_entries,
            kv_tokens=core.num_blocks * core.block_size,
        )
        self._most_blocks = rules.blocks
        self.metrics = Metrics()
        self.knowledge = Knowledge(rules)
        routing = Routing(
            policy=scenario.policy, options=dict(scenario.options), sample=scenario.sample
        )
        self.policies = Policies.of(routing)
        self.fleet = Fleet(
            scenario.health,
            cast(Any, Timers(clock)),
            rng,
            self._fleet_changed,
            self._fleet_event,
            self.knowledge,
            scenario.polls.stale_s,
            clock,
        )
        self.chooser = Chooser(
            self.policies, routing.sample, self.knowledge, self.metrics, rng, clock
        )
        self._retry = Retry(attempts=scenario.attempts)
        self.budget = Budget(self._retry)
        self.hedger = Hedger(scenario.hedging, self.fleet, HedgeCounts())
        self.engines: dict[Replica, SimulatedEngine] = {}
        for index, engine in enumerate(engines):
            config = ReplicaConfig(url=f"http://replica-{index}", id=f"r{index}")
            replica = Replica(config, scenario.health, cast(Any, _NoPool()))
            self.engines[replica] = engine
            self.fleet.add(replica)
        self._pending = Pending()  # requests of each flow
        self._steps = scenario.steps
        self._tells_priority = core.priority_scheduling
        self._level_s = level_s(scenario.queue.aging)
        self.line: SimulatedLine | None = None  # of those that wait for a replica
        if scenario.queue.enabled:
            self.line = SimulatedLine(
                scenario.queue, clock, self.fleet, self.knowledge, self.chooser, self.metrics
            )

    # -- requests -----------------------------------------------------------------------------

    def take(self, arrival: Arrival, now: float) -> None:
        """A request arrives."""
        self.arrived = number = self.arrived + 1
        flow = _flow(arrival)
        steps = self._pending.come(flow) if self._steps_by(flow) else 0
        exchange = SimulatedExchange(self, number, arrival, flow, steps, now)
        self.exchanges[number] = exchange
        self.budget.requests += 1
        self._clock.holds += 1
        exchange.start(now)

    def view(self, arrival: Arrival) -> RequestView:
        """What the intake would have made of its body."""
        view = RequestView(arrival.kind, arrival.model, arrival.stream)
        prompt_bytes = int(arrival.prompt_tokens * TOKEN_BYTES)
        self.knowledge.measure(view, arrival.blocks[: self._most_blocks], prompt_bytes)
        view.session = arrival.session
        return view

    def urgency(self, arrival: Arrival, steps: int) -> float:
        """How urgent a request is that has come, as `dispatch/tenants.py` has it. `steps`: requests
        of its flow that were pending before it."""
        number = float(NUMBERS.get(arrival.priority, NORMAL))
        return stepped(number, steps) if steps else number

    def _steps_by(self, flow: Flow) -> bool:
        """Whether the pending requests of the flow make its next one less urgent."""
        if not self._steps or flow.counted == NO_FLOW.counted:
            return False
        return self.line is None or not self.line.is_fair

    def told(self, urgency: float, arrived: float) -> int:
        """The number that an engine gets: vLLM's, as all simulated engines take it; lower first."""
        if not self._tells_priority:
            return 0
        return deadline_number(urgency, EPOCH + arrived, self._level_s)

    def backoff_s(self, attempts: int) -> float:
        """The pause before another attempt, as `Dispatcher.backoff_s`."""
        rules = self._retry
        longest = min(rules.backoff_s * (2.0**attempts - 1.0), rules.backoff_max_s)
        return self._rng.random() * longest

    def call_at(self, when: float, number: int) -> None:
        """Look at the deadlines of an exchange then, if it is still there."""
        self._clock.at(when, partial(self._deadline, number))

    def _deadline(self, number: int, now: float) -> None:
        exchange = self.exchanges.get(number)
        if exchange is not None:
            exchange.on_deadline(now)

    def ended(self, exchange: SimulatedExchange) -> None:
        """A request is over."""
        del self.exchanges[exchange.number]
        if self._steps_by(exchange.flow):
            self._pending.go(exchange.flow)
        self.budget.requests -= 1
        self._clock.holds -= 1
        self._on_end(exchange.outcome)

    # -- what the parts report ----------------------------------------------------------------

    def _fleet_changed(self, ids: frozenset[str]) -> None:
        for policy in self.policies.all():
            try:
                policy.on_fleet_change(ids)
            except Exception:  # as the proxy: it is counted, and harms no request
                self.metrics.policy_errors += 1
        self.hedger.fleet_changed()

    def _fleet_event(self, what: str, replica: Replica) -> None:
        if what == "ejected":
            self.metrics.ejections(replica.id)

    # -- the end ------------------------------------------------------------------------------

    def leaks(self) -> list[str]:
        """What is still held although every request is over: nothing, or there is an error."""
        found = []
        if self.exchanges:
            found.append(f"router {self.number}: {len(self.exchanges)} requests under way")
        if self.budget.requests or self.budget.retries:
            found.append(f"router {self.number}: the retry budget is not given back")
        if len(self._pending):
            found.append(f"router {self.number}: {len(self._pending)} flows have requests pending")
        if self.line is not None and self.line.pools.waiting:
            found.append(f"router {self.number}: {self.line.pools.waiting} requests wait")
        for replica in self.fleet.replicas.values():
            own = (
                replica.inflight,
                replica.waiting - replica.foreign_waiting,
                replica.load - replica.foreign_load,
                replica.pending_tokens,
                replica.whole_fresh,
                replica.whole_older,
                replica.whole_taken,
                replica.whole_seen,
            )
            if any(own):
                found.append(f"router {self.number}: leases of {replica.id} are out: {own}")
        return found


def _flow(arrival: Arrival) -> Flow:
    user = f"{arrival.user:x}" if arrival.user else ""
    return Flow(arrival.tenant, arrival.within, user, is_known=arrival.is_known)


class _NoPool:
    """A replica's connections, where there are none."""

    __slots__ = ()

    def close(self) -> None:
        pass

    def give_up(self) -> None:
        pass

    def close_idle(self) -> None:
        pass
