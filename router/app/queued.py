"""Reports the state of the queue: waiting requests, their tenants, and how requests left it.

Must never: change anything, or list more tenants than `MOST`.
"""

from __future__ import annotations

from heapq import nlargest
from typing import Any, Final

from router.admission.counts import DROPS
from router.admission.queue import Queue
from router.core.clock import monotonic
from router.core.urgency import CLASSES
from router.dispatch.queueing.queue_driver import QueueDriver

# Maximum number of tenants in the report. It lists the tenants with the most waiting requests.
MOST: Final = 100
_COUNTED: Final = (
    *("passed", "queued", "granted", "inverted", "engine_inverted", "promoted", "preempted"),
)


def waiting(driver: QueueDriver | None) -> int:
    """Return the number of waiting requests."""
    return 0 if driver is None else driver.pools.waiting


def described(driver: QueueDriver | None) -> dict[str, Any]:
    """Return the data of GET /queue."""
    if driver is None:
        return {"enabled": False}
    queues = driver.pools.queues
    now = monotonic()
    tenants: dict[tuple[str, str], int] = {}
    for queue in queues:
        for flow, count in queue.wait_lists.holders.by_flow().items():
            tenants[flow] = tenants.get(flow, 0) + count
    first = nlargest(MOST, tenants.items(), key=_count)
    return {
        "enabled": True,
        "waiting": driver.pools.waiting,
        "pools": [_pool(queue, now) for queue in queues],
        "tenants": [{"key": key, "user": user, "waiting": n} for (key, user), n in first],
        "tenants_unnamed": len(tenants) - len(first),
    }


def closed(driver: QueueDriver | None) -> dict[str, dict[str, str]]:
    """Return the priority classes that each replica does not accept now, each with the reason."""
    found: dict[str, dict[str, str]] = {}
    for queue in () if driver is None else driver.pools.queues:
        for place in queue.gates.by_place:
            whys = {name: queue.gates.why_closed(place, n) for n, name in enumerate(CLASSES)}
            found[str(getattr(place, "id", place))] = {
                name: why for name, why in whys.items() if why
            }
    return found


def _count(item: tuple[tuple[str, str], int]) -> int:
    return item[1]


def _pool(queue: Queue, now: float) -> dict[str, Any]:
    depth, ages_s, counts = queue.depth, queue.wait_lists.ages_s(now), queue.counts
    eligible = queue.eligible
    return {
        "policy": queue.config.queue.policy,
        "replicas": sorted(str(getattr(place, "id", place)) for place in queue.gates.by_place),
        "waiting": queue.waiting,
        "body_bytes": queue.body_bytes,
        "skipped": counts.skipped,
        "headroom": round(queue.headroom.level, 3),  # see `admission/headroom.py`
        "classes": {
            name: {
                "waiting": depth[number],
                # The number of requests that wait because of a limit of their key.
                "blocked": depth[number] - eligible[number],
                "eldest_s": round(ages_s[number], 3),
                **{what: getattr(counts, what)[number] for what in _COUNTED},
                "dropped": {why: n for why in DROPS if (n := counts.dropped[why][number])},
            }
            for number, name in enumerate(CLASSES)
        },
    }
