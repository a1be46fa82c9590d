"""A request as its driver sees it: the port by which the driver acts.

The proxy implements it over sockets (`exchange.py`), the simulator over engine cores
(`simulator/exchange.py`). A base class, so that compiled code calls it directly.

Must never: decide whether or where an attempt is sent.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Sequence

from mypy_extensions import mypyc_attr

from policies.facts import RequestView
from router.core.errors import Reason
from router.core.urgency import Urgency
from router.dispatch.attempts import Attempt
from router.dispatch.continuation.outcome import Outcome
from router.dispatch.queued_request import QueuedRequest
from router.dispatch.rules import Times
from router.fleet.replica import Replica
from router.intake.routes import Route


@mypyc_attr(allow_interpreted_subclasses=True)
class DrivenRequest(QueuedRequest):
    """Times are monotonic seconds."""

    __slots__ = ("first_s", "hedges_as", "is_whole", "request_id", "route", "streamed", "times")

    def __init__(
        self,
        view: RequestView,
        urgency: Urgency,
        arrived: float,
        route: Route,
        streamed: bool,
        times: Times,
        request_id: bytes,
    ) -> None:
        super().__init__(view, urgency, arrived)
        self.route = route
        self.streamed = streamed
        # Its first content is the whole answer.
        self.is_whole = route.inference and not streamed and not route.light
        self.times = times  # of its class
        # What an attempt may take to its first content.
        self.first_s = times.whole_s if self.is_whole else times.first_token_s
        self.request_id = request_id  # as its client knows it
        self.hedges_as = ""  # the class by which a second copy of it may go; "": none may

    # -- attempts -----------------------------------------------------------------------------

    @abstractmethod
    def attach(self, attempt: Attempt) -> None:
        """A new attempt has its lease. Set `attempt.io`."""

    @abstractmethod
    def open(self, attempt: Attempt, fresh: bool) -> None:
        """Send the attempt to its replica. May end it before it returns. `fresh`: not over a
        connection that was used before."""

    @abstractmethod
    def drop(self, attempt: Attempt) -> None:
        """Give the attempt up, at its engine too. Nothing is heard of it any more."""

    @abstractmethod
    def discard(self, attempt: Attempt) -> None:
        """The same of an attempt whose engine has refused it, and works no longer."""

    @abstractmethod
    def free_connection(self, attempt: Attempt) -> None:
        """The attempt's response is whole: its connection may serve another."""

    @abstractmethod
    def can_resend(self) -> bool:
        """Whether it is still known what the client sent."""

    @abstractmethod
    def candidates(self, tried: Collection[object]) -> Sequence[Replica]:
        """Fit replicas that are not in `tried`. Raises RouterError if there is none."""

    @abstractmethod
    def look_by(self, due: float) -> None:
        """Call the driver's `look` then, at the latest."""

    @abstractmethod
    def said_at(self) -> float:
        """When the answer's last content came."""

    def computed_tokens(self, attempt: Attempt) -> int:
        """Prompt tokens that the attempt's engine has computed so far; below 0: nobody can tell."""
        return -1

    def see_work(self, attempt: Attempt) -> None:
        """The replica is about to be judged: say what it has shown of other requests."""
        return

    # -- the client ---------------------------------------------------------------------------

    @abstractmethod
    def answer_failure(self, reason: Reason) -> None:
        """Every attempt failed: end the request with an error of the router's own."""

    @abstractmethod
    def tell_aside(self) -> None:
        """Every attempt failed: pass on what the one that was put aside has said."""

    @abstractmethod
    def truncate(self, reason: Reason) -> None:
        """The answer broke and nothing goes on with it: the client must see that."""

    # -- the rest of a broken stream ----------------------------------------------------------

    def is_continued(self) -> bool:
        """Whether another replica may go on with the stream."""
        return False

    def rest(self) -> list[bytes] | Outcome:
        """The body that asks for the rest of the broken stream, or why there is none."""
        return Outcome.NO_REPLICA

    def awaits_rest(self, now: float) -> None:
        """Another replica was asked for the rest."""
        return
