"""Decides which requests are copied to a cold replica, to fill its prefix cache (cache warm-up).

A replica is cold for `hedging.warm_up` after it came up, restarted, or returned from an ejection.
While a replica is cold, each stream that shows its first content at another replica is examined. A
copy of the stream is sent to the cold replica if all of these rules hold:

1. The stream's prompt matched a prefix in the cache of its replica, and an earlier request had
   matched the same prefix there. So the third request with a prefix is the first that is copied. A
   turn of a conversation matches the turn before it, which no other request has matched, so it is
   not copied.
2. One replica holds the prefix, so a restart of that replica would lose it; or at least a quarter
   of the pool holds it, so the cold replica will get requests with it, too. A copy of any other
   prefix only displaces other prefixes from the caches of the fleet.
3. The cold replica lacks the prefix, and most of the tokens that the copy computes there belong to
   the prefix.
4. The cold replica has less load than the mean of the pool. A replica with as much load as the
   others has the prefixes of its requests already.
5. The cold replica runs no other copy, and never got a copy for this prefix since it became cold.
6. The cold replica could take a hedge of the stream (`backups.py`): it is healthy, no request waits
   there, and its KV cache has room. Its utilisation is below `hedging.utilisation`.
7. The spare tokens of the hedging budget pay for the copy (`hedge_budget.py`).

A frequent prefix is likely to be examined first, so no order of the prefixes is computed. The copy
begins after the first content, so the stream itself is not delayed, and a request that fails is
never copied. The index has a copy's prompt only from the copy's first token on, so no request is
sent to the cold replica because of a prefix that is still being computed there.

Must never: do I/O, set a timer, read a clock, or choose a replica that `pool` does not contain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from policies.contract import RequestView
from router.config.model import Hedging
from router.dispatch.driver.attempt_state import Attempt
from router.dispatch.hedging.backups import obstacle, window
from router.dispatch.hedging.hedge_budget import HedgeBudget
from router.fleet.replica import Replica
from router.fleet.table import Fleet
from router.fleet.utilisation import utilisation
from router.observe.hedge_counts import HedgeCounts

LOOK_S: Final = 0.2  # Seconds between two searches for cold replicas.
# The maximum number of copies for one replica while it is cold.
COPIES_MOST: Final = 1024
# At least this share of the tokens that a copy computes must belong to the reused prefix.
PREFIX_SHARE: Final = 0.6
# A prefix that several replicas hold is copied if at least this share of the pool holds it.
HELD_SHARE: Final = 0.25


class ColdReplica:
    """A replica that is cold, and its copies. Times are monotonic seconds."""

    __slots__ = ("is_copying", "prefixes", "replica", "since")

    def __init__(self, replica: Replica, since: float) -> None:
        self.replica = replica
        self.since = since  # When the replica became cold.
        self.is_copying = False  # Whether a copy is running at the replica.
        self.prefixes: set[int] = set()  # The last blocks of the prefixes that were copied.


class WarmCopyPlan:
    """A copy to be sent."""

    __slots__ = ("cold", "held", "prefix", "tokens")

    def __init__(self, cold: ColdReplica, prefix: int, tokens: int, held: int) -> None:
        self.cold = cold
        self.prefix = prefix  # The last block of the reused prefix.
        self.tokens = tokens  # Uncached prompt tokens at the cold replica.
        self.held = held  # Number of leading prompt blocks that the cold replica holds.


class WarmUp:
    """The warm-up of the cold replicas of one router. Times are monotonic seconds."""

    def __init__(
        self, rules: Hedging, fleet: Fleet, budget: HedgeBudget, counts: HedgeCounts
    ) -> None:
        self._fleet = fleet
        self._budget = budget
        self._counts = counts
        self._cold: dict[Replica, ColdReplica] = {}
        self._look_at = 0.0  # Time of the next search for cold replicas.
        self._turn = 0
        self.adopt(rules)

    def adopt(self, rules: Hedging) -> None:
        """Apply new rules from a reload."""
        self._rules = rules
        self._look_at = 0.0

    # -- which replica gets a copy ----------------------------------------------------------------

    def examines(self, view: RequestView, attempt: Attempt, now: float) -> bool:
        """Whether the prefix of a stream is reused, and a replica is cold.

        Called at the stream's first content, before its prefix is confirmed in the index.
        """
        if now >= self._look_at:
            self._look(now)
        if not self._cold or not attempt.held or not view.stream:
            return False
        blocks = view.blocks
        shared = min(attempt.held, len(blocks))
        return shared > 0 and self._fleet.knowledge.prefixes.is_reused(
            attempt.at, blocks[shared - 1]
        )

    def plan(
        self, view: RequestView, attempt: Attempt, pool: Sequence[Replica], now: float
    ) -> WarmCopyPlan | None:
        """Return the copy to send of a stream for which `examines` was true; `None`: no copy.

        `attempt`: the attempt that answers the stream. `pool`: the replicas of the allowed regions
        that serve the model.
        """
        blocks, block_tokens, source = view.blocks, view.block_tokens, attempt.at
        shared = min(attempt.held, len(blocks))
        if not shared:
            return None  # The stream has gone to another model since.
        prefix = blocks[shared - 1]
        able = [cold for cold in self._cold.values() if self._may_copy(cold, prefix)]
        if not able:
            return None
        held = self._fleet.knowledge.held(view)
        if not self._is_needed(held, shared, pool):
            return None
        found: WarmCopyPlan | None = None
        load = self._mean_load(pool)
        for cold in able:
            replica = cold.replica
            if replica.load >= load or replica not in pool:
                continue
            if view.model is None and replica.models != source.models:
                continue
            own = held.get(replica, 0)
            tokens = max(1, view.prompt_tokens - int(own * block_tokens))
            if (shared - own) * block_tokens < PREFIX_SHARE * tokens:
                continue
            if found is not None and len(cold.prefixes) >= len(found.cold.prefixes):
                continue
            if self._has_room(replica, source, now) and self._budget.fits_spare(tokens):
                found = WarmCopyPlan(cold, prefix, tokens, own)
        return found

    def _mean_load(self, pool: Sequence[Replica]) -> float:
        """Return the mean load of the replicas in a window of the pool."""
        self._turn += 1
        seen = window(pool, self._turn)
        load = 0
        for replica in seen:
            load += replica.load
        return load / len(seen) if seen else 0.0

    def _is_needed(self, held: Mapping[Replica, int], shared: int, pool: Sequence[Replica]) -> bool:
        """Whether the cold replica is likely to need a prefix of `shared` blocks."""
        holders = 0
        for replica, depth in held.items():
            if replica.is_fit and depth >= shared:
                holders += 1
        return holders <= 1 or holders >= HELD_SHARE * len(pool)

    def _may_copy(self, cold: ColdReplica, prefix: int) -> bool:
        prefixes = cold.prefixes
        return not cold.is_copying and len(prefixes) < COPIES_MOST and prefix not in prefixes

    def _has_room(self, replica: Replica, primary: Replica, now: float) -> bool:
        rules = self._rules
        if replica.is_external or obstacle(primary, replica, rules.kv_usage, now) is not None:
            return False
        used = utilisation((replica,))
        return used is None or used < rules.utilisation

    def _look(self, now: float) -> None:
        """Search the fleet for cold replicas."""
        self._look_at = now + LOOK_S
        begun = now - self._rules.warm_up_s
        before, self._cold = self._cold, {}
        for replica in self._fleet.ready:
            since = replica.health.warm_since
            if since is not None and since > begun:
                cold = before.get(replica)
                if cold is None or cold.since != since:
                    cold = ColdReplica(replica, since)
                self._cold[replica] = cold

    # -- events of a copy -------------------------------------------------------------------------

    def sent(self, plan: WarmCopyPlan) -> None:
        """Count a copy that is sent, and withdraw its tokens from the budget."""
        plan.cold.is_copying = True
        plan.cold.prefixes.add(plan.prefix)
        self._budget.take_spare(plan.tokens)
        counts = self._counts
        counts.warm_up_tokens += plan.tokens

    def ended(self, plan: WarmCopyPlan, outcome: str, is_sent: bool) -> None:
        """Count the end of a copy. Called once per copy.

        `outcome`: one of `hedge_counts.WARM_UP_OUTCOMES`. `is_sent`: whether the copy has had a
        connection; otherwise its tokens are returned to the budget.
        """
        plan.cold.is_copying = False
        counts = self._counts
        counts.warm_ups[outcome] += 1
        if not is_sent:
            self._budget.give_back_spare(plan.tokens)
            counts.warm_up_tokens -= plan.tokens
            counts.warm_up_returned_tokens += plan.tokens
