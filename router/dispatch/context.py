"""The objects that the requests of one router share: policies, budgets, counters and settings.

Request drivers and requests get the context as an argument, so they do not depend on the
dispatcher. The app, or the simulated router, creates it, and `app/reload.py` applies reloads.

Must never: hold anything that belongs to one request.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from router.config.model import Config
from router.core.scheduling import Scheduler
from router.core.ttft_estimate import TtftEstimates
from router.dispatch.chooser import Chooser
from router.dispatch.driver.first_probes import FirstProbes
from router.dispatch.driver.retry import Budget
from router.dispatch.hedging.hedger import Hedger
from router.dispatch.queueing.queue_driver import QueueDriver
from router.dispatch.resumption import Resumption
from router.dispatch.rules import Rules
from router.fleet.table.fleet import Fleet
from router.observe.metrics import Metrics


class Context:
    """The shared parts of one router."""

    __slots__ = (
        "_rng",
        "budget",
        "chooser",
        "closing",
        "estimates",
        "first_probes",
        "fleet",
        "hedger",
        "log_defect",
        "metrics",
        "queue",
        "resumption",
        "rules",
        "scheduler",
    )

    def __init__(
        self,
        config: Config,
        fleet: Fleet,
        chooser: Chooser,
        hedger: Hedger,
        metrics: Metrics,
        scheduler: Scheduler,
        rng: Random,
        token: str | None = None,
        resumption: Resumption | None = None,
    ) -> None:
        """`token`: the secret of `upstream`. `resumption`: see `Rules`.

        The constructor raises PolicyConfigError.
        """
        self.resumption = resumption
        # The settings in force. A reload replaces them; requests keep those they began with.
        self.rules = Rules(config, token, resumption)
        self.fleet = fleet
        self.chooser = chooser
        self.hedger = hedger
        self.budget = Budget(config.retry)  # The retry budget; it also counts the running requests.
        self.metrics = metrics
        self.scheduler = scheduler
        self.estimates = TtftEstimates()
        self.queue: QueueDriver | None = None  # `None`: requests are sent without queueing.
        if config.queue.enabled:
            self.queue = QueueDriver(config, fleet, chooser, metrics, scheduler, self.estimates)
        self.first_probes = FirstProbes(fleet, scheduler)
        fleet.suspects.adopt(config.bodies.suspect_s)
        self.closing = False  # True: the router is stopping, and begins no request and no attempt.
        # Called with an unexpected exception that affects one request at most. The proxy logs it.
        self.log_defect: Callable[[Exception], None] = _raise
        self._rng = rng

    def takes_steps(self) -> bool:
        """Whether pending requests of a flow make its next request less urgent.

        A lower urgency is unnecessary if the queue's order policy shares capacity fairly between
        flows.
        """
        return self.rules.steps and (self.queue is None or not self.queue.is_fair)

    def backoff_s(self, rules: Rules, attempts: int) -> float:
        """Return the pause in seconds before another attempt: exponential backoff with full jitter,
        as in Envoy."""
        longest = min(rules.backoff_s * (2.0**attempts - 1.0), rules.backoff_max_s)
        return self._rng.random() * longest


def _raise(err: Exception) -> None:
    raise err
