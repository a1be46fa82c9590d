"""What the requests of one router share: the parts that decide, the counters, the settings.

Drivers and requests get it explicitly, so that none of them needs the dispatcher. The dispatcher of
the proxy, or the simulated router, makes it and keeps it up to date.

Must never: hold anything that belongs to one request.
"""

from __future__ import annotations

from random import Random

from router.core.scheduling import Scheduler
from router.dispatch.chooser import Chooser
from router.dispatch.first_probes import FirstProbes
from router.dispatch.hedger import Hedger
from router.dispatch.queue_driver import QueueDriver
from router.dispatch.retry import Budget
from router.dispatch.rules import Rules
from router.fleet.table import Fleet
from router.observe.metrics import Metrics


class Context:
    """One router's."""

    __slots__ = (
        "_rng",
        "budget",
        "chooser",
        "closing",
        "first_probes",
        "fleet",
        "hedger",
        "metrics",
        "queue",
        "rules",
        "scheduler",
    )

    def __init__(
        self,
        rules: Rules,
        fleet: Fleet,
        chooser: Chooser,
        hedger: Hedger,
        budget: Budget,
        metrics: Metrics,
        scheduler: Scheduler,
        queue: QueueDriver | None,
        rng: Random,
    ) -> None:
        self.rules = rules
        self.fleet = fleet
        self.chooser = chooser
        self.hedger = hedger
        self.budget = budget  # of retries
        self.metrics = metrics
        self.scheduler = scheduler
        self.queue = queue  # None: requests are sent at once
        self.first_probes = FirstProbes(fleet, scheduler)
        self.closing = False  # nothing is begun any more
        self._rng = rng

    def backoff_s(self, rules: Rules, attempts: int) -> float:
        """The pause before another attempt: full jitter over a time that doubles (Envoy's)."""
        longest = min(rules.backoff_s * (2.0**attempts - 1.0), rules.backoff_max_s)
        return self._rng.random() * longest
