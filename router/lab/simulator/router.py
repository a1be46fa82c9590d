"""One simulated router: the objects with which the proxy decides, on a virtual clock.

These objects are created as in `app/parts.py`. A router learns of other routers' requests only
through the engines' metrics.

Must never: decide anything itself.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any, Final, cast

import msgspec

from policies.contract import RequestView
from router.config.model import Config, Prefix, Replica as ReplicaConfig
from router.core.addons import load
from router.core.errors import RouterError
from router.core.urgency import NUMBERS, Urgency
from router.dispatch.chooser import Chooser, Policies
from router.dispatch.context import Context
from router.dispatch.driver.placing import admit
from router.dispatch.driver.request_end import release_share
from router.dispatch.hedging.hedger import Hedger
from router.dispatch.tenants import Tenants, may_hedge
from router.fleet.engines.common.descriptor import Engine
from router.fleet.engines.common.priority import EPOCH, deadline_number
from router.fleet.names import Names, Target
from router.fleet.prefix.lookup import PrefixLookup
from router.fleet.prefix.token_ratio import TokenRatio
from router.fleet.replica import Replica
from router.fleet.table.fleet import Fleet
from router.intake.flow import Flow
from router.intake.keys import Key, Keyring
from router.intake.prompt import GENERATES
from router.lab.simulator.clock import Clock, ClockScheduler, Timers
from router.lab.simulator.engine import SimulatedEngine
from router.lab.simulator.exchange import RouterPort, SimulatedExchange
from router.lab.simulator.kv_feed import token_ids
from router.lab.simulator.outcome import Outcome
from router.lab.simulator.scenario import Group, Scenario
from router.lab.simulator.traffic import Arrival
from router.observe.hedge_counts import HedgeCounts
from router.observe.metrics import Metrics
from router.share.own import own_load

# The router measures prompts in bytes, but traffic has lengths in tokens. Each token counts as this
# many bytes. This is the router's default ratio, so the ratio that the router learns is the same.
TOKEN_BYTES: Final = TokenRatio.DEFAULT
# Deadlines that are further away than this, in seconds, are grouped by whole seconds and moved to
# the clock when their second begins. Most requests have ended by then. A clock that held minutes of
# deadlines would make every event slower.
FAR_S: Final = 2.0
# Simulated engines count their tokens in each step; nothing else is known about them.
_ENGINE: Final = Engine("", counts_live=True)
_SOURCE: Final = "traffic"  # the source that is reported for a request's urgency
_URGENCIES: Final = {name: Urgency(float(number), _SOURCE) for name, number in NUMBERS.items()}


class SimulatedRouter(RouterPort):
    """The state of one router, and its requests in progress."""

    def __init__(
        self,
        number: int,
        clock: Clock,
        scenario: Scenario,
        engines: Sequence[SimulatedEngine],
        on_end: Callable[[Outcome], None],
    ) -> None:
        """Create a router. Raises PolicyConfigError if the policy's configuration is invalid."""
        self.number = number
        self.exchanges: dict[int, SimulatedExchange] = {}  # requests in progress, by number
        self.arrived = 0
        self._clock = clock
        self._on_end = on_end
        rng = Random(f"router {number} of {scenario.seed}")
        config = scenario.config
        rules = _prefix_rules(scenario)
        self._most_blocks = rules.blocks
        self.metrics = Metrics()
        # The proxy's prefix index has several shards, so that no resize blocks the event loop for
        # long. The simulator has no event loop, so one shard is enough.
        self.knowledge = PrefixLookup(rules, shards=1)
        # The index of the engines' KV cache events; None: `prefix.exact` is off.
        self.exact: Any = None
        self._kv_events: Any = None  # The addon.
        if rules.exact:
            self._kv_events = load("kv_events", "prefix.exact")
            self.exact = self._kv_events.ExactIndex(rules.entries)
        self.knowledge.exact = self.exact
        self._block_tokens = scenario.core.block_size
        self.fleet = Fleet(
            config.health,
            cast(Any, Timers(clock)),
            rng,
            self._fleet_changed,
            self._fleet_event,
            self.knowledge,
            config.polling.stale_s,
            clock,
        )
        self.fleet.nearest.adopt(config)
        self.fleet.adopt_names(Names(config))
        self.chooser = Chooser(
            Policies.of(config.routing),
            self.knowledge,
            self.metrics,
            rng,
            self.fleet.nearest,
            self.fleet.adapter_names,
        )
        self.hedger = Hedger(config.hedging, self.fleet, HedgeCounts())
        self.engines: dict[Replica, SimulatedEngine] = {}
        each = [group for group in scenario.groups for _ in range(group.replicas)]
        for index, (group, engine) in enumerate(zip(each, engines, strict=True)):
            replica = _replica(index, group, config)
            self.engines[replica] = engine
            if self.exact is not None and engine.feed is not None:
                engine.feed.subscribe(self.exact, replica)
            # A probe of an idle engine measures the delay of the network in both directions.
            replica.timed(2.0 * scenario.network_of(group), clock())
        self.fleet.add_all(list(self.engines))
        # Deadlines that are not on the clock yet, by whole second: times and request numbers.
        self._far: dict[int, tuple[array[float], array[int]]] = {}
        self._keys = {tenant: Key(line) for tenant, line in scenario.keys.items()}
        self.tenants = Tenants(config, Keyring(tuple(scenario.keys.values())), _hashed, clock.now)
        self._sends_priority = any(group.core.priority_scheduling for group in scenario.groups)
        self._usual = _URGENCIES[config.priority.default]
        self.context = Context(
            config,
            self.fleet,
            self.chooser,
            self.hedger,
            self.metrics,
            ClockScheduler(clock),
            rng,
        )
        self.queue = self.context.queue  # None: the router has no queue and sends at once

    # -- requests -----------------------------------------------------------------------------

    def take(self, arrival: Arrival, now: float) -> None:
        """Process the arrival of a request."""
        self.arrived = number = self.arrived + 1
        key = self._keys.get(arrival.tenant) if arrival.is_known else None
        flow = _flow(arrival, key)
        urgency = _URGENCIES.get(arrival.priority, self._usual)
        if arrival.priority_number >= 0.0:  # not NaN
            urgency = Urgency(arrival.priority_number, _SOURCE)
        named = self.fleet.models.names.find(arrival.model)
        target: Target | None = None
        if named is not None:
            # The log has the session's salted hash, so a session may get another target here.
            target = named.target(arrival.session, flow.party, f"{self.number}.{number}")
        exchange = SimulatedExchange(
            self,
            self.context,
            self.number,
            number,
            arrival,
            self.view(arrival, target),
            urgency,
            flow,
            may_hedge(key),
            now,
        )
        exchange.named, exchange.target = named, target
        self.exchanges[number] = exchange
        self._clock.unfinished += 1
        deadline_s, ttft_slo_s = arrival.deadline_s, arrival.ttft_slo_s
        try:
            admit(
                exchange.driver, self.tenants, key, flow, deadline_s, ttft_slo_s, arrival.tpot_slo_s
            )
        except RouterError as err:
            exchange.answer(err)
            return
        exchange.start(self._engine_priority(exchange.urgency, arrival.at))

    def view(self, arrival: Arrival, target: Target | None) -> RequestView:
        """The policy's view of the request, which the proxy would create from the body.

        `target`: the model that the request's name stands for; `None`: the name means itself.
        """
        prompt_bytes = int(arrival.prompt_tokens * TOKEN_BYTES)
        # The answer to a request without output tokens is never streamed.
        streamed = arrival.stream and arrival.output_tokens > 0
        model = arrival.model if target is None else target.routed
        view = RequestView(arrival.kind, model, streamed, prompt_bytes)
        blocks = arrival.blocks[: self._most_blocks]
        self.knowledge.measure(view, blocks, prompt_bytes)
        if arrival.kind in GENERATES:
            view.bounded_bytes = prompt_bytes
        view.output_limit = arrival.max_tokens
        if self.exact is not None:
            known = token_ids(arrival.blocks, self._block_tokens, arrival.prompt_tokens)
            view.chains = self._kv_events.TokenChains(known)
        view.session = arrival.session
        return view

    def _engine_priority(self, urgency: Urgency, arrived: float) -> int:
        """The `priority` sent to engines, on vLLM's scale: lower numbers run first."""
        if not self._sends_priority:
            return 0
        return deadline_number(urgency.number, EPOCH + arrived, self.context.rules.level_s)

    def engine_of(self, replica: Replica) -> SimulatedEngine:
        return self.engines[replica]

    def call_at(self, when: float, number: int) -> None:
        """Check the deadlines of a request at the time `when`, if it has not ended by then."""
        clock = self._clock
        if when < clock.now + FAR_S:
            clock.at(when, partial(self._deadline, number))
            return
        second = int(when)
        far = self._far.get(second)
        if far is None:
            far = self._far[second] = array("d"), array("q")
            clock.at(float(second), partial(self._begin_second, second))
        far[0].append(when)
        far[1].append(number)

    def _begin_second(self, second: int, now: float) -> None:
        """Move the deadlines of this second to the clock, except those of ended requests."""
        clock, exchanges = self._clock, self.exchanges
        for when, number in zip(*self._far.pop(second), strict=True):
            if number in exchanges:
                clock.at(when, partial(self._deadline, number))

    def _deadline(self, number: int, now: float) -> None:
        exchange = self.exchanges.get(number)
        if exchange is not None:
            exchange.on_deadline(now)

    def ended(self, exchange: SimulatedExchange) -> None:
        del self.exchanges[exchange.number]
        release_share(exchange, self.context, 0, self._clock.now)
        self._clock.unfinished -= 1
        self._on_end(exchange.outcome)

    # -- events of the fleet ------------------------------------------------------------------

    def _fleet_changed(self, ids: frozenset[str]) -> None:
        self.chooser.fleet_changed(ids, self.fleet.replicas, _ignore)
        self.hedger.times.fleet_changed()

    def _fleet_event(self, what: str, replica: Replica) -> None:
        if what == "ejected":
            self.metrics.ejections(replica.id)

    # -- the end ------------------------------------------------------------------------------

    def leaks(self) -> list[str]:
        """Describe each resource that is still held after all requests have ended.

        A list with entries means a bug in the simulator.
        """
        found = []
        if self.exchanges:
            found.append(f"router {self.number}: {len(self.exchanges)} requests in progress")
        budget = self.context.budget
        if budget.requests or budget.retries:
            found.append(f"router {self.number}: the retry budget is not released")
        tenants = self.tenants
        if len(tenants.pending):
            flows = len(tenants.pending)
            found.append(f"router {self.number}: {flows} flows have pending requests")
        if tenants.under_way or tenants.at_replicas:
            found.append(f"router {self.number}: limits of keys are not released")
        if self.queue is not None and self.queue.pools.waiting:
            found.append(f"router {self.number}: {self.queue.pools.waiting} requests in the queue")
        for replica in self.fleet.replicas.values():
            own = (
                replica.inflight,
                *own_load(replica),
                replica.whole_fresh,
                replica.whole_older,
                replica.whole_taken,
                replica.whole_seen,
            )
            if any(own):
                found.append(f"router {self.number}: leases of {replica.id} are held: {own}")
        return found


def _replica(index: int, group: Group, config: Config) -> Replica:
    """The router's replica object for the replica number `index` of the fleet."""
    settings = ReplicaConfig(
        url=f"http://replica-{index}",
        id=f"r{index}",
        models=group.models,
        weight=group.weight,
        max_inflight=group.max_inflight,
        max_model_len=group.max_model_len,
        zone=group.zone,
        node=group.node,
        region=group.region or config.region,
        pool=group.pool,
    )
    replica = Replica(settings, config.health, None)
    replica.descriptor = _ENGINE
    return replica


def _prefix_rules(scenario: Scenario) -> Prefix:
    """The prefix settings of the configuration, converted to the traffic's block size.

    The limits still cover the same number of tokens. Until an engine reports the size of its KV
    cache, the largest size in the fleet is assumed.
    """
    rules = scenario.config.prefix
    block_bytes = int(scenario.core.block_size * TOKEN_BYTES)
    finer = rules.block_bytes / block_bytes
    return msgspec.structs.replace(
        rules,
        block_bytes=block_bytes,
        blocks=max(1, int(rules.blocks * finer)) if rules.enabled else 0,
        entries=max(1, int(rules.entries * finer)),
        kv_tokens=max(g.core.num_blocks * g.core.block_size for g in scenario.groups),
    )


def _flow(arrival: Arrival, key: Key | None) -> Flow:
    user = f"{arrival.user:x}" if arrival.user else ""
    name, weight = ("", 1.0) if key is None else (key.name, key.weight)
    return Flow(
        arrival.tenant, arrival.within, user, is_known=arrival.is_known, name=name, weight=weight
    )


def _ignore(_err: Exception) -> None:
    """A policy's error is only counted."""


def _hashed(value: bytes) -> str:
    """Decode a tenant's ID without hashing it, because the tenants of arrivals are hashes."""
    return value.decode("utf-8", "replace")
