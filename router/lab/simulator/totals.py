"""The totals of a simulation. They contain only simple values, because they are pickled.

`EngineTotals`: totals of one simulated replica, over all its restarts.

Totals are pickled and sent between processes, so this file is not compiled.

`counted`: the counts of all queues of a simulation, summed by priority class.

Must never: change a count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from router.admission.counts import EVICTED, EXPIRIES, GONE, REFUSALS, QueueCounts
from router.core.errors import Reason
from router.dispatch.queueing.queue_driver import QueueDriver
from router.lab.emulator.core.engine_core import EngineCore
from router.lab.simulator.hedges import Hedges


@dataclass(slots=True)
class EngineTotals:
    """Totals of one replica, over all its restarts."""

    requests: int = 0  # requests that the engine accepted
    finished: int = 0
    aborted: int = 0  # requests that routers cancelled
    prompt_tokens: int = 0  # prompt tokens of scheduled requests
    cached_tokens: int = 0  # prompt tokens that were found in the prefix cache
    # Tokens computed by prefills, as in `EngineCore`. Requests that came without a router count,
    # too.
    prefilled_tokens: int = 0
    generated_tokens: int = 0
    preemptions: int = 0
    peak_waiting: int = 0
    busy_s: float = 0.0  # seconds with at least one request

    def add(self, core: EngineCore[Any]) -> None:
        """Add the totals of an engine core: of the current one, or of one before a restart."""
        self.requests += core.submitted
        self.finished += core.finished
        self.aborted += core.aborted
        self.prompt_tokens += core.prompt_tokens
        self.cached_tokens += core.prefix_hits
        self.prefilled_tokens += core.prefilled_tokens
        self.generated_tokens += core.generation_tokens
        self.preemptions += core.preemptions
        self.peak_waiting = max(self.peak_waiting, core.peak_waiting)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """The totals of one run, over all routers."""

    events: int  # number of events of the virtual clock
    requests: int
    ends: dict[Reason, int]  # number of requests by the reason of their end
    seconds: float  # simulated time until the last request ended
    engines: tuple[EngineTotals, ...]  # the totals of each replica, by replica number
    polls: int
    retries: int
    ejections: int
    policy_errors: int  # failed calls of the policy: exceptions and invalid choices
    hedges: Hedges
    # Counts of the queues by name. Each value has a count for each class, from 0 (critical) to 4
    # (batch). Empty: no router has a queue.
    queues: dict[str, tuple[int, ...]] = field(default_factory=dict)
    evictions: int  # (block, replica) pairs evicted from the routers' prefix indexes
