"""A request together with its driver: the common part of requests in the proxy and the simulator.

Must never: decide about an attempt, or depend on whether its time is real.
"""

from __future__ import annotations

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


@mypyc_attr(allow_interpreted_subclasses=True)
class RoutedRequest(DrivenRequest):
    """A request and its driver.

    Times are monotonic seconds. `request_end.end_request` ends it, once.
    """

    __slots__ = ("context", "driver", "work")

    def __init__(
        self,
        context: Context,
        view: RequestView,
        urgency: Urgency,
        arrived: float,
        route: Route,
        request_id: bytes,
    ) -> None:
        times = context.rules.times_of(urgency.stated)
        super().__init__(view, urgency, arrived, route, times, request_id)
        self.context = context
        self.driver = RequestDriver(self, context)
        self.work = Work()

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
