"""Whether and when a second copy of a request goes, for one router.

The policy (`policies/hedging`) says how late is late; here stands what holds for every policy: who
may be hedged, the budget, the utilisation from which on nothing is, which replicas may take a copy.
What first contents usually take is learned from all requests, hedgeable or not: those that no copy
outruns show the whole tail.

Calls for one attempt: `dispatched` or `sent`, then exactly one of `shown`, `outrun` and `failed`.
What is kept of an attempt hangs on it (`predicted_s`, `ahead`, `copy_due`), so that nothing can be
left behind. Attempts that were never told of (continuations) may be: they teach nothing and cost
nothing.

Must never: do I/O, set a timer, look at a clock, or choose the replica.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from policies.contract import RequestView
from policies.hedging.contract import HedgingPolicy, make_policy
from router.config.model import Hedging
from router.dispatch.attempts import Attempt, Kind
from router.dispatch.backups import able, apart
from router.dispatch.hedge_budget import HedgeBudget
from router.dispatch.retry import UNSENT
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
# Nothing that was refused for these reasons looks better a moment later.
_FINAL: Final = frozenset({Refusal.COLD, Refusal.LONG, Refusal.ALONE})


class Hedger:
    """Times are monotonic seconds, tokens uncached prompt tokens."""

    def __init__(self, rules: Hedging, fleet: Fleet, counts: HedgeCounts) -> None:
        """Raises PolicyConfigError."""
        self.metrics = counts
        self._fleet = fleet
        self._budget = HedgeBudget(rules.budget)
        self._streams: dict[str, Ttfts] = {}
        self._wholes: dict[str, Ttfts] = {}
        self._tick_at = 0.0
        self._ticked = 0.0  # the last tick; 0: there was none
        self._refused: Refusal | None = None  # why the last question came to nothing
        self.adopt(rules)

    def adopt(self, rules: Hedging) -> None:
        """New rules from a reload; what was learned stays. Raises PolicyConfigError."""
        policy = make_policy(rules.policy, rules.options)
        self._policy: HedgingPolicy = policy
        self._rules = rules
        self._idle = policy.idle
        classes = frozenset(rules.classes) | {ASKED}
        if policy.only is not None:
            classes &= policy.only
        self._classes = classes
        self._budget.adopt(rules.budget)
        for ttfts in (*self._streams.values(), *self._wholes.values()):
            ttfts.refresh_at = 0.0  # another policy, another plan

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
        if now >= ttfts.refresh_at:
            self._refresh(ttfts, now)
        ahead = replica.pending_tokens
        attempt.ahead = ahead
        attempt.predicted_s = ttfts.fit.predict(ahead)
        may_be = hedgeable and urgency in self._classes
        self._budget.deposit(attempt.tokens, may_be)
        if not may_be:
            return NEVER
        longest = self._rules.prompt_tokens
        if longest and view.prompt_tokens > longest:
            return self._never(Refusal.LONG)
        return self._due(attempt, ttfts, now)

    def _due(self, attempt: Attempt, ttfts: Ttfts, now: float) -> float:
        ratio = ttfts.ratio
        if ratio == NEVER or (ratio > 0.0 and attempt.predicted_s <= 0.0):
            return self._never(Refusal.COLD if ttfts.curve is None else Refusal.GAIN)
        return now + max(ratio * attempt.predicted_s, ttfts.seconds)

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
        others: Sequence[Replica],
        now: float,
    ) -> Sequence[Replica]:
        """That time has come and nothing has: those of `others` that may take the copy.

        Empty: none goes, and why is counted; `again` says when to ask once more. With `dry_run` it
        is always empty, and the copy is counted as one that would have gone.
        """
        self._refused = None
        if self._idle or primary.copy_due:
            return ()
        if not others:
            return self._refuse(Refusal.ALONE)
        rules = self._rules
        ttfts = self._of(view.model, view.stream, now)
        used = utilisation([replica, *others])
        most = self._policy.most_utilised()
        # Who must be sure that the pool is idle does not take "unknown" for an answer.
        if used is None and most < rules.utilisation:
            return self._refuse(Refusal.UTILISATION)
        if used is not None and used >= min(most, rules.utilisation):
            return self._refuse(Refusal.UTILISATION)
        found, why = able(replica, others, rules.kv_usage, now)
        if not found:
            return self._refuse(why)
        costs = self._costs(view, found)
        found = [r for r in found if self._budget.fits(costs[r])]
        if not found:
            return self._refuse(Refusal.BUDGET)
        curve = ttfts.curve
        if curve is not None and primary.predicted_s > 0.0:
            waited_s = now - primary.began
            fit = ttfts.fit
            try:
                found = [
                    r
                    for r in found
                    if self._policy.pays(
                        waited_s,
                        primary.predicted_s,
                        fit.predict(costs[r] + r.pending_tokens),
                        curve,
                    )
                ]
            except Exception:  # a stranger's policy
                self.metrics.policy_errors += 1
                found = []
            if not found:
                return self._refuse(Refusal.GAIN)
        if rules.dry_run:
            self._would_fire(primary, ttfts, min([costs[r] for r in found]), now)
            return ()
        return apart(replica, found)

    def again(self, primary: Attempt, now: float) -> float:
        """When to ask `backup` once more, right after it said nobody. NEVER: it is of no use."""
        why = self._refused
        if why is None or why in _FINAL:
            return NEVER
        return now + max(AGAIN_S, 0.1 * (now - primary.began))

    def _refuse(self, why: Refusal) -> Sequence[Replica]:
        self._refused = why
        self.metrics.suppressed[why] += 1
        return ()

    def _costs(self, view: RequestView, replicas: Sequence[Replica]) -> dict[Replica, int]:
        """Uncached tokens of the request at each of them, as the chooser counts them."""
        held = self._fleet.knowledge.held(view)
        tokens, block = view.prompt_tokens, view.block_tokens
        return {r: max(0, tokens - int(held.get(r, 0) * block)) for r in replicas}

    def _would_fire(self, primary: Attempt, ttfts: Ttfts, tokens: int, now: float) -> None:
        """A copy of so many tokens would go now: pay for it, and note when it would answer."""
        metrics = self.metrics
        metrics.would_fire += 1
        metrics.would_fire_tokens += tokens
        self._budget.take(tokens)
        metrics.budget_tokens = self._budget.level
        primary.copy_due = now + ttfts.fit.predict(tokens)

    # -- what becomes of it -------------------------------------------------------------------

    def sent(self, view: RequestView, hedge: Attempt, replica: Replica, now: float) -> None:
        """A copy leaves; its lease is taken already."""
        metrics = self.metrics
        metrics.fired += 1
        metrics.fired_tokens += hedge.tokens
        self._budget.take(hedge.tokens)
        metrics.budget_tokens = self._budget.level
        hedge.ahead = replica.pending_tokens
        hedge.predicted_s = self._of(view.model, view.stream, now).fit.predict(hedge.ahead)

    def shown(
        self, view: RequestView, attempt: Attempt, replica: Replica, streamed: bool, now: float
    ) -> None:
        """An attempt shows its first content (or its whole answer), and it is the first to."""
        if attempt.ahead < 0:
            return
        self._of(view.model, streamed, now).shown(
            attempt.ahead, now - attempt.began, attempt.predicted_s, now
        )
        if attempt.kind == Kind.HEDGE:
            self.metrics.won += 1
        elif attempt.copy_due:
            self._would_have(attempt, now)

    def outrun(
        self,
        view: RequestView,
        attempt: Attempt,
        winner: Attempt,
        replica: Replica,
        streamed: bool,
        now: float,
    ) -> None:
        """An attempt is cancelled because `winner` showed content first."""
        if attempt.ahead < 0:
            return
        metrics = self.metrics
        ttfts = self._of(view.model, streamed, now)
        waited_s, predicted_s = now - attempt.began, attempt.predicted_s
        ttfts.cut(attempt.ahead, waited_s, predicted_s, now)
        metrics.wasted_tokens += attempt.tokens
        if attempt.kind == Kind.HEDGE:
            metrics.lost += 1
            return
        curve = ttfts.curve
        if curve is not None and predicted_s > 0.0:
            metrics.saved_s += predicted_s * curve.remaining(waited_s / predicted_s)
        if self._fleet.outrun(replica, attempt.began, now):
            metrics.suspected += 1

    def failed(self, view: RequestView, attempt: Attempt, replica: Replica, now: float) -> None:
        """It ended without content in any other way: an error, a timeout, the client left."""
        if attempt.ahead < 0:
            return
        self._of(view.model, view.stream, now).cut(
            attempt.ahead, now - attempt.began, attempt.predicted_s, now
        )
        if attempt.kind == Kind.HEDGE:
            metrics = self.metrics
            metrics.failed += 1
            if attempt.reason in UNSENT:
                self._budget.give_back(attempt.tokens)
                metrics.fired_tokens -= attempt.tokens
                metrics.returned_tokens += attempt.tokens
                metrics.budget_tokens = self._budget.level
            else:
                metrics.wasted_tokens += attempt.tokens
        elif attempt.copy_due:
            self._would_have(attempt, now)

    def _would_have(self, primary: Attempt, now: float) -> None:
        """The first attempt ended, by itself, after a copy that was only counted."""
        if now > primary.copy_due:
            self.metrics.would_win += 1
            self.metrics.would_save_s += now - primary.copy_due

    # -- what is learned ----------------------------------------------------------------------

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
        ttfts = known[model] = Ttfts(now)
        self._plan(ttfts)
        return ttfts

    def _refresh(self, ttfts: Ttfts, now: float) -> None:
        ttfts.refresh(now)
        self._plan(ttfts)

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
