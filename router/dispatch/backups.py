"""Which replicas may take a copy of a request that is under way elsewhere.

A copy must not wait, nor make anybody wait, and it must not share the fate of the first: not the
same engine by another address, and rather another zone, or another node, than the same. One
question after the other is asked of each replica. If no replica can take the copy, the reason is
that of the replica that passed the most questions.

In a large pool, only a window of replicas is looked at, which moves on with each question, and some
replicas that hold the prompt's prefix. 64 replicas of a thousand are enough to choose from, and
their utilisation is within a few percent of the pool's.

Must never: count anything, or choose among those who are left: that is the routing policy's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from router.fleet.replica import Replica
from router.observe.hedge_counts import Refusal

WINDOW: Final = 64  # replicas that are looked at for one question, at most ...
HOLDERS: Final = 16  # ... besides those of a larger pool that hold the prefix
ENOUGH: Final = 32  # that may take a copy; the routing policy chooses among them

# In the order of the questions.
_ORDER: Final = (
    Refusal.ALONE,
    Refusal.SAME_ENGINE,
    Refusal.HEALTH,
    Refusal.WAITING,
    Refusal.KV,
    Refusal.BUDGET,
    Refusal.GAIN,
)
RANK: Final = {why: rank for rank, why in enumerate(_ORDER)}


def window(pool: Sequence[Replica], turn: int) -> Sequence[Replica]:
    """Up to WINDOW neighbours. Each `turn` begins with others, where not all can be offered."""
    count = len(pool)
    if count <= ENOUGH:
        return pool
    start = turn * ENOUGH % count
    found = [*pool[start : start + WINDOW]]
    return [*found, *pool[: min(start, WINDOW - len(found))]]


def same_engine(one: Replica, other: Replica) -> bool:
    """Whether two addresses seem to be one engine: started at the same hundredth of a second, with
    the same models, with totals that never contradict each other (`fleet.same_engine`), and not
    configured as different nodes."""
    started = one.told.started_at
    if not started or started != other.told.started_at:  # 0: no moment at which anything started
        return False
    if other in one.apart:
        return False
    nodes = one.config.node, other.config.node
    return one.models == other.models and (not all(nodes) or nodes[0] == nodes[1])


def is_sound(replica: Replica, now: float) -> bool:
    """Whether nothing speaks against it: where much of the fleet is out, unfit ones are asked."""
    health = replica.health
    return (
        health.up
        and not health.is_ejected(now)
        and not health.is_suspect(now)
        and not health.half_open
        and not health.is_busy(now)
        and not replica.removed
        and replica.inflight < replica.limit
    )


def obstacle(primary: Replica, other: Replica, kv_usage: float, now: float) -> Refusal | None:
    """Why `other` cannot take a copy now; None: it can.

    `kv_usage`: limit; a replica whose estimated KV cache usage is this high takes none.
    """
    if other is primary:
        return Refusal.ALONE
    if same_engine(primary, other):
        return Refusal.SAME_ENGINE
    if not is_sound(other, now):
        return Refusal.HEALTH
    if other.waiting:
        return Refusal.WAITING
    if other.kv_usage is not None and other.kv_usage >= kv_usage:
        return Refusal.KV
    return None


def apart(primary: Replica, able: list[Replica]) -> list[Replica]:
    """Those in another failure domain than `primary`, where there are any: zone before node."""
    zone, node = primary.config.zone, primary.config.node
    if zone:
        found = [r for r in able if r.config.zone and r.config.zone != zone]
        if found:
            return found
    if node:
        found = [r for r in able if r.config.node and r.config.node != node]
        if found:
            return found
    return able
