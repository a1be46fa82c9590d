"""A request as the queue driver sees it, in the proxy and in the simulator.

It has the facts that the queue needs and that belong to no ticket, and the calls by which the
driver lets it wait, sends it, or ends it.

Must never: decide when it is sent, or where.
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
from router.core.urgency import Urgency
from router.fleet.replica import Replica

NOT_SINCE: Final = -1.0  # of a moment: it is not the case


@mypyc_attr(allow_interpreted_subclasses=True)
class QueuedRequest(ABC):
    """Times are monotonic seconds."""

    __slots__ = (
        "_waited_s",
        "arrived",
        "concurrency",
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
        self.ticket: Ticket | None = None  # None: it passed the queue by, or has left it
        self.pinned: Replica | None = None  # state at one replica: no other can answer
        # Its key's limit of requests at replicas, where it goes to the queue; None: it has none.
        self.concurrency: Concurrency | None = None
        self.is_counted = False  # there, without a ticket; a ticket is counted by the queue
        self.order = 0  # its place in the order of arrival; 0: it has not come to the queue yet
        self.unreached_since = NOT_SINCE  # since when no replica could be connected to
        self.waits_since = NOT_SINCE  # since when it waits in the queue
        self._waited_s = 0.0  # there, before that

    def waited_s(self, now: float) -> float:
        """How long it has waited in the queue, all together."""
        since = self.waits_since
        return self._waited_s if since < 0.0 else self._waited_s + now - since

    def begin_wait(self, now: float) -> None:
        """It waits in the queue from now on."""
        self.waits_since = now
        self.on_queued(now)

    def end_wait(self, now: float) -> None:
        """It has waited, and is about to be sent."""
        self._waited_s = self.waited_s(now)
        self.waits_since = NOT_SINCE
        self.on_granted(now)

    @abstractmethod
    def on_queued(self, now: float) -> None:
        """No replica has it: patience with one begins when it is sent there."""

    @abstractmethod
    def on_granted(self, now: float) -> None:
        """Patience with a replica begins."""

    @abstractmethod
    def make_ticket(self, model: str, lane: str | None) -> Ticket:
        """Its ticket, before it is offered. `lane`: see `Ticket`."""

    @abstractmethod
    def flow_identity(self) -> FlowIdentity:
        """Whose share of the fleet it uses."""

    @abstractmethod
    def may_move(self) -> bool:
        """Whether it can be sent to another replica after it was sent to one."""

    @abstractmethod
    def prepare(self, replica: Replica, now: float) -> object:
        """Take the lease of another attempt and do nothing else. The result is for `go`."""

    @abstractmethod
    def go(self, prepared: object) -> None:
        """Send what was prepared, if the request has not ended meanwhile."""

    @abstractmethod
    def recall(self, now: float) -> None:
        """It gives way to a more urgent one: what is under way ends, and has shown nothing."""

    @abstractmethod
    def answer(self, err: RouterError) -> None:
        """End it with an error of the router's own."""

    @abstractmethod
    def crashed(self, err: Exception) -> None:
        """Code that was run for it has raised, which is a defect: end it in whatever form is still
        possible. The proxy logs the defect; the simulator raises it again."""

    @abstractmethod
    def last_attempt(self) -> tuple[Replica, float] | None:
        """The replica of its last attempt, and when that began; None: there was none."""
