"""Send requests to the replicas where they gain most; delay those that cost more than they gain.

Source: the objective is PROSERVE's token-level deadline-aware gain (arXiv 2512.12928): a token
counts with the worth of its request if it comes before its deadline, `TTFT SLO + i * TPOT SLO`
after the arrival. The paper does not print the routing algorithm; this is a reconstruction.

For each replica the policy predicts, from the replica's learned speed, the request's time to first
token, and the speed of all streams at the replica if the request is added:

    gain = worth * (first * P(first token in time) + expected tokens in time)
    loss = worth of the tokens that become late on the streams that run there: because all streams
           become slower, and because they stand still while the prompt is prefilled

The request goes to the replica where gain less loss is highest. Among nearly equal replicas, the
*reserve* rule decides, which PolyServe (arXiv 2507.17769) and llm-d use as well. A request of the
classes normal to batch with a short prompt goes to the fullest of these replicas, so that the other
replicas stay empty. An urgent request, or a request with a long prompt, goes to the replica with
the earliest first token.

While requests wait in the queue, the queue chooses a request for each free replica, instead of a
replica for each request. Then `closed_to` keeps a class away from a replica on which its requests
would make streams of more worth too slow.

Predictions are uncertain. So the probability that a token is in time falls gradually from 1 to 0
around its deadline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from policies.base import RoutingPolicy
from policies.contract import policy
from policies.facts import C, Candidate, Context, Pick, RequestView
from policies.registry import PolicyConfigError
from policies.routing.prompts import prompt_tokens
from policies.routing.replica_plan import CLASSES, NOBODY, USUAL_OUTPUT, ReplicaPlan
from policies.routing.ties import draw, least_loaded, lowest
from policies.token_deadlines import on_time

_HIGH: Final = 1
ALL_CLASSES: Final = (1 << CLASSES) - 1
_NO_SLO: Final = float("inf")
_NEVER: Final = float("inf")


@dataclass
class Gain(RoutingPolicy):
    """The replica with the highest gain less loss, in tokens times worth.

    The state of the policy is the number of running requests of each replica by class.
    """

    # Replicas are nearly equal if their gain is lower than the best gain by at most this share.
    near: float = 0.02
    # How many other tokens the first token is worth (PROSERVE's w_p / w_d).
    first: float = 20.0
    # If a predicted time differs from its SLO by at most this share, the SLO may be kept or missed.
    doubt: float = 0.3
    # A prompt counts as long if it has more uncached tokens than this.
    long_tokens: int = 4096
    # Whether classes are kept away from replicas on which they would lose more than they gain.
    holds: bool = True

    # The capacity kept free for a class, as a share of its running requests.
    spare: float = 0.2

    # One plan for each set of models: it covers the replicas that serve exactly these models.
    _plans: dict[frozenset[str] | None, ReplicaPlan] = field(init=False, repr=False)
    # By replica ID: the plan that has the entry of the replica.
    _plan_at: dict[str, ReplicaPlan] = field(init=False, repr=False)
    # The time of the first dispatch or end; infinity: there was none. Only requests that arrived
    # since then are counted. A policy that a reload has created also gets the ends of requests that
    # were sent before; they must not be subtracted.
    _since: float = field(init=False, repr=False)
    _plan_changes: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._plans = {}
        self._plan_at = {}
        self._since = _NEVER
        self._plan_changes = 0
        if not 0.0 <= self.first < _NO_SLO:
            raise PolicyConfigError("first must be a number of tokens, 0 or more", "first")
        for option in ("near", "doubt"):
            if not 0.0 < getattr(self, option) < 1.0:
                raise PolicyConfigError(f"{option} must be a share, above 0 and below 1", option)
        if self.long_tokens < 0:
            raise PolicyConfigError("long_tokens must be 0 or more", "long_tokens")

    def pick(self, view: RequestView, candidates: Sequence[C], ctx: Context) -> Pick[C]:
        if self.holds:
            bit = 1 << view.urgency
            candidates = [c for c in candidates if not self.closed_to(c) & bit] or candidates
        held = ctx.held
        tokens = float(prompt_tokens(view))
        waited_s = max(0.0, ctx.now - view.arrived)
        output = float(view.output_tokens) if view.output_tokens >= 0 else USUAL_OUTPUT
        if not view.decodes:
            output = 0.0
        scores: list[float] = []
        firsts: list[float] = []
        least_new = tokens
        for c in candidates:
            known = min(tokens, float(held.get(c, 0)) * view.block_tokens) if held else 0.0
            new = tokens - known
            least_new = min(least_new, new)
            speed = c.speed
            ahead = speed.tokens_left(c.pending_tokens, ctx.now) / c.weight
            first_s = speed.ttft_s(ahead, new, known, c.load - c.waiting)
            firsts.append(first_s)
            scores.append(self._score(view, c, new, known, waited_s + first_s, output))
        # All replicas have the same score, so the earliest first token decides.
        if view.ttft_slo_s == _NO_SLO:
            return Pick(least_loaded(lowest(candidates, firsts), ctx.rng), "no SLO")
        best = max(scores)
        floor = best - self.near * max(abs(best), view.worth)
        near = [i for i in range(len(scores)) if scores[i] >= floor]
        if len(near) == 1:
            return Pick(candidates[near[0]], "gain")
        equal = [candidates[i] for i in near]
        if view.urgency <= _HIGH or least_new > self.long_tokens:
            first = lowest(equal, [firsts[i] for i in near])
            return Pick(least_loaded(first, ctx.rng), "worst fit")
        fullest = lowest(equal, [-c.load / c.weight for c in equal])
        return Pick(draw(fullest, ctx.rng), "best fit")

    def _score(
        self,
        view: RequestView,
        candidate: Candidate,
        new: float,
        known: float,
        first_s: float,
        output: float,
    ) -> float:
        """Return the gain less the loss of sending a request to a replica."""
        doubt = self.doubt
        speed = candidate.speed
        load = float(candidate.load)
        context = float(candidate.context_tokens)
        before_s = speed.tpot_s(load, context)
        after_s = before_s
        if view.decodes:
            after_s = speed.tpot_s(load + 1.0, context + new + known + output / 2.0)
        gain = self._gain(view, first_s, after_s, output)
        plan = self._plan_of(candidate)
        running = None if plan is None else plan.of(candidate)
        if plan is None or running is None or not running.total:
            return gain
        stall_s = speed.prefill_s(0.0, new, known, 0.0)
        loss = 0.0
        for urgency in range(CLASSES):
            count = running.by_class[urgency]
            if count:
                slo_s = plan.tpot_slo_s[urgency]
                kept = _in_time(before_s, slo_s, doubt)
                late = kept - _in_time(after_s, slo_s, doubt)
                # While the prompt is prefilled, the streams stand still. They lose the tokens of
                # that time, unless they are far ahead of their deadlines.
                still = kept * stall_s / slo_s * min(1.0, after_s / slo_s)
                loss += count * plan.worth[urgency] * (late * USUAL_OUTPUT / 2.0 + still)
        return gain - loss

    def _gain(self, view: RequestView, first_s: float, tpot_s: float, output: float) -> float:
        """Return the worth of the tokens that will probably be in time."""
        ttft_slo_s, tpot_slo_s, doubt = view.ttft_slo_s, view.tpot_slo_s, self.doubt
        found = 0.0
        for factor in (1.0, 1.0 - doubt, 1.0 + doubt):
            found += on_time(first_s * factor - ttft_slo_s, tpot_slo_s - tpot_s * factor, output)
        return view.worth * (self.first * _in_time(first_s, ttft_slo_s, doubt) + found / 3.0)

    def closed_to(self, candidate: Candidate, leaving: int = NOBODY) -> int:
        """Return the classes to which a replica is closed, as bits. Their next request would make
        more urgent streams too slow, or would be in time only at another replica."""
        plan = self._plan_of(candidate)
        if plan is None or not self.holds:
            return 0
        one = plan.of(candidate)
        if one is None or not one.total or not candidate.speed.is_pace_known:
            return 0
        if plan.renew():
            self._plan_changes += 1
        slower = plan.slower(candidate)
        kept, load = one.kept, candidate.load + 1.0
        if leaving != NOBODY:
            load -= 1.0
        closed = 0
        if kept != NOBODY:
            room = plan.room(candidate, kept, slower)
            # Streams of less urgent classes leave soon, so they do not keep requests of the kept
            # class away.
            first = one.at_least(kept)
            if NOBODY < leaving <= kept:
                first -= 1
            if first + 1.0 > room:
                closed = 1 << kept
            if load > room or load - first > one.others:
                closed |= ALL_CLASSES & -(2 << kept)
        for urgency in range(CLASSES):
            bit = 1 << urgency
            if plan.has_room & bit and load > plan.room(candidate, urgency, slower):
                closed |= bit
        return closed

    def plan_changes(self) -> int:
        return self._plan_changes

    def on_dispatch(self, view: RequestView, candidate: Candidate, ctx: Context) -> None:
        # The plan is for batches of decoding streams.
        if not view.decodes or not self._counts(view, ctx):
            return
        plan = self._plan_of(candidate)
        if plan is None:
            plan = self._plan_for(candidate.models)
            if self._plan_at.get(candidate.id) is not plan:
                self._forget(candidate.id)  # Another replica may have had this ID before.
                self._plan_at[candidate.id] = plan
        tokens = float(prompt_tokens(view))
        held = ctx.held.get(candidate, 0) if ctx.held else 0
        new = max(0.0, tokens - held * view.block_tokens)
        plan.add(candidate, view, tokens, new)

    def on_finish(
        self, view: RequestView, candidate: Candidate, output_tokens: int | None, ctx: Context
    ) -> None:
        if not view.decodes or not self._counts(view, ctx):
            return
        plan = self._plan_of(candidate)
        if plan is not None:
            plan.remove(candidate, view.urgency, output_tokens)

    def on_fleet_change(self, replica_ids: frozenset[str]) -> None:
        for gone in self._plan_at.keys() - replica_ids:
            self._forget(gone)

    def _counts(self, view: RequestView, ctx: Context) -> bool:
        """Return whether a request is counted: the same at its dispatches and at their ends."""
        if self._since == _NEVER:
            self._since = ctx.now
        return view.arrived >= self._since

    def _plan_of(self, candidate: Candidate) -> ReplicaPlan | None:
        """Return the plan that has the running requests of a replica; None: none was counted.

        If the models of the replica have changed, its entry moves to the plan of its new models.
        """
        plan = self._plan_at.get(candidate.id)
        if plan is None:
            return None
        one = plan.of(candidate)
        if one is None:
            return None
        # Equal sets are nearly always one object, and comparing two of them takes long.
        if plan.models is candidate.models or plan.models == candidate.models:
            return plan
        self._forget(candidate.id)
        moved = self._plan_at[candidate.id] = self._plan_for(candidate.models)
        moved.take(one, plan)
        return moved

    def _plan_for(self, models: frozenset[str] | None) -> ReplicaPlan:
        plan = self._plans.get(models)
        if plan is None:
            plan = self._plans[models] = ReplicaPlan(self.spare, models)
        return plan

    def _forget(self, replica_id: str) -> None:
        """Drop the entry of a replica, and its plan if the plan has no other entry."""
        plan = self._plan_at.pop(replica_id, None)
        if plan is not None:
            plan.drop(replica_id)
            if not plan.at:
                del self._plans[plan.models]


def _in_time(predicted_s: float, slo_s: float, doubt: float) -> float:
    """Return the probability that a predicted time keeps its SLO. It falls from 1 to 0 while the
    time rises from (1 - doubt) to (1 + doubt) times the SLO."""
    if slo_s == _NO_SLO:
        return 1.0
    off = (slo_s - predicted_s) / (slo_s * doubt)
    return min(1.0, max(0.0, 0.5 + 0.5 * off))


# This is not a decorator, because mypyc does not natively compile classes with unknown decorators.
policy("gain")(Gain)
