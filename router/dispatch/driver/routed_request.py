"""A request together with its driver: the common part of requests in the proxy and the simulator.

Must never: decide about an attempt, or depend on whether its time is real.
"""

from __future__ import annotations

from math import inf
from typing import cast

from mypy_extensions import mypyc_attr

from policies.facts import RequestView
from router.core.urgency import Urgency
from router.dispatch.context import Context
from router.dispatch.driver.attempt_state import Attempt
from router.dispatch.driver.driven_request import DrivenRequest
from router.dispatch.driver.request_driver import RequestDriver
from router.dispatch.driver.work import Work
from router.fleet.replica import Replica
from router.intake.routes import Route
from router.wire.sweep import NEVER


@mypyc_attr(allow_interpreted_subclasses=True)
class RoutedRequest(DrivenRequest):
    """A request and its driver.

    Times are monotonic seconds. `request_end.end_request` ends it, once.
    """

    __slots__ = ("context", "driver", "total_due", "wanted_until", "work")

    def __init__(
        self,
        context: Context,
        view: RequestView,
        urgency: Urgency,
        arrived: float,
        route: Route,
        streamed: bool,
        request_id: bytes,
    ) -> None:
        times = context.rules.times_of(urgency.stated)
        super().__init__(view, urgency, arrived, route, streamed, times, request_id)
        self.context = context
        self.driver = RequestDriver(self, context)
        self.work = Work()
        self.wanted_until = inf  # The client has no use for an answer that begins later.
        # When the time for the whole request is over.
        self.total_due = arrived + times.total_s if times.total_s else NEVER

    def want_until(self, until: float) -> None:
        """Set the time until which the client wants the answer to begin.

        Called before the first attempt. The exchange watches this time while the request is not
        queued; the queue watches it otherwise.
        """
        self.wanted_until = until
        self.first_s = self.patience_s()

    def patience_s(self) -> float:
        """Return the seconds that an attempt may take to its first content.

        There is no limit for a whole answer whose client stated its own timeout.
        """
        if not self.is_whole:
            return self.times.first_token_s
        return self.times.whole_s if self.wanted_until == inf else NEVER

    # -- what the queue driver asks of it ---------------------------------------------------------

    def prepare(self, replica: Replica, now: float) -> Attempt:
        return self.driver.prepare(replica, now)

    def go(self, prepared: object) -> None:
        self.driver.go(cast(Attempt, prepared))

    def recall(self, now: float) -> None:
        self.driver.recall(now)

    def last_attempt(self) -> tuple[Replica, float] | None:
        attempts = self.driver.state.attempts
        return (attempts[-1].at, attempts[-1].began) if attempts else None
