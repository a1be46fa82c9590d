"""Whether and when a second copy of a request goes, for one router.

The policy (`policies/hedging`) says how late is late; here stands what holds for every policy: who
may be hedged, the budget, the utilisation from which on nothing is, which replicas may take a copy.
What first contents usually take is learned from all requests, hedgeable or not: those that no copy
outruns show the whole tail. Until then it is assumed (`ttft_prior.py`). What a replica is predicted
to take is what its model takes, times a factor of its own (`speed.py`).

Calls for one attempt: `dispatched` or `sent`, then exactly one of `shown`, `outrun` and `failed`.
What is kept of an attempt hangs on it (`predicted_s`, `ahead`, `copy_due`), so that nothing can be
left behind. An attempt without the first call, such as a continuation, may have the second: it
teaches nothing and costs nothing.

Must never: do I/O, set a timer, look at a clock, choose the replica, or look at more replicas for
one question than `backups.WINDOW` and `backups.HOLDERS` say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

from policies.contract import RequestView
from policies.hedging.contract import HedgingPolicy, make_policy
from router.config.model import Hedging
from router.dispatch.attempts import Attempt, Kind
from router.dispatch.backups import ENOUGH, HOLDERS, RANK, WINDOW, apart, obstacle, window
from router.dispatch.hedge_budget import HedgeBudget
from router.dispatch.speed import Speed, Speeds
from router.dispatch.ttfts import Ttfts
from router.fleet.replica import Replica
from router.fleet.table import Fleet
from router.fleet.utilisation import utilisation
from router.observe.hedge_counts import HedgeCounts, Refusal
from router.wire.sweep import NEVER

# The class of a request of none of these that asks by `x-hedge: on`, and may: `hedging.by_header`
# allows it to all, `may_hedge` to a key's.
ASKED: Final = "asked"
TICK_S: Final = 1.0
AGAIN_S: Final = 0.02  # between two questions for the same copy, at least
MODELS_MAX: Final = 256  # models learned about, streams and whole answers apart
_IDLE_S: Final = 60.0  # a model that nobody asked for so long makes room for another
# Of the wait that the line of now asks for. A line moves by a few percent every second, and a
# question that is refused is asked again later than it could be.
_NEARLY: Final = 0.9
# Nothing that was refused for these reasons looks better a moment later.
_FINAL: Final = frozenset({Refusal.LONG, Refusal.ALONE})


class Offer:
    """A replica that could take a copy."""

    __slots__ = ("replica", "takes_s", "tokens")

    def __init__(self, replica: Replica, tokens: int) -> None:
        self.replica = replica
        self.tokens = tokens  # uncached ones of the request there
        self.takes_s = 0.0  # to its first content, as predicted


def _takes_s(offer: Offer) -> float:
    return offer.takes_s


class Hedger:
    """Times are monotonic seconds, tokens uncached prompt tokens."""

    def __init__(self, rules: Hedging, fleet: Fleet, counts: HedgeCounts) -> None:
        """Raises PolicyConfigError."""
        self.metrics = counts
        self._fleet = fleet
        self._budget = HedgeBudget(rules.budget)
        self._streams: dict[str, Ttfts] = {}
        self._wholes: dict[str, Ttfts] = {}
        self._speeds: dict[Replica, Speeds] = {}
        self._turn = 0  # questions for a copy so far
        self._tick_at = 0.0
        self._ticked = 0.0  # the last tick; 0: there was none
        self._refused: Refusal | None = None  # why the last question came to nothing
        self.adopt(rules)

    def adopt(self, rules: Hedging, made: HedgingPolicy | None = None) -> None:
        """New rules from a reload; what was learned stays. `made`: the policy that they name.

        Raises PolicyConfigError if the policy was not made before, and cannot be made.
        """
        policy = make_policy(rules.policy, rules.options) if made is None else made
        self._policy: HedgingPolicy = policy
        self._rules = rules
        self._idle = policy.idle
        classes = frozenset(rules.classes) | {ASKED}
        if policy.only is not None:
            classes &= policy.only
        self._classes = classes
        self._budget.adopt(rules.budget)
        for ttfts in (*self._streams.values(), *self._wholes.values()):
            ttfts.outdate()

    # -- when ---------------------------------------------------------------------------------

    def dispatched(
        self,
        view: RequestView,
        attempt: Attempt,
        replica: Replica,
        urgency: str,
        hedgeable: bool,
        streamed: bool,
        now: float,
    ) -> float:
        """A request's first attempt leaves, or a retry; its lease is taken already.

        `urgency`: its class by name, "" for none, ASKED where its header asks for a copy;
        `hedgeable`: its route, its body and its headers allow one. Returns when `backup` is to be
        asked (up to `now`: at once), NEVER: not at all.
        """
        if self._idle:
            return NEVER
        if now >= self._tick_at:
            self._tick(now)
        ttfts = self._of(view.model, streamed, now)
        if now >= ttfts.refresh_at and ttfts.refresh(now):
            self._plan(ttfts)
        attempt.ahead = replica.pending_tokens
        attempt.predicted_s = self._predict(ttfts, attempt, replica, streamed)
        may_be = hedgeable and urgency in self._classes
        self._budget.deposit(attempt.tokens, may_be)
        if not may_be:
            return NEVER
        longest = self._rules.prompt_tokens
        if longest and view.prompt_tokens > longest:
            return self._never(Refusal.LONG)
        if ttfts.ratio == NEVER:
            return self._never(Refusal.GAIN)
        return now + max(ttfts.ratio * attempt.predicted_s, ttfts.seconds)

    def _never(self, why: Refusal) -> float:
        self.metrics.suppressed[why] += 1
        return NEVER

    # -- where --------------------------------------------------------------------------------

    def backup(
        self,
        view: RequestView,
        primary: Attempt,
        replica: Replica,
        urgency: str,
        pool: Sequence[Replica],
        now: float,
    ) -> Sequence[Replica]:
        """That time has come and nothing has: those of `pool` that may take the copy.

        `pool`: all that serve the model, the first attempt's replica among them or not.
        Empty: none goes, and why is counted; `asks_again_at` says when to ask once more. With
        `dry_run` it is always empty, and the copy is counted as one that would have gone.
        """
        self._refused = None
        if self._idle or primary.copy_due:
            return ()
        if not pool or (len(pool) == 1 and pool[0] is replica):
            return self._refuse(Refusal.ALONE)
        ttfts = self._of(view.model, view.stream, now)
        predicted_s = self._predict(ttfts, primary, replica, view.stream)
        # The line may say otherwise than it did at the dispatch.
        if now - primary.began < _NEARLY * ttfts.ratio * predicted_s < NEVER:
            return self._refuse(Refusal.COLD if ttfts.is_cold else Refusal.GAIN)
        if not ttfts.fit.answers and ttfts.ratio:
            return self._refuse(Refusal.COLD)
        self._turn += 1
        seen = window(pool, self._turn)
        if self._is_busy(replica, seen):
            return self._refuse(Refusal.UTILISATION)
        held = self._fleet.knowledge.held(view)
        if len(pool) > WINDOW and held:
            holders = self._holders(view, held)
            seen = [*holders, *[r for r in seen if r not in holders]]
        found, why = self._able(view, replica, seen, held, now)
        if found:
            found = self._paying(ttfts, now - primary.began, predicted_s, found)
            why = Refusal.GAIN
        if not found:
            return self._refuse(why)
        if self._rules.dry_run:
            self._would_fire(primary, found[0], now)
            return ()
        return apart(replica, [offer.replica for offer in found])

    def _is_busy(self, replica: Replica, seen: Sequence[Replica]) -> bool:
        """Whether too much of the pool is in use, as far as those who are seen can tell."""
        used = utilisation([replica, *[r for r in seen if r is not replica]])
        try:
            most = float(self._policy.most_utilised())
        except Exception:  # a stranger's policy
            most = -1.0
        if not most >= 0.0:
            self.metrics.policy_errors += 1
            return True
        if used is None:
            # Who must be sure that the pool is idle does not take "unknown" for an answer.
            return most < self._rules.utilisation
        return used >= min(most, self._rules.utilisation)

    def _holders(self, view: RequestView, held: Mapping[Replica, int]) -> dict[Replica, None]:
        """Some of those that hold the prefix and serve the model."""
        ready, model = self._fleet.ready_ids, view.model
        return {
            r: None
            for r in islice(held, HOLDERS)
            if ready.get(r.id) is r and (r.models is None or model is None or model in r.models)
        }

    def _able(
        self,
        view: RequestView,
        replica: Replica,
        seen: Sequence[Replica],
        held: Mapping[Replica, int],
        now: float,
    ) -> tuple[list[Offer], Refusal]:
        """The first of them that could take a copy and that the budget pays; of nobody, why."""
        kv_usage = self._rules.kv_usage
        tokens, block = view.prompt_tokens, view.block_tokens
        found: list[Offer] = []
        furthest = Refusal.ALONE
        for other in seen:
            if view.model is None and other.models != replica.models:
                continue  # the fleet has come to serve several models since the dispatch
            why = obstacle(replica, other, kv_usage, now)
            if why is None:
                # As the chooser counts them.
                cost = max(0, tokens - int(held.get(other, 0) * block))
                if self._budget.fits(cost):
                    found.append(Offer(other, cost))
                    if len(found) == ENOUGH:
                        break
                    continue
                why = Refusal.BUDGET
            if RANK[why] > RANK[furthest]:
                furthest = why
        return found, furthest

    def _paying(
        self, ttfts: Ttfts, waited_s: float, predicted_s: float, offers: list[Offer]
    ) -> list[Offer]:
        """Those that the policy finds worth their copy, the soonest first."""
        for offer in offers:
            speed = self._factor(offer.replica, ttfts.is_streamed)
            offer.takes_s = ttfts.predict(offer.tokens + offer.replica.pending_tokens, speed)
        offers.sort(key=_takes_s)
        policy, curve = self._policy, ttfts.curve
        # What does not pay for a copy does not pay for a longer one.
        low, high = 0, len(offers)
        try:
            while low < high:
                middle = (low + high) // 2 if high < len(offers) else high - 1
                if policy.pays(waited_s, predicted_s, offers[middle].takes_s, curve):
                    low = middle + 1
                else:
                    high = middle
        except Exception:  # a stranger's policy
            self.metrics.policy_errors += 1
            return []
        return offers[:low]

    def asks_again_at(self, primary: Attempt, now: float) -> float:
        """When to ask `backup` once more, right after it said nobody. NEVER: it is of no use."""
        why = self._refused
        if why is None or why in _FINAL:
            return NEVER
        return now + max(AGAIN_S, 0.1 * (now - primary.began))

    def _refuse(self, why: Refusal) -> Sequence[Replica]:
        self._refused = why
        self.metrics.suppressed[why] += 1
        return ()

    def _would_fire(self, primary: Attempt, offer: Offer, now: float) -> None:
        """A copy would go there now: pay for it, and note when it would answer."""
        metrics = self.metrics
        metrics.would_fire += 1
        metrics.would_fire_tokens += offer.tokens
        self._budget.take(offer.tokens)
        metrics.budget_tokens = self._budget.level
        primary.copy_due = now + offer.takes_s

    # -- what becomes of it -------------------------------------------------------------------

    def sent(self, view: RequestView, hedge: Attempt, replica: Replica, now: float) -> None:
        """A copy leaves; its lease is taken already."""
        metrics = self.metrics
        metrics.fired += 1
        metrics.fired_tokens += hedge.tokens
        self._budget.take(hedge.tokens)
        metrics.budget_tokens = self._budget.level
        hedge.ahead = replica.pending_tokens
        ttfts = self._of(view.model, view.stream, now)
        hedge.predicted_s = self._predict(ttfts, hedge, replica, view.stream)

    def shown(
        self, view: RequestView, attempt: Attempt, replica: Replica, streamed: bool, now: float
    ) -> None:
        """An attempt shows its first content (or its whole answer), and it is the first to."""
        if attempt.ahead < 0:
            return
        if attempt.is_timed:
            ttfts = self._of(view.model, streamed, now)
            took_s = now - attempt.began
            speed = self._speed(replica, streamed)
            line_s = ttfts.fit.predict(attempt.ahead)
            ttfts.shown(attempt.ahead, took_s, speed.factor, now)
            if not ttfts.is_cold:
                speed.shown(took_s, line_s, now)
        if attempt.kind == Kind.HEDGE:
            self.metrics.won += 1
        elif attempt.copy_due:
            self._would_have(attempt, now)

    def outrun(
        self,
        view: RequestView,
        attempt: Attempt,
        replica: Replica,
        streamed: bool,
        computed: int,
        now: float,
    ) -> None:
        """An attempt is cancelled because another one showed content first.

        `computed`: prompt tokens that its engine has computed for it; below 0: nobody can tell.
        """
        if attempt.ahead < 0:
            return
        metrics = self.metrics
        ttfts = self._of(view.model, streamed, now)
        predicted_s = self._predict(ttfts, attempt, replica, streamed)
        self._cut(ttfts, attempt, replica, streamed, now)
        if computed < 0:
            computed = self._computed(view, attempt, replica, now)
        metrics.wasted_tokens += computed
        if attempt.kind == Kind.HEDGE:
            metrics.lost += 1
            if not attempt.is_sent:
                self._refund(attempt)
            return
        waited_s = now - attempt.began
        metrics.saved_s += predicted_s * ttfts.curve.remaining(waited_s / predicted_s)
        if self._fleet.outrun(replica, attempt.began, now):
            metrics.suspected += 1

    def failed(self, view: RequestView, attempt: Attempt, replica: Replica, now: float) -> None:
        """It ended without content in any other way: an error, a timeout, the client left."""
        if attempt.ahead < 0:
            return
        ttfts = self._of(view.model, view.stream, now)
        self._cut(ttfts, attempt, replica, view.stream, now)
        if attempt.kind == Kind.HEDGE:
            metrics = self.metrics
            metrics.failed += 1
            if attempt.is_sent:
                metrics.wasted_tokens += self._computed(view, attempt, replica, now)
            else:
                self._refund(attempt)
        elif attempt.copy_due:
            self._would_have(attempt, now)

    def _refund(self, hedge: Attempt) -> None:
        """A copy that never reached its replica costs nothing."""
        metrics = self.metrics
        self._budget.give_back(hedge.tokens)
        metrics.fired_tokens -= hedge.tokens
        metrics.returned_tokens += hedge.tokens
        metrics.budget_tokens = self._budget.level

    def _computed(self, view: RequestView, attempt: Attempt, replica: Replica, now: float) -> int:
        """An estimate of the prompt tokens that an engine has computed for an attempt without
        content: it has worked through what waited there in its order, at the replica's usual speed.
        All of them, where no speed is known."""
        if not attempt.is_sent:
            return 0
        tokens = attempt.tokens
        ttfts = self._streams.get(view.model or "")
        if ttfts is None or ttfts.is_cold:
            return tokens
        predicted_s = self._predict(ttfts, attempt, replica, True)
        waited_s = now - attempt.began
        if waited_s >= predicted_s:
            return tokens
        left = int(attempt.ahead * (1.0 - waited_s / predicted_s))
        return max(0, tokens - left)

    def _would_have(self, primary: Attempt, now: float) -> None:
        """The first attempt ended, by itself, after a copy that was only counted."""
        if now > primary.copy_due:
            self.metrics.would_win += 1
            self.metrics.would_save_s += now - primary.copy_due

    # -- what is learned ----------------------------------------------------------------------

    def _predict(self, ttfts: Ttfts, attempt: Attempt, replica: Replica, streamed: bool) -> float:
        return ttfts.predict(attempt.ahead, self._factor(replica, streamed))

    def _factor(self, replica: Replica, streamed: bool) -> float:
        speeds = self._speeds.get(replica)
        if speeds is None:
            return 1.0
        return speeds.streams.factor if streamed else speeds.wholes.factor

    def _speed(self, replica: Replica, streamed: bool) -> Speed:
        speeds = self._speeds.get(replica)
        if speeds is None:
            speeds = Speeds()
            if not replica.removed:
                self._speeds[replica] = speeds
        return speeds.streams if streamed else speeds.wholes

    def fleet_changed(self) -> None:
        """Replicas were added or removed: forget those that have gone."""
        for replica in [r for r in self._speeds if r.removed]:
            del self._speeds[replica]

    def _cut(
        self, ttfts: Ttfts, attempt: Attempt, replica: Replica, streamed: bool, now: float
    ) -> None:
        """Learn from an attempt that ended before it showed anything."""
        if not attempt.is_timed:
            return
        waited_s = now - attempt.began
        speed = self._speed(replica, streamed)
        line_s = ttfts.fit.predict(attempt.ahead)
        ttfts.cut(attempt.ahead, waited_s, speed.factor, now)
        if not ttfts.is_cold:
            speed.cut(waited_s, line_s, now)

    def _of(self, model: str | None, streamed: bool, now: float) -> Ttfts:
        known = self._streams if streamed else self._wholes
        ttfts = known.get(model or "")
        return ttfts if ttfts is not None else self._new(known, model or "", now)

    def plans(self) -> list[tuple[str, bool, Ttfts]]:
        """What was learned and is planned: for each model ("": none named), streams and not."""
        found = [(name, True, ttfts) for name, ttfts in self._streams.items()]
        return found + [(name, False, ttfts) for name, ttfts in self._wholes.items()]

    def _new(self, known: dict[str, Ttfts], model: str, now: float) -> Ttfts:
        """The first request for a model. A client's inventions share one entry when all is full."""
        if len(known) >= MODELS_MAX:
            for name in [n for n, t in known.items() if now - t.used_at > _IDLE_S]:
                del known[name]
        if len(known) >= MODELS_MAX:
            model = ""
            if model in known:
                return known[model]
        ttfts = known[model] = Ttfts(now, known is self._streams)
        self._plan(ttfts)
        return ttfts

    def _plan(self, ttfts: Ttfts) -> None:
        """Ask the policy when a copy may go."""
        ttfts.ratio = ttfts.seconds = NEVER
        try:
            delay = self._policy.delay(ttfts.curve, self._budget.quantile)
            if delay is None:
                return
            ratio, seconds = float(delay.ratio), float(delay.seconds)
        except Exception:  # a stranger's policy
            self.metrics.policy_errors += 1
            return
        if 0.0 <= ratio < NEVER and 0.0 <= seconds < NEVER:
            ttfts.ratio, ttfts.seconds = ratio, seconds
        elif not (ratio == NEVER or seconds == NEVER):
            self.metrics.policy_errors += 1

    def _tick(self, now: float) -> None:
        budget, metrics = self._budget, self.metrics
        if self._ticked:
            budget.tick(now - self._ticked)
        self._ticked = now
        self._tick_at = now + TICK_S
        metrics.budget_tokens = budget.level
        metrics.hedgeable_share = budget.hedgeable_share
        metrics.quantile = budget.quantile
