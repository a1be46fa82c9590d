"""Decides whether and when a second copy of a request (a hedge) is sent, for one router.

The policy (`policies/hedging`) decides how late an attempt must be. The hedger enforces the rules
that hold for every policy: which requests may be hedged, the budget, the limit of the pool's
utilisation, and which replicas may take a copy.

A copy is sent for one of three causes: the policy's delay has passed, the replica shows no work and
another replica is idle (`silence.py`), or the request's class asks for a copy (`hedging.delay`). At
an idle replica a copy costs no budget (`copy_price.py`).

The hedger learns the usual time to first content from all requests, hedgeable or not
(`learned_times.py`).

For each attempt, the hedger gets a call of `dispatched` or `sent`, then exactly one call of
`shown`, `outrun` or `failed`. The hedger's data about an attempt is stored in the attempt
(`Lateness`), so the hedger keeps no data of ended attempts. An attempt without the first call (it
is asked for the rest of a stream) may have the second call, which then does nothing.

Must never: do I/O, set a timer, read a clock, choose the replica, or check more replicas in one
call than `backups.WINDOW` and `backups.HOLDERS` allow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

from policies.contract import RequestView
from policies.hedging.contract import HedgingPolicy, make_policy
from router.config.model import Hedging
from router.dispatch.driver.attempt_state import Attempt, Kind, Lateness
from router.dispatch.hedging.backups import ENOUGH, HOLDERS, RANK, WINDOW, apart, obstacle, window
from router.dispatch.hedging.copy_price import EMPTY_BUSY, price
from router.dispatch.hedging.hedge_budget import HedgeBudget
from router.dispatch.hedging.learned_times import LearnedTimes
from router.dispatch.hedging.silence import limit_s, silent_from
from router.dispatch.hedging.ttfts import Ttfts
from router.fleet.replica import Replica
from router.fleet.table.fleet import Fleet
from router.fleet.utilisation import utilisation
from router.observe.hedge_counts import Cause, HedgeCounts, Refusal
from router.wire.sweep import NEVER

# The class of a request whose own class is not hedged, but whose header `x-hedge: on` asks for a
# copy. The setting `hedging.by_header` allows this header for all requests; `may_hedge` of an API
# key allows it for the requests with this key.
ASKED: Final = "asked"
TICK_S: Final = 1.0
# The shortest time in seconds between two calls of `backup` for the same attempt.
AGAIN_S: Final = 0.02
# A copy is refused if less than this share of the currently predicted delay has passed. The share
# is below 1, because the prediction changes by a few percent every second, and `backup` is called
# again only some time after a refusal.
_NEARLY: Final = 0.9
# If `backup` was refused for one of these reasons, a later call would be refused as well.
_FINAL: Final = frozenset({Refusal.LONG, Refusal.ALONE})


class Offer:
    """A replica that could take a copy."""

    __slots__ = ("price", "replica", "takes_s", "tokens")

    def __init__(self, replica: Replica, tokens: int, price: float) -> None:
        self.replica = replica
        self.tokens = tokens  # Uncached prompt tokens of the request at this replica.
        self.price = price  # The share of these tokens that the budget must pay, 0 to 1.
        self.takes_s = 0.0  # Predicted seconds to the first content.


def _takes_s(offer: Offer) -> float:
    return offer.takes_s


class Hedger:
    """The hedger of one router. Times are monotonic seconds; tokens are uncached prompt tokens."""

    def __init__(self, rules: Hedging, fleet: Fleet, counts: HedgeCounts) -> None:
        """Raises PolicyConfigError."""
        self.metrics = counts
        self._fleet = fleet
        self._budget = HedgeBudget(rules.budget)
        # Number of calls of `backup` so far; the number moves the window of replicas that are
        # checked.
        self._turn = 0
        self._tick_at = 0.0
        self._ticked = 0.0  # Time of the hedger's last tick; 0: there was no tick.
        self._refused: Refusal | None = None  # Why the last call of `backup` was refused.
        self._again_at = 0.0  # When to call `backup` again after the last call.
        # The result of the last call of `backup`: the possible copies, and the cause.
        self._offers: list[Offer] = []
        self._cause = Cause.LATE
        self.times = LearnedTimes(self._plan)
        self.adopt(rules)

    def adopt(self, rules: Hedging, made: HedgingPolicy | None = None) -> None:
        """Apply new rules from a reload; learned times are kept.

        `made`: the policy that the rules name, if that policy is already built. Raises
        PolicyConfigError if the policy must be built here and that fails.
        """
        policy = make_policy(rules.policy, rules.options) if made is None else made
        self._policy: HedgingPolicy = policy
        self._rules = rules
        self._idle = policy.idle
        self._watches = policy.watches
        self._hedged = frozenset(rules.classes)
        classes = self._hedged | {ASKED}
        if policy.only is not None:
            classes &= policy.only
        self._classes = classes
        self._budget.adopt(rules.budget)
        self._delays = rules.delay
        self.times.outdate()

    # -- which requests may be hedged ---------------------------------------------------------

    def hedges_as(self, stated: str, header: bytes | None, may_ask: bool) -> str:
        """Return the class under which a request may be hedged.

        Returns "" if neither the class nor the client asks for a copy, or if the client forbids a
        copy. `stated`: the request's class. `header`: the request's `x-hedge` header. `may_ask`:
        the request's key may ask for a copy.
        """
        if header is not None and header == b"off":
            return ""
        if stated in self._hedged:
            return stated
        if header is None or header != b"on":
            return ""
        return ASKED if may_ask or self._rules.by_header else ""

    # -- when a copy may be sent --------------------------------------------------------------

    def dispatched(
        self,
        view: RequestView,
        attempt: Attempt,
        hedges_as: str,
        now: float,
    ) -> float:
        """Count a first attempt or a retry that is dispatched and has taken its lease.

        `hedges_as`: the result of the method `hedges_as`, or "" if no copy may be sent for another
        reason. Returns the time at which to call `backup` (which may have passed); NEVER if no copy
        may be sent.
        """
        if self._idle:
            return NEVER
        if now >= self._tick_at:
            self._tick(now)
        ttfts = self.times.of(view.model, view.stream, now)
        if now >= ttfts.refresh_at:
            ttfts.refresh(now)
            self._plan(ttfts)
        late = self._expected(ttfts, attempt)
        self.times.dispatched(view.model, attempt, now)
        may_be = hedges_as in self._classes
        self._budget.deposit(attempt.tokens, may_be)
        if not may_be:
            return NEVER
        longest = self._rules.prompt_tokens
        if longest and view.prompt_tokens > longest:
            return self._never(Refusal.LONG)
        due = self._late_at(ttfts, attempt, late.predicted_s)
        if self._delays and hedges_as in self._delays:
            late.copy_by = now + self._delays[hedges_as]
            due = min(due, late.copy_by)
        if self._watches and self.times.busy_share(attempt.at, now) < EMPTY_BUSY:
            # Under load no replica is idle, so this time would be useless.
            first_s, _ = self.times.usual_s(view.model, attempt, view.stream)
            due = min(due, now + limit_s(first_s))
        if due == NEVER:
            return self._never(Refusal.GAIN)
        return due

    def _expected(self, ttfts: Ttfts, attempt: Attempt) -> Lateness:
        """Record when an attempt is expected to show content."""
        ahead = attempt.at.pending_tokens
        predicted_s = self.times.predict_at(ttfts, attempt.at, ahead)
        attempt.lateness = late = Lateness(ahead, predicted_s)
        return late

    def _late_at(self, ttfts: Ttfts, attempt: Attempt, predicted_s: float) -> float:
        """Return when an attempt is late by the plan of the policy."""
        if ttfts.ratio == NEVER:
            return NEVER
        return attempt.began + max(ttfts.ratio * predicted_s, ttfts.seconds)

    def _silent_from(self, view: RequestView, attempt: Attempt) -> float:
        first_s, whole_s = self.times.usual_s(view.model, attempt, view.stream)
        return silent_from(attempt.at, attempt.began, view.stream, first_s, whole_s)

    def _never(self, why: Refusal) -> float:
        self.metrics.suppressed[why] += 1
        return NEVER

    # -- which replicas may take the copy -----------------------------------------------------

    def backup(
        self, view: RequestView, primary: Attempt, pool: Sequence[Replica], now: float
    ) -> Sequence[Replica]:
        """Return the replicas of `pool` that may take a copy of an attempt that is late.

        `pool`: all replicas of the allowed regions that serve the model. An empty result means that
        no copy is sent; the reason is counted, and `asks_again_at` returns when to call `backup`
        again. With `dry_run` the result is always empty, and the copy is only counted.
        """
        self._refused = None
        late = primary.lateness
        if self._idle or late is None or late.copy_due:
            return ()
        replica = primary.at
        if not pool or (len(pool) == 1 and pool[0] is replica):
            return self._refuse(Refusal.ALONE)
        ttfts = self.times.of(view.model, view.stream, now)
        predicted_s = self.times.predict(ttfts, primary)
        silent_at = self._silent_from(view, primary)
        causes = self._causes_now(ttfts, primary, late.copy_by, predicted_s, silent_at, now)
        if not causes:
            return self._refuse(Refusal.COLD if ttfts.is_cold else Refusal.GAIN)
        self._turn += 1
        seen = window(pool, self._turn)
        # A replica that shows no work is not busy, however many requests wait there.
        if self._is_busy(None if now >= silent_at else replica, seen):
            return self._refuse(Refusal.UTILISATION)
        held = self._fleet.knowledge.held(view)
        if len(pool) > WINDOW and held:
            holders = self._holders(view, held)
            seen = [*holders, *[r for r in seen if r not in holders]]
        is_free = view.stream or now >= silent_at
        for cause in causes:
            found, why = self._able(view, replica, seen, held, cause, is_free, now)
            self._rank(ttfts, found)
            if found and cause is Cause.LATE:
                found = self._paying(ttfts, now - primary.began, predicted_s, found)
                why = Refusal.GAIN
            if found:
                break
        if not found:
            if why is Refusal.BUDGET and cause is Cause.SILENT and ttfts.is_cold:
                why = Refusal.COLD
            return self._refuse(why)
        if self._rules.dry_run:
            self._would_fire(late, found[0], now)
            return ()
        self._offers, self._cause = found, cause
        late.is_silent = cause is Cause.SILENT
        return apart(replica, [offer.replica for offer in found])

    def _causes_now(
        self,
        ttfts: Ttfts,
        primary: Attempt,
        copy_by: float,
        predicted_s: float,
        silent_at: float,
        now: float,
    ) -> list[Cause]:
        """Return why a copy is due now, and set when to call `backup` again without one.

        The plan, or the fitted line of times to first token, may have changed since the dispatch.
        Before the first answer, only policies without predictions know what is late.
        """
        causes = []
        again_at = now + TICK_S  # The plan may change each second.
        if now >= copy_by:
            causes.append(Cause.CLASS)
        else:
            again_at = min(again_at, copy_by)
        if not self._watches:
            pass
        elif now >= silent_at:
            causes.append(Cause.SILENT)
        else:
            again_at = min(again_at, silent_at)
        if not ttfts.answers and ttfts.ratio:
            pass
        elif now - primary.began >= _NEARLY * ttfts.ratio * predicted_s:
            causes.append(Cause.LATE)
        else:
            again_at = min(again_at, self._late_at(ttfts, primary, predicted_s))
        if causes:
            again_at = min(again_at, now + max(AGAIN_S, 0.1 * (now - primary.began)))
        self._again_at = max(again_at, now + AGAIN_S)
        return causes

    def _is_busy(self, replica: Replica | None, seen: Sequence[Replica]) -> bool:
        """Whether the utilisation of `replica` and those in the window is too high for a copy."""
        others = [r for r in seen if r is not replica]
        used = utilisation(others if replica is None else [replica, *others])
        try:
            most = float(self._policy.most_utilised())
        except Exception:  # A third-party policy may raise any exception.
            most = -1.0
        if not most >= 0.0:
            self.metrics.policy_errors += 1
            return True
        if used is None:
            # If the policy's limit is stricter than the rules, an unknown utilisation counts as too
            # high.
            return most < self._rules.utilisation
        return used >= min(most, self._rules.utilisation)

    def _holders(self, view: RequestView, held: Mapping[Replica, int]) -> dict[Replica, None]:
        """Return some ready replicas that hold the prefix and serve the model.

        All of them are allowed for the request.
        """
        ready, model, allowed = self._fleet.serving.ready_ids, view.model, view.allowed
        return {
            r: None
            for r in islice(held, HOLDERS)
            if ready.get(r.id) is r
            and (r.models is None or model is None or model in r.models)
            and (allowed is None or self._fleet.serving.fits(r, model, allowed))
        }

    def _able(
        self,
        view: RequestView,
        replica: Replica,
        seen: Sequence[Replica],
        held: Mapping[Replica, int],
        cause: Cause,
        is_free: bool,
        now: float,
    ) -> tuple[list[Offer], Refusal]:
        """Return the first replicas that can take a copy within the budget.

        If there is no such replica, the second value is the reason. `is_free`: False for an answer
        that is not streamed while its replica shows work. The answer may just be long, and then its
        copy takes as long. So if the answer is late, the budget pays at an idle replica, too.
        """
        kv_usage = self._rules.kv_usage
        tokens, block = view.prompt_tokens, view.block_tokens
        found: list[Offer] = []
        furthest = Refusal.ALONE
        for other in seen:
            if view.model is None and other.models != replica.models:
                # The replica may have joined the fleet since the dispatch, and may not serve the
                # model.
                continue
            why = obstacle(replica, other, kv_usage, now)
            if why is None:
                # The uncached tokens are computed as in `Chooser.dispatched`.
                cost = max(0, tokens - int(held.get(other, 0) * block))
                is_paid = cause is Cause.LATE and not is_free
                its_price = 1.0 if is_paid else self._price(other, now)
                if its_price == 0.0 or (
                    cause is not Cause.SILENT and self._budget.fits(cost, its_price)
                ):
                    found.append(Offer(other, cost, its_price))
                    if len(found) == ENOUGH:
                        break
                    continue
                why = Refusal.BUDGET
            if RANK[why] > RANK[furthest]:
                furthest = why
        return found, furthest

    def _price(self, replica: Replica, now: float) -> float:
        if self._budget.share == 0.0:
            return 1.0
        return price(self.times.busy_share(replica, now), replica.load)

    def _rank(self, ttfts: Ttfts, offers: list[Offer]) -> None:
        """Sort the offers, the fastest one first."""
        for offer in offers:
            tokens = offer.tokens + offer.replica.pending_tokens
            offer.takes_s = self.times.predict_at(ttfts, offer.replica, tokens)
        offers.sort(key=_takes_s)

    def _paying(
        self, ttfts: Ttfts, waited_s: float, predicted_s: float, offers: list[Offer]
    ) -> list[Offer]:
        """Return the offers for which the policy allows a copy; `offers` are sorted."""
        policy, curve = self._policy, ttfts.curve
        # Binary search: if the policy rejects an offer, it also rejects all slower offers.
        low, high = 0, len(offers)
        try:
            while low < high:
                middle = (low + high) // 2 if high < len(offers) else high - 1
                if policy.pays(waited_s, predicted_s, offers[middle].takes_s, curve):
                    low = middle + 1
                else:
                    high = middle
        except Exception:  # A third-party policy may raise any exception.
            self.metrics.policy_errors += 1
            return []
        return offers[:low]

    def asks_again_at(self) -> float:
        """Return when to call `backup` again after an empty result; NEVER if this is useless."""
        why = self._refused
        if why is None or why in _FINAL:
            return NEVER
        return self._again_at

    def _refuse(self, why: Refusal) -> Sequence[Replica]:
        self._refused = why
        self.metrics.suppressed[why] += 1
        return ()

    def _would_fire(self, late: Lateness, offer: Offer, now: float) -> None:
        """Count a copy that `dry_run` does not send.

        Withdraws the tokens of the copy, and records when the copy would answer.
        """
        metrics = self.metrics
        metrics.would_fire += 1
        metrics.would_fire_tokens += offer.tokens
        self._budget.take(offer.tokens, offer.price)
        metrics.budget_tokens = self._budget.level
        late.copy_due = now + offer.takes_s

    # -- events of an attempt -----------------------------------------------------------------

    def sent(self, view: RequestView, hedge: Attempt, now: float) -> None:
        """Count a copy that is dispatched and has taken its lease."""
        metrics = self.metrics
        metrics.fired += 1
        metrics.fired_tokens += hedge.tokens
        metrics.causes[self._cause] += 1
        late = self._expected(self.times.of(view.model, view.stream, now), hedge)
        for offer in self._offers:
            if offer.replica is hedge.at:
                late.copy_price = offer.price
        self._offers = []
        metrics.idle += late.copy_price == 0.0
        metrics.idle_tokens += hedge.tokens * (1.0 - late.copy_price)
        self._budget.take(hedge.tokens, late.copy_price)
        metrics.budget_tokens = self._budget.level
        self.times.dispatched(view.model, hedge, now)

    def shown(self, view: RequestView, attempt: Attempt, now: float) -> None:
        """Learn from the first attempt of a request that shows content or its whole answer."""
        late = attempt.lateness
        if late is None:
            return
        if attempt.is_timed:
            self.times.shown(self.times.of(view.model, view.stream, now), attempt, now)
        if attempt.kind == Kind.HEDGE:
            self.metrics.won += 1
        elif late.copy_due:
            self._would_have(late.copy_due, now)

    def outrun(self, view: RequestView, attempt: Attempt, computed: int, now: float) -> None:
        """Learn from an attempt that is cancelled because another one showed content first.

        `computed`: prompt tokens that the engine has computed for the attempt; below 0: unknown.
        """
        late = attempt.lateness
        if late is None:
            return
        metrics, times = self.metrics, self.times
        ttfts = times.of(view.model, view.stream, now)
        predicted_s = times.predict(ttfts, attempt)
        times.cut(ttfts, attempt, now)
        if computed < 0:
            computed = times.computed_tokens(view.model, attempt, now)
        metrics.wasted_tokens += computed
        if attempt.kind == Kind.HEDGE:
            metrics.lost += 1
            if not attempt.is_sent:
                self._refund(attempt.tokens, late.copy_price)
            return
        waited_s = now - attempt.began
        metrics.saved_s += predicted_s * ttfts.curve.remaining(waited_s / predicted_s)
        if self._fleet.outcomes.outrun(attempt.at, attempt.began, now):
            metrics.suspected += 1

    def failed(self, view: RequestView, attempt: Attempt, now: float) -> None:
        """Learn from an attempt that ended without content for any other reason.

        Examples: an error, a timeout, or the client left.
        """
        late = attempt.lateness
        if late is None:
            return
        times = self.times
        times.cut(times.of(view.model, view.stream, now), attempt, now)
        if attempt.kind == Kind.HEDGE:
            metrics = self.metrics
            metrics.failed += 1
            if attempt.is_sent:
                metrics.wasted_tokens += times.computed_tokens(view.model, attempt, now)
            else:
                self._refund(attempt.tokens, late.copy_price)
        elif late.copy_due:
            self._would_have(late.copy_due, now)

    def _refund(self, tokens: int, its_price: float) -> None:
        """Refund the tokens of a copy that never reached its replica."""
        metrics = self.metrics
        self._budget.give_back(tokens, its_price)
        metrics.fired_tokens -= tokens
        metrics.returned_tokens += tokens
        metrics.budget_tokens = self._budget.level

    def _would_have(self, copy_due: float, now: float) -> None:
        """Count a `dry_run` copy as useful if the first attempt ended after the copy's answer."""
        if now > copy_due:
            self.metrics.would_win += 1
            self.metrics.would_save_s += now - copy_due

    # -- the policy's plan --------------------------------------------------------------------

    def _plan(self, ttfts: Ttfts) -> None:
        """Ask the hedging policy when a copy may be sent."""
        ttfts.ratio = ttfts.seconds = NEVER
        try:
            delay = self._policy.delay(ttfts.curve, self._budget.quantile)
            if delay is None:
                return
            ratio, seconds = float(delay.ratio), float(delay.seconds)
        except Exception:  # A third-party policy may raise any exception.
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
