"""Selects the replicas that may take a copy of a request that is running at another replica.

A copy must not wait or make another request wait. So it never goes to a replica whose running
streams are all silent: its engine stands still, or is in a long step for another client. A copy
must not fail for the same cause as the first attempt. So it never goes to the same engine at
another address, and prefers another zone, then another node. A list of checks is applied to each
replica. If no replica can take the copy, the reported reason is the one of the replica that passed
the most checks.

In a large pool, only some replicas are checked: a window, which moves with each call, and some
replicas that hold the prompt's prefix. 64 of a thousand replicas are enough to choose from, and
their utilisation differs from that of the pool by a few percent.

Must never: count anything, or choose among the remaining replicas (the routing policy does).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from router.fleet.replica import Replica
from router.observe.hedge_counts import Refusal

WINDOW: Final = 64  # Maximum number of replicas in a window.
# Maximum number of replicas holding the prompt's prefix that are checked in addition to the window,
# in a larger pool.
HOLDERS: Final = 16
# Number of replicas that passed all checks, after which no more replicas are checked.
ENOUGH: Final = 32

# A replica with running streams, none of which has had content for so many seconds, takes no copy.
# Decode steps take below 0.1 s, a prefill step of 8,192 tokens 1.4 s (`emulator/core/timing.py`, an
# 8B model on an A100): a copy at such a replica would begin only after a step longer than that.
SILENT_S: Final = 1.0

# The reasons for which a replica is refused, in the order of the checks.
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
    """Return up to WINDOW adjacent replicas of a pool.

    In a larger pool, the window begins at another replica for each `turn`.
    """
    count = len(pool)
    if count <= ENOUGH:
        return pool
    start = turn * ENOUGH % count
    found = [*pool[start : start + WINDOW]]
    return [*found, *pool[: min(start, WINDOW - len(found))]]


def same_engine(one: Replica, other: Replica) -> bool:
    """Whether two replicas seem to be one engine under two addresses.

    Two addresses seem to be one engine if their processes started in the same hundredth of a
    second, their models are equal, the totals in their metrics never contradict each other
    (`SameEngine`), and they are not configured as different nodes. Data-parallel
    ranks of one address are different engines.
    """
    started = one.reports.last.started_at
    if not started or started != other.reports.last.started_at:  # 0: the start time is unknown.
        return False
    if other in one.reports.apart or other.ranks is one.ranks:
        return False
    nodes = one.config.node, other.config.node
    return one.models == other.models and (not all(nodes) or nodes[0] == nodes[1])


def is_sound(replica: Replica, now: float) -> bool:
    """Whether a replica is healthy and not suspect.

    The health must be checked, because unfit replicas get requests, too, if much of the fleet is
    down.
    """
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


def is_silent(replica: Replica, now: float) -> bool:
    """Whether streams run at a replica, and none of them has had content for `SILENT_S`."""
    return replica.learned.cadence.streams > 0 and now - replica.progress.at > SILENT_S


def obstacle(primary: Replica, other: Replica, kv_usage: float, now: float) -> Refusal | None:
    """Return why `other` cannot take a copy now; `None`: it can take a copy.

    `kv_usage`: a replica whose estimated KV cache usage has reached this limit takes no copy.
    """
    if other is primary:
        return Refusal.ALONE
    if same_engine(primary, other):
        return Refusal.SAME_ENGINE
    if not is_sound(other, now) or is_silent(other, now):
        return Refusal.HEALTH
    if other.waiting:
        return Refusal.WAITING
    if other.kv_usage is not None and other.kv_usage >= kv_usage:
        return Refusal.KV
    return None


def apart(primary: Replica, able: list[Replica]) -> list[Replica]:
    """Return the replicas in another zone than `primary`; if there are none, those on another node;
    else those at another address; else all. Zones of different regions are different, even if they
    have the same name."""
    zone, node = primary.config.zone, primary.config.node
    if zone:
        found = [
            r
            for r in able
            if r.config.zone and (r.config.zone != zone or r.region != primary.region)
        ]
        if found:
            return found
    if node:
        found = [r for r in able if r.config.node and r.config.node != node]
        if found:
            return found
    if len(primary.ranks) > 1:
        found = [r for r in able if r.ranks is not primary.ranks]
        if found:
            return found
    return able
