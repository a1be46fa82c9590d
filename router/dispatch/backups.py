"""Which replicas may take a copy of a request that is under way elsewhere.

A copy must not wait, nor make anybody wait, and it must not share the fate of the first: not the
same engine by another address, and rather another zone, or another node, than the same. One
question after the other narrows the list; the one that empties it is why no copy goes.

Must never: count anything, or choose among those who are left: that is the routing policy's.
"""

from __future__ import annotations

from collections.abc import Sequence

from router.fleet.replica import Replica
from router.observe.hedge_counts import Refusal


def same_engine(one: Replica, other: Replica) -> bool:
    """Whether two addresses are one engine, by all that is known: started at the same hundredth of
    a second, with the same models, their totals never a contradiction (`fleet.twins`), and not said
    to be on different nodes."""
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


def able(
    primary: Replica, others: Sequence[Replica], kv_usage: float, now: float
) -> tuple[list[Replica], Refusal]:
    """Those of `others` that could take a copy now; of nobody, why (else the reason is idle).

    `kv_usage`: a replica whose KV cache is that full takes none.
    """
    left = [r for r in others if r is not primary]
    if not left:
        return left, Refusal.ALONE
    left = [r for r in left if not same_engine(primary, r)]
    if not left:
        return left, Refusal.SAME_ENGINE
    left = [r for r in left if is_sound(r, now)]
    if not left:
        return left, Refusal.HEALTH
    left = [r for r in left if not r.waiting]
    if not left:
        return left, Refusal.WAITING
    return [r for r in left if r.kv_usage is None or r.kv_usage < kv_usage], Refusal.KV


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
