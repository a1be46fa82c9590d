"""Chooses the replica for a request with the routing policy of the request's model.

The policy learns which replicas hold the prompt's prefix. If a policy raises or returns an invalid
choice, the request goes to a random candidate; the failure is counted and logged. In large fleets,
a policy gets only a sample of the candidates, and the candidates that hold the prefix. Examining a
thousand replicas would cost more than the slightly better choice is worth. In a fleet of several
regions, a policy gets only candidates of the nearest region that is not full
(`fleet/regions/nearest.py`). For a request of a LoRA adapter, a policy gets only candidates that
need not load the adapter, up to a bound (`preferences.py`).

Must never: do I/O, or count load (the lease counts it).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Final

from policies.contract import Context, RequestView, RoutingPolicy, make_policy
from router.config.model import Routing
from router.core.replica_load import ReplicaLoad
from router.dispatch.preferences import preferred_by_class, preferred_for
from router.fleet.adapters import AdapterNames
from router.fleet.prefix.lookup import PrefixLookup
from router.fleet.regions.nearest import Nearest
from router.fleet.replica import Replica
from router.observe.events import log_event
from router.observe.metrics import Metrics

_NOBODY: Final[Mapping[Replica, int]] = {}


class Policies:
    """The policies of one configuration. All policies are built and replaced together."""

    __slots__ = (
        "by_model",
        "closes",
        "default",
        "hears_dispatch",
        "hears_finish",
        "hears_first_token",
        "sample",
    )

    def __init__(
        self, default: RoutingPolicy, by_model: Mapping[str, RoutingPolicy], sample: int
    ) -> None:
        """`sample`: the most candidates that a policy gets."""
        self.default = default
        self.by_model = by_model
        self.sample = sample
        # A hook method that no policy overrides is not called.
        self.hears_dispatch = _overridden(self, "on_dispatch")
        self.hears_first_token = _overridden(self, "on_first_token")
        self.hears_finish = _overridden(self, "on_finish")
        self.closes = [p for p in self.all() if _overrides(p, "closed_to")]

    @staticmethod
    def of(routing: Routing) -> Policies:
        """Build the policies. Raises PolicyConfigError."""
        return Policies(
            make_policy(routing.policy, routing.options),
            {name: make_policy(c.policy, c.options) for name, c in routing.models.items()},
            routing.sample,
        )

    def all(self) -> list[RoutingPolicy]:
        return [self.default, *self.by_model.values()]


class Chooser:
    """Chooses replicas for one router."""

    def __init__(
        self,
        policies: Policies,
        knowledge: PrefixLookup,
        metrics: Metrics,
        rng: Random,
        nearest: Nearest | None = None,
        adapters: AdapterNames | None = None,
    ) -> None:
        """`nearest`: the order of the regions; `None`: all candidates are equally near.

        `adapters`: the models that are LoRA adapters; `None`: none is.
        """
        self._adapters = AdapterNames() if adapters is None else adapters
        self._nearest = nearest
        self._knowledge = knowledge
        self._metrics = metrics
        self._rng = rng
        self._ctx = Context(rng)
        # The prompt blocks of the last prefix lookup; `None`: it was used for a dispatch. A later
        # attempt of the same request may be sent minutes later, after blocks were evicted.
        self._asked: tuple[int, ...] | None = None
        # The replicas found by the last prefix lookup, with the number of blocks that each holds.
        self._held: Mapping[Replica, int] = _NOBODY
        self._crowd: Sequence[Replica] = ()  # The candidates of the last choice in a large fleet.
        self._places: dict[Replica, int] = {}  # The index of each replica in `_crowd`.
        # The sum of the policies' `plan_changes`, after the last call of `closed_to`.
        self.plan_changes = 0
        self.has_spot = False  # Whether any replica of the fleet is a spot replica.
        self.policies = policies  # A reload replaces them.

    def fleet_changed(
        self,
        ids: frozenset[str],
        replicas: Mapping[str, Replica],
        failed: Callable[[Exception], object],
    ) -> None:
        """Tell the policies the IDs of all replicas, because the fleet or the policies changed.

        `failed`: called with the error of a policy, which is counted.
        """
        for policy in self.policies.all():
            try:
                policy.on_fleet_change(ids)
            except Exception as err:
                self._metrics.policy_errors += 1
                failed(err)
        self.look_for_spot(replicas)

    def look_for_spot(self, replicas: Mapping[str, Replica]) -> None:
        """Update whether any replica is a spot replica, after the fleet or a replica changed."""
        self.has_spot = any(replica.is_spot for replica in replicas.values())

    def choose(self, view: RequestView, candidates: Sequence[Replica], now: float) -> Replica:
        """Return the policy's choice among `candidates`, or a random one if the policy fails."""
        if len(candidates) == 1:
            return candidates[0]
        candidates = self.nearby(view, candidates, now)
        policy = self._policy_of(view)
        blocks = view.blocks
        held = self._knowledge.held(view) if blocks else _NOBODY
        self._asked, self._held = blocks, held
        if self._adapters.is_used and not policy.sees_all:
            adapter = self._adapters.of(view.model)
            if adapter:
                candidates = preferred_for(adapter, candidates, held)
        if len(candidates) > self.policies.sample and not policy.sees_all:
            candidates = self._window(candidates, held)
        if self.has_spot:
            candidates = preferred_by_class(candidates, view.urgency)
        ctx = self._ctx
        ctx.now = now
        ctx.held = held
        try:
            chosen = policy.pick(view, candidates, ctx).candidate
            if chosen in candidates:
                return chosen
            problem = f"it chose {chosen!r}, which is not a candidate"
        except Exception as err:
            problem = repr(err)
        self._failed(policy, problem)
        return self._rng.choice(candidates)

    def nearby(
        self, view: RequestView, candidates: Sequence[Replica], now: float
    ) -> Sequence[Replica]:
        """Return the candidates that are in the nearest region that is not full."""
        nearest = self._nearest
        if nearest is None or not nearest.is_used:
            return candidates
        return nearest.narrow(view, candidates, now)

    def closed_to(self, replica: ReplicaLoad, leaving: int = -1) -> int:
        """Return the priority classes of which a replica gets no more requests now, as bits.

        A class is closed if any policy closes it. `leaving`: see `RoutingPolicy.closed_to`.
        """
        found = changes = 0
        for policy in self.policies.closes:
            try:
                found |= policy.closed_to(replica, leaving)
                changes += policy.plan_changes()
            except Exception as err:
                self._failed(policy, f"closed_to: {err!r}")
        self.plan_changes = changes
        return found

    def _policy_of(self, view: RequestView) -> RoutingPolicy:
        policies = self.policies
        if policies.by_model and view.model is not None:
            return policies.by_model.get(view.model, policies.default)
        return policies.default

    def _window(
        self, candidates: Sequence[Replica], held: Mapping[Replica, int]
    ) -> Sequence[Replica]:
        """Return `sample` adjacent candidates from a random index on, and the candidates that hold
        the prefix."""
        count = len(candidates)
        start = int(self._rng.random() * count)
        window = [*candidates[start : start + self.policies.sample]]
        if len(window) < self.policies.sample:
            window += candidates[: self.policies.sample - len(window)]
        # If very many replicas hold the prefix, the adjacent candidates contain some of them in
        # most cases.
        if 0 < len(held) <= self.policies.sample:
            # The tuple of candidates changes only when the fleet changes.
            if candidates is not self._crowd:
                self._crowd = candidates
                self._places = {c: place for place, c in enumerate(candidates)}
            places = self._places
            for holder in held:
                place = places.get(holder)
                if place is not None and (place - start) % count >= self.policies.sample:
                    window.append(holder)
        return window

    def _holders(self, view: RequestView) -> Mapping[Replica, int]:
        """Return the replicas that hold blocks of the prompt, and how many blocks each holds."""
        blocks = view.blocks
        return self._held if self._asked is blocks else self._knowledge.held(view)

    def uncached_at(self, view: RequestView, replica: Replica) -> int:
        """Estimate the prompt tokens that `replica` does not hold."""
        return _uncached(view, self._holders(view).get(replica, 0) if view.blocks else 0)

    def uncached_at_best(self, view: RequestView) -> int:
        """Estimate the uncached prompt tokens at the replica that holds most of the prompt."""
        return _uncached(view, max(self._holders(view).values(), default=0) if view.blocks else 0)

    # -- events of an attempt -----------------------------------------------------------------

    def dispatched(self, view: RequestView, replica: Replica, now: float) -> tuple[int, int]:
        """Add the request's prefix to the index entry of `replica`, to which the request is sent.

        The index is updated at once, so that a burst of similar requests goes to one replica.
        Returns the estimated uncached prompt tokens, and the number of leading blocks held at the
        replica.
        """
        blocks = view.blocks
        held, holders = 0, _NOBODY
        if blocks:
            holders = self._holders(view)
            held = holders.get(replica, 0)
            self._knowledge.sent(replica, blocks, held)
        self._asked, self._held = None, _NOBODY
        tokens = _uncached(view, held)
        if self._adapters.is_used:
            adapter = self._adapters.of(view.model)
            if adapter:
                replica.loaded_adapters.use(adapter)
        if self.policies.hears_dispatch:
            policy = self._policy_of(view)
            ctx = self._ctx
            ctx.now = now
            ctx.held = holders
            try:
                policy.on_dispatch(view, replica, ctx)
            except Exception as err:
                self._failed(policy, f"on_dispatch: {err!r}")
        return tokens, held

    def withdrawn(self, view: RequestView, replica: Replica, held: int) -> None:
        """Remove the prefix of an attempt that showed no content, or only an error.

        The replica may not have prefilled the prompt.
        """
        if view.blocks:
            self._knowledge.failed(replica, view.blocks, held)

    def shown(
        self, view: RequestView, replica: Replica, held: int, ttft_s: float | None, now: float
    ) -> None:
        """Handle an attempt's first content.

        `ttft_s`: seconds to the first content; `None` if the content is the whole answer.
        """
        if view.blocks:
            self._knowledge.begun(replica, view.blocks, held)
        if self.policies.hears_first_token and ttft_s is not None:
            self._tell("on_first_token", now, view, replica, ttft_s)

    def finished(
        self, view: RequestView, replica: Replica, output_tokens: int | None, now: float
    ) -> None:
        """Handle the end of an attempt; called once. `output_tokens`: `None` if unknown."""
        if self.policies.hears_finish:
            self._tell("on_finish", now, view, replica, output_tokens)

    def _tell(
        self, hook: str, now: float, view: RequestView, replica: Replica, *facts: object
    ) -> None:
        policy = self._policy_of(view)
        ctx = self._ctx
        ctx.now = now
        ctx.held = _NOBODY
        try:
            getattr(policy, hook)(view, replica, *facts, ctx)
        except Exception as err:
            self._failed(policy, f"{hook}: {err!r}")

    def _failed(self, policy: RoutingPolicy, problem: str) -> None:
        self._metrics.policy_errors += 1
        log_event(
            logging.ERROR,
            "the routing policy failed",
            policy=type(policy).__name__,
            error=problem,
        )


def _uncached(view: RequestView, held: int) -> int:
    """The prompt tokens after `held` blocks."""
    tokens = view.prompt_tokens
    return max(0, tokens - int(held * view.block_tokens)) if held else tokens


def _overridden(policies: Policies, hook: str) -> bool:
    return any(_overrides(policy, hook) for policy in policies.all())


def _overrides(policy: RoutingPolicy, hook: str) -> bool:
    return getattr(type(policy), hook) is not getattr(RoutingPolicy, hook)
