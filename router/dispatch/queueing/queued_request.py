"""The interface of a request for the queue driver, in the proxy and in the simulator.

The interface contains the data that the queue needs and that is not part of the ticket. The queue
driver calls its methods to let the request wait, to send it, or to end it.

Must never: decide when the request is sent, or where.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from mypy_extensions import mypyc_attr

from policies.facts import RequestView
from policies.queueing.flow_identity import FlowIdentity
from policies.queueing.ticket import Ticket
from router.admission.concurrency import Concurrency
from router.core.errors import RouterError
from router.core.ttft_estimate import TtftEstimate
from router.core.urgency import Urgency
from router.fleet.replica import Replica

# The value of `waits_since` if the request does not wait, and of `unreached_since` if its last
# connection did not fail.
NOT_SINCE: Final = -1.0


@mypyc_attr(allow_interpreted_subclasses=True)
class QueuedRequest(ABC):
    """A request as the queue driver uses it. Times are monotonic seconds."""

    __slots__ = (
        "_waited_s",
        "arrived",
        "concurrency",
        "estimate",
        "is_counted",
        "order",
        "pinned",
        "ticket",
        "unreached_since",
        "urgency",
        "view",
        "waits_since",
    )

    def __init__(self, view: RequestView, urgency: Urgency, arrived: float) -> None:
        self.view = view
        self.urgency = urgency
        self.arrived = arrived
        # The queue ticket; `None`: the request bypassed the queue, or has left it.
        self.ticket: Ticket | None = None
        # The estimated time to first token, made at the arrival; `None`: nothing was known, or the
        # request is not a stream.
        self.estimate: TtftEstimate | None = None
        # The only replica that can answer, because it holds the response to which the request
        # refers; `None`: any replica.
        self.pinned: Replica | None = None
        # The concurrency limit of the request's key, if the request uses the queue; `None`: no
        # limit.
        self.concurrency: Concurrency | None = None
        # Whether the driver counts the request against `concurrency`. A request with a ticket is
        # counted by the queue instead.
        self.is_counted = False
        # Position in the order of arrival; 0: the request has no position yet.
        self.order = 0
        # Time since which no replica accepts the request's connections.
        self.unreached_since = NOT_SINCE
        self.waits_since = NOT_SINCE  # Time since which the request waits in the queue.
        self._waited_s = 0.0  # Total seconds of the request's earlier waits in the queue.

    def waited_s(self, now: float) -> float:
        """Return the total seconds that the request has waited in the queue."""
        since = self.waits_since
        return self._waited_s if since < 0.0 else self._waited_s + now - since

    def begin_wait(self, now: float) -> None:
        """Note that the request waits in the queue from `now` on."""
        self.waits_since = now
        self.on_queued(now)

    def end_wait(self, now: float) -> None:
        """Note that the wait ends and the request is about to be sent."""
        self._waited_s = self.waited_s(now)
        self.waits_since = NOT_SINCE
        self.on_granted(now)

    @abstractmethod
    def on_queued(self, now: float) -> None:
        """Suspend the time limit for a replica's answer while the request waits."""

    @abstractmethod
    def on_granted(self, now: float) -> None:
        """Start the time limit for a replica's answer again."""

    @abstractmethod
    def make_ticket(self, model: str, lane: str | None) -> Ticket:
        """Create the ticket, before it is offered to the queue. `lane`: see `Ticket`."""

    @abstractmethod
    def flow_identity(self) -> FlowIdentity:
        """Return the flow (account and member) whose share of the fleet the request uses."""

    @abstractmethod
    def limit_context(self) -> None:
        """Limit the request to replicas whose context is long enough for it."""

    @abstractmethod
    def may_move(self) -> bool:
        """Whether the request can be sent to another replica after it was sent to one."""

    @abstractmethod
    def prepare(self, replica: Replica, now: float) -> object:
        """Take the lease of another attempt, and do nothing else. Returns the argument for `go`."""

    @abstractmethod
    def go(self, prepared: object) -> None:
        """Send a prepared attempt, unless the request has ended in the meantime."""

    @abstractmethod
    def recall(self, now: float) -> None:
        """Preempt the request: end its running attempts, which have shown no content."""

    @abstractmethod
    def answer(self, err: RouterError) -> None:
        """End the request with an error of the router."""

    @abstractmethod
    def crashed(self, err: Exception) -> None:
        """End the request after an unexpected exception in code that ran for it.

        The proxy logs the exception; the simulator raises it again.
        """

    @abstractmethod
    def last_attempt(self) -> tuple[Replica, float] | None:
        """Return the replica and the start time of the last attempt; `None` if there was none."""
