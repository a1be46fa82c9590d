"""A request together with its driver: the base class of requests in the proxy and the simulator.

Must never: decide about an attempt, or depend on whether the time is real or simulated.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from policies.allowed import Allowed, with_context
from policies.facts import RequestView
from router.core.urgency import Urgency
from router.dispatch.context import Context
from router.dispatch.driver.attempt_state import Attempt
from router.dispatch.driver.driven_request import DrivenRequest
from router.dispatch.driver.request_driver import RequestDriver
from router.dispatch.driver.work import Work
from router.dispatch.tenants import TenantShare
from router.dispatch.usage.token_counts import UNKNOWN
from router.fleet.replica import Replica
from router.intake.keys import Key
from router.intake.routes import Route
from router.wire.sweep import NEVER


@mypyc_attr(allow_interpreted_subclasses=True)
class RoutedRequest(DrivenRequest):
    """A request and its driver.

    Times are monotonic seconds. `request_end.end_request` is called once when the request ends.
    """

    __slots__ = ("context", "driver", "tenant_share", "total_due", "work")

    def __init__(
        self,
        context: Context,
        view: RequestView,
        urgency: Urgency,
        arrived: float,
        route: Route,
        request_id: bytes,
    ) -> None:
        rules = context.rules
        times = rules.times_of(urgency.stated)
        view.decodes = route.decodes
        rules.slos[urgency.rank].fill(view, arrived)
        super().__init__(view, urgency, arrived, route, times, request_id)
        self.context = context
        self.driver = RequestDriver(self, context)
        self.work = Work()
        self.tenant_share: TenantShare | None = None  # The request's share of its tenant's limits.
        # Time at which the total timeout of the request passes.
        self.total_due = arrived + times.total_s if times.total_s else NEVER

    def state_slos(self, key: Key | None, ttft_s: float, tpot_s: float) -> None:
        """Set the SLOs that the API key or the client states for the request.

        Called before the prompt is measured and before the request is queued. `key`: the request's
        API key, if it has one. `ttft_s`, `tpot_s`: the client's SLOs in seconds; 0: none.
        """
        self.context.rules.slos[self.urgency.rank].state(self.view, key, ttft_s, tpot_s)

    def leave_tenant(self, is_work: bool, now: float, charge: int = 0) -> None:
        """Release the request's share of its tenant's limits, when the request is over.

        `is_work`: True if an engine has generated an answer. A request that the engine refused
        costs no tokens, but it counts as a request. `charge`: the tokens that it costs at least.
        """
        share = self.tenant_share
        if share is None:
            return
        usage = self.work.usage
        share.leave(usage, is_work or usage is not UNKNOWN, charge, now)
        queue = self.context.queue
        if queue is not None:
            queue.wake()

    def limit_regions(self, allowed: Allowed | None) -> None:
        """Apply the regions of the request's key that a reload has changed.

        They apply to everything that is sent from now on. What was sent before stays where it is.
        """
        before = self.view.allowed
        self._limit(with_context(allowed, 0 if before is None else before.context))

    def limit_context(self) -> None:
        """Limit the request to replicas whose context is long enough for it.

        Called when the request is placed. It is called again when the fleet's context lengths may
        have changed.
        """
        levels, allowed = self.context.fleet.context_levels, self.view.allowed
        if levels.is_used or (allowed is not None and allowed.context):
            self._limit(levels.limited(self.view, self.view.model))

    def _limit(self, allowed: Allowed | None) -> None:
        if allowed != self.view.allowed:
            self.view.allowed = allowed
            queue = self.context.queue
            if queue is not None:
                queue.limits_changed(self)

    # -- interface for the queue driver -----------------------------------------------------------

    def prepare(self, replica: Replica, now: float) -> Attempt:
        return self.driver.prepare(replica, now)

    def go(self, attempt: Attempt) -> None:
        self.driver.go(attempt)

    def recall(self, now: float) -> None:
        self.driver.recall(now)

    def last_attempt(self) -> Attempt | None:
        return self.driver.state.last
