"""The counts of all queues of a simulation, summed by priority class.

Must never: change a count.
"""

from __future__ import annotations

from collections.abc import Iterable

from router.admission.counts import EVICTED, EXPIRIES, GONE, REFUSALS, QueueCounts
from router.dispatch.queueing.queue_driver import QueueDriver


def counted(drivers: Iterable[QueueDriver | None]) -> dict[str, tuple[int, ...]]:
    """The sums by name and priority class. The names are those of `QueueCounts`.

    The result is empty if no router has a queue.
    """
    found = [driver for driver in drivers if driver is not None]
    if not found:
        return {}
    total = QueueCounts()
    for driver in found:
        pools = driver.pools
        for one in (pools.past, *(queue.counts for queue in pools.queues)):
            total.add(one)
    return {
        "passed": tuple(total.passed),
        "queued": tuple(total.queued),
        "granted": tuple(total.granted),
        "inverted": tuple(total.inverted),
        "engine_inverted": tuple(total.engine_inverted),
        "promoted": tuple(total.promoted),
        "preempted": tuple(total.preempted),
        "refused": _dropped(total, (*REFUSALS, EVICTED)),
        "expired": _dropped(total, (*EXPIRIES, GONE)),
    }


def _dropped(total: QueueCounts, reasons: Iterable[str]) -> tuple[int, ...]:
    by_reason = [total.dropped[reason] for reason in reasons]
    return tuple(map(sum, zip(*by_reason, strict=True)))
