"""The interface of a request for its driver: through it, the driver sends and ends attempts.

The proxy implements the interface over sockets (`proxied_request.py`), the simulator over engine
cores (`simulator/exchange.py`). The interface is a base class, so that compiled code calls it
directly.

Must never: decide whether or where an attempt is sent.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Sequence

from mypy_extensions import mypyc_attr

from policies.facts import RequestView
from router.core.errors import Reason
from router.core.urgency import Urgency
from router.dispatch.driver.attempt_state import Attempt
from router.dispatch.queueing.queued_request import QueuedRequest
from router.dispatch.resumption import Rest
from router.dispatch.rules import Times
from router.fleet.names import NamedModel, Target
from router.fleet.replica import Replica
from router.intake.routes import Route
from router.wire.sweep import NEVER


@mypyc_attr(allow_interpreted_subclasses=True)
class DrivenRequest(QueuedRequest):
    """A request as the request driver uses it. Times are monotonic seconds."""

    __slots__ = (
        "first_s",
        "hedges_as",
        "named",
        "next_fallback",
        "request_id",
        "route",
        "target",
        "times",
        "waits_for_whole",
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
        super().__init__(view, urgency, arrived)
        self.route = route
        # True if the request is not streamed, so its first content is the whole answer.
        self.waits_for_whole = route.inference and not view.stream and not route.light
        self.times = times  # The time limits of the request's priority class.
        # The client's own deadline; an answer that begins later is useless to the client.
        self.wanted_until = NEVER
        # Maximum seconds that an attempt may take to its first content.
        self.first_s = self.first_content_limit_s()
        self.request_id = request_id  # The request id as the client knows it.
        # The class under which the request may be hedged; "": it may not be hedged.
        self.hedges_as = ""
        # What the client's name of the model stands for; `None`: the name means itself.
        self.named: NamedModel | None = None
        # The model to which the request goes now; `None`: the model that the client named.
        self.target: Target | None = None
        self.next_fallback = 0  # The index of the first fallback that was not considered yet.

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

    def goes_to(self, target: Target, model: str | None) -> None:
        """Set another model. `model`: the name by which the request is queued and routed."""
        self.target = target
        view = self.view
        view.model = model
        # The prompt's hashes and token IDs are those of the model before.
        view.blocks = ()
        view.chains = None

    # -- attempts -----------------------------------------------------------------------------

    @abstractmethod
    def place(self) -> None:
        """Send the request to a replica or to the queue, like a new request.

        If that is not possible, the request ends with an error.
        """

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
    def candidates(self, tried: Collection[object]) -> Sequence[Replica]:
        """Return fit replicas that are not in `tried`. Raises RouterError if there is none."""

    @abstractmethod
    def check_by(self, due: float) -> None:
        """Ensure that the driver's `check_deadlines` is called at `due`, at the latest."""

    @abstractmethod
    def last_content_at(self) -> float:
        """Return the time at which the answer's last content came."""

    def computed_tokens(self, attempt: Attempt) -> int:
        """Return the prompt tokens that the attempt's engine has computed so far; below 0:
        unknown."""
        return -1

    def see_work(self, attempt: Attempt) -> None:
        """Update the replica's recorded progress before a failure counts against the replica."""
        return

    def see_work_of(self, pool: Sequence[Replica]) -> None:
        """Update the recorded progress of all replicas in `pool`, before one may get a hedge."""
        return

    def evidence(self) -> int:
        """Return a hash of the request's client and body."""
        return 1

    # -- the client ---------------------------------------------------------------------------

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

    # -- the rest of a broken stream ----------------------------------------------------------

    def rest(self, attempt: Attempt, reason: Reason) -> Rest | None:
        """Return where and how the rest is requested; see `ResumableStream.rest`."""
        return None

    def awaits_rest(self, now: float) -> None:
        """Note that another replica was asked for the rest of the stream."""
        return
