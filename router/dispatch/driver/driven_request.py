"""The interface of a request for its drivers, in the proxy and in the simulator.

The request driver sends and ends attempts through the interface. The queue driver lets the request
wait, sends it, or ends it. The proxy implements the interface over sockets (`exchange.py`), the
simulator over engine cores (`simulator/exchange.py`). The interface is a base class, so that
compiled code calls it directly.

Must never: decide whether, when or where an attempt is sent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import Final

from mypy_extensions import mypyc_attr

from policies.facts import RequestView
from policies.queueing.flow_identity import FlowIdentity
from policies.queueing.ticket import Ticket
from router.admission.concurrency import Concurrency
from router.core.errors import Reason, RouterError
from router.core.ttft_estimate import TtftEstimate
from router.core.urgency import Urgency
from router.dispatch.driver.attempt_state import Attempt
from router.dispatch.resumption import Rest
from router.dispatch.rules import Times
from router.fleet.names import NamedModel, Target
from router.fleet.replica import Replica
from router.intake.routes import Route
from router.wire.sweep import NEVER

# The value of `waits_since` if the request does not wait, and of `unreached_since` if its last
# connection did not fail.
NOT_SINCE: Final = -1.0


@mypyc_attr(allow_interpreted_subclasses=True)
class DrivenRequest(ABC):
    """A request as its drivers use it. Times are monotonic seconds."""

    __slots__ = (
        "_waited_s",
        "arrived",
        "concurrency",
        "estimate",
        "first_s",
        "hedges_as",
        "is_counted",
        "named",
        "next_fallback",
        "order",
        "pinned",
        "request_id",
        "route",
        "target",
        "ticket",
        "times",
        "unreached_since",
        "urgency",
        "view",
        "waits_for_whole",
        "waits_since",
        "wanted_until",
    )

    def __init__(
        self,
        view: RequestView,
        urgency: Urgency,
        arrived: float,
        route: Route,
        times: Times,
        request_id: bytes,
    ) -> None:
        self.view = view
        self.urgency = urgency
        self.arrived = arrived
        self.route = route
        self.times = times  # The time limits of the request's priority class.
        self.request_id = request_id  # The request id as the client knows it.
        # True if the request is not streamed, so its first content is the whole answer.
        self.waits_for_whole = route.inference and not view.stream and not route.light
        # The client's own deadline; an answer that begins later is useless to the client.
        self.wanted_until = NEVER
        # Maximum seconds that an attempt may take to its first content.
        self.first_s = self.first_content_limit_s()
        # The estimated time to first token, made at the arrival; `None`: nothing was known, or the
        # request is not a stream.
        self.estimate: TtftEstimate | None = None
        # The only replica that can answer, because it holds the response to which the request
        # refers; `None`: any replica.
        self.pinned: Replica | None = None
        # The class under which the request may be hedged; "": it may not be hedged.
        self.hedges_as = ""
        # What the client's name of the model stands for; `None`: the name means itself.
        self.named: NamedModel | None = None
        # The model to which the request goes now; `None`: the model that the client named.
        self.target: Target | None = None
        self.next_fallback = 0  # The index of the first fallback that was not considered yet.
        # The queue ticket; `None`: the request bypassed the queue, or has left it.
        self.ticket: Ticket | None = None
        # The concurrency limit of the request's key, if the request uses the queue; `None`: no
        # limit.
        self.concurrency: Concurrency | None = None
        # Whether the queue driver counts the request against `concurrency`. A request with a ticket
        # is counted by the queue instead.
        self.is_counted = False
        # Position in the order of arrival; 0: the request has no position yet.
        self.order = 0
        # Time since which no replica accepts the request's connections.
        self.unreached_since = NOT_SINCE
        self.waits_since = NOT_SINCE  # Time since which the request waits in the queue.
        self._waited_s = 0.0  # Total seconds of the request's earlier waits in the queue.

    # -- time limits --------------------------------------------------------------------------

    def want_until(self, until: float) -> None:
        """Set the time until which the client wants the answer to begin.

        Called before the first attempt. While the request is queued, the queue watches this time;
        otherwise the `Exchange` watches it.
        """
        self.wanted_until = until
        self.first_s = self.first_content_limit_s()

    def first_token_due(self) -> float:
        """Return the time by which the client wants the first token: the end of its TTFT SLO, or
        its own deadline if that is earlier."""
        return min(self.view.arrived + self.view.ttft_slo_s, self.wanted_until)

    def first_content_limit_s(self) -> float:
        """Return the maximum seconds that an attempt may take to its first content.

        There is no limit if the request is not streamed and the client has sent its own timeout.
        """
        if not self.waits_for_whole:
            return self.times.first_token_s
        return self.times.whole_s if self.wanted_until == NEVER else NEVER

    @abstractmethod
    def check_by(self, due: float) -> None:
        """Ensure that the driver's `check_deadlines` is called at `due`, at the latest."""

    # -- placement ----------------------------------------------------------------------------

    def goes_to(self, target: Target, model: str | None) -> None:
        """Set another model. `model`: the name by which the request is queued and routed."""
        self.target = target
        view = self.view
        view.model = model
        # The prompt's hashes and token IDs are those of the model before.
        view.blocks = ()
        view.chains = None

    def owner(self) -> Replica | None:
        """Return the only replica that can answer the request; `None`: any replica (`pinned`).

        Called when the request is placed. Raises RouterError if no replica can answer it.
        """
        return self.pinned

    @abstractmethod
    def candidates(self, tried: Collection[object]) -> Sequence[Replica]:
        """Return fit replicas that are not in `tried`. Raises RouterError if there is none."""

    def fit(self) -> Sequence[Replica]:
        """Return the fit replicas, also those at their limits. Raises RouterError if there is
        none."""
        return self.candidates(())

    @abstractmethod
    def limit_context(self) -> None:
        """Limit the request to replicas whose context is long enough for it."""

    @abstractmethod
    def flow_identity(self) -> FlowIdentity:
        """Return the flow (account and member) whose share of the fleet the request uses."""

    # -- the queue ----------------------------------------------------------------------------

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
    def may_move(self) -> bool:
        """Whether the request can be sent to another replica after it was sent to one."""

    @abstractmethod
    def prepare(self, replica: Replica, now: float) -> Attempt:
        """Take the lease of another attempt, and do nothing else. `go` sends the attempt."""

    @abstractmethod
    def go(self, attempt: Attempt) -> None:
        """Send a prepared attempt, unless the request has ended in the meantime."""

    @abstractmethod
    def recall(self, now: float) -> None:
        """Preempt the request: end its running attempts, which have shown no content."""

    @abstractmethod
    def last_attempt(self) -> Attempt | None:
        """Return the last attempt at the request's present model; `None` if there was none."""

    # -- attempts -----------------------------------------------------------------------------

    @abstractmethod
    def attach(self, attempt: Attempt) -> None:
        """Set `attempt.io` of a new attempt, whose lease is taken."""

    @abstractmethod
    def open(self, attempt: Attempt, fresh: bool) -> None:
        """Send the attempt to its replica. The attempt may have ended when `open` returns.

        `fresh`: use a new connection.
        """

    @abstractmethod
    def drop(self, attempt: Attempt) -> None:
        """Cancel the attempt, also at its engine. No more events of the attempt follow."""

    @abstractmethod
    def discard(self, attempt: Attempt) -> None:
        """Cancel the attempt after its engine has refused it, so the engine needs no abort."""

    @abstractmethod
    def free_connection(self, attempt: Attempt) -> None:
        """Release the connection for reuse: the attempt's response is complete."""

    @abstractmethod
    def can_resend(self) -> bool:
        """Whether the client's request is still kept, so that it can be sent again."""

    def is_sent_once(self) -> bool:
        """Whether the request is not kept after it was sent, because it must not be repeated."""
        return not self.route.is_known

    def digest(self) -> bytes:
        """Return the hash that identifies the request if an engine dies; b"": it has none."""
        return b""

    @abstractmethod
    def last_content_at(self) -> float:
        """Return the time at which the answer's last content came."""

    def computed_tokens(self, attempt: Attempt) -> int:
        """Return the prompt tokens that the attempt's engine has computed so far; below 0:
        unknown."""
        return -1

    def see_work_of(self, pool: Sequence[Replica]) -> None:
        """Update the recorded progress of all replicas in `pool`, before one may get a hedge."""
        return

    def evidence(self) -> int:
        """Return a hash of the request's client and body."""
        return 1

    # -- the client ---------------------------------------------------------------------------

    @abstractmethod
    def answer(self, err: RouterError) -> None:
        """End the request with an error of the router."""

    @abstractmethod
    def answer_failure(self, reason: Reason) -> None:
        """End the request with an error of the router, because every attempt failed or a time limit
        passed."""

    @abstractmethod
    def send_kept_error(self) -> None:
        """Send the client the error answer that was kept, because every attempt failed."""

    @abstractmethod
    def truncate(self, reason: Reason) -> None:
        """Make the truncation visible to the client, because no replica resumes the stream."""

    @abstractmethod
    def crashed(self, err: Exception) -> None:
        """End the request after an unexpected exception in code that ran for it.

        The proxy logs the exception; the simulator raises it again.
        """

    # -- the rest of a broken stream ----------------------------------------------------------

    def rest(self, attempt: Attempt, reason: Reason) -> Rest | None:
        """Return where and how the rest is requested; see `ResumableStream.rest`."""
        return None

    def awaits_rest(self, now: float) -> None:
        """Note that another replica was asked for the rest of the stream."""
        return
