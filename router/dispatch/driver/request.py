"""One request: its facts, each held once, and the ports through which its drivers act.

The facts, by who writes them:

- what was asked (`view`, `route`, `urgency`, `flow`, `named`, `request_id`, `arrived`): whoever
  reads the client's request, and `placing.admit`. Later only the driver changes `view.model`, and a
  reload `view.allowed`.
- what was decided (`rules`, `target`, `next_fallback`, `pinned`, `hedges_as`, `estimate`): the
  driver, and `routing_facts.py`.
- what the request holds: its attempts and time limits (`state`, `deadlines`: the driver), the
  place in the queue (`ticket`, `is_counted`, `order`, `unreached_since`: the queue driver), the
  share of its tenant's limits (`tenant_share`, `concurrency`: `placing.admit`), and its `body`.
- what came of it (`work`).

The ports are abstract methods. The request driver sends and ends attempts, and answers the client,
through them. The proxy implements them over sockets (`exchange.py`), the simulator over engine
cores (`simulator/exchange.py`). They are methods of a base class, so that compiled code calls them
directly.

Must never: decide whether, when or where an attempt is sent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence

from mypy_extensions import mypyc_attr

from policies.allowed import Allowed, with_context
from policies.facts import RequestView
from policies.queueing.flow_identity import FlowIdentity
from policies.queueing.ticket import Ticket
from router.admission.concurrency import Concurrency
from router.core.errors import Reason, RouterError
from router.core.ttft_estimate import TtftEstimate
from router.core.urgency import Urgency
from router.dispatch.driver.attempt_state import Attempt, engine_of
from router.dispatch.driver.deadlines import NOT_SINCE, Deadlines
from router.dispatch.resumption import Rest
from router.dispatch.rules import Rules
from router.dispatch.tenants import TenantShare
from router.dispatch.usage.token_counts import UNKNOWN
from router.fleet.cadence import Cadence
from router.fleet.names import NamedModel, Target
from router.fleet.replica import Replica
from router.fleet.table.fleet import Fleet
from router.intake.keys import Key
from router.intake.routes import Route


class Work:
    """The work for one request. Times are monotonic seconds."""

    __slots__ = (
        "_cadence",
        "broke_at",
        "first_at",
        "replica",
        "timely",
        "tokens_due",
        "tokens_on_time",
        "usage",
    )

    def __init__(self) -> None:
        self.replica: Replica | None = None  # The replica whose content was sent to the client.
        self.first_at = 0.0  # Time of the first content; 0: no content has come.
        # Time of the last content of a broken stream, while another replica is asked for the rest
        # of the stream.
        self.broke_at = 0.0
        # The token counts, set when the request ends. If the client left before any content, the
        # counts are an estimate.
        self.usage = UNKNOWN
        # Share of the stream's content events that came before their deadlines; below 0: the events
        # were not read one by one.
        self.timely = -1.0
        # Number of output tokens that came before their deadlines, and number of those that could
        # have. Set when the request ends (`gain.py`). Below 0: the request does not count.
        self.tokens_on_time = -1.0
        self.tokens_due = -1.0
        # The speed measurement (`Cadence`) of the replica whose stream is relayed now.
        self._cadence: Cadence | None = None

    def shown(self, replica: Replica, now: float) -> None:
        """Note a replica's first content."""
        if self.replica is None:
            self.first_at = now
        self.replica = replica
        self.broke_at = 0.0

    # -- the speed of a stream ----------------------------------------------------------------

    def flows(self, cadence: Cadence, now: float, events: int = 0) -> None:
        """Measure the stream's speed from now on.

        `events`: the number of later events of the stream that contain no token and so are not
        counted.
        """
        self._cadence = cadence
        cadence.begins(now, events)

    @property
    def is_flowing(self) -> bool:
        return self._cadence is not None

    def stops(self, now: float) -> None:
        """Stop measuring the stream's speed: the stream ends, or the client no longer reads."""
        cadence, self._cadence = self._cadence, None
        if cadence is not None:
            cadence.ends(now)


class Sender(ABC):
    """The driver of a request, as the queue uses it."""

    __slots__ = ()

    @abstractmethod
    def begin(self, replica: Replica, now: float) -> None:
        """Send the request to a replica."""

    @abstractmethod
    def prepare(self, replica: Replica, now: float) -> Attempt:
        """Take the lease of another attempt, and do nothing else. `go` sends the attempt."""

    @abstractmethod
    def go(self, attempt: Attempt) -> None:
        """Send a prepared attempt, unless the request has ended in the meantime."""

    @abstractmethod
    def recall(self, now: float) -> None:
        """Preempt the request: end its running attempts, which have shown no content."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Request(ABC):
    """A request until its end. Times are monotonic seconds."""

    __slots__ = (
        "body",
        "concurrency",
        "deadlines",
        "estimate",
        "fleet",
        "flow",
        "hedges_as",
        "is_counted",
        "named",
        "next_fallback",
        "order",
        "pinned",
        "request_id",
        "route",
        "rules",
        "sender",
        "state",
        "target",
        "tenant_share",
        "ticket",
        "unreached_since",
        "urgency",
        "view",
        "work",
    )

    def __init__(
        self,
        fleet: Fleet,
        rules: Rules,
        view: RequestView,
        urgency: Urgency,
        arrived: float,
        route: Route,
        request_id: bytes,
        flow: FlowIdentity,
        body: list[bytes],
        deadlines: Deadlines,
    ) -> None:
        self.fleet = fleet
        self.rules = rules  # The settings that were in force at the arrival.
        view.decodes = route.decodes
        rules.slos[urgency.rank].fill(view, arrived)
        self.view = view
        self.urgency = urgency
        self.route = route
        self.request_id = request_id  # The request id as the client knows it.
        # The flow (account and member) whose share of the fleet the request uses.
        self.flow = flow
        # The client's body; `None`: it is not kept, so the request cannot be sent again.
        self.body: list[bytes] | None = body
        self.deadlines = deadlines
        self.state = deadlines.state  # The request's attempts.
        self.sender: Sender  # Set by the request's driver.
        self.work = Work()
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
        self.tenant_share: TenantShare | None = None  # The request's share of its tenant's limits.

    @property
    def arrived(self) -> float:
        return self.view.arrived

    def priced_model(self) -> str | None:
        """Return the model whose price the request has. A model in a pool has the model's price."""
        target = self.target
        return target.model if target is not None and target.pool else self.view.model

    # -- the port of the tenant (`placing.admit`) -------------------------------------------------

    def preferred_region(self, key: Key | None) -> str:
        """Return the region that the client prefers; "": the region of the router."""
        return "" if key is None else key.region

    def reserve(self, key: Key) -> tuple[int, int, int]:
        """Return (prompt tokens, limit of output tokens, answers) that a request of a key reserves.

        Also reserves them in the budgets of the key. Raises RouterError if a budget is used up.
        """
        view = self.view
        if not view.decodes:
            return view.prompt_tokens, 0, 1
        return view.prompt_tokens, view.output_limit, view.choices

    # -- which replicas it may use ----------------------------------------------------------------

    def owner(self) -> Replica | None:
        """Return the only replica that can answer the request; `None`: any replica (`pinned`).

        Called when the request is placed. Raises RouterError if no replica can answer it.
        """
        return self.pinned

    def judges_body(self) -> bool:
        """Whether the method has a body that names a model. If not, any replica may answer."""
        return True

    def candidates(self, tried: Collection[object]) -> Sequence[Replica]:
        """Return fit replicas that are not in `tried`. Raises RouterError if there is none."""
        view = self.view
        anyone = view.model is None and not self.judges_body()
        find = self.fleet.eligibility.replicas
        return find(view.model, view.allowed, tried, anyone=anyone)

    def limit_regions(self, allowed: Allowed | None) -> bool:
        """Apply the regions of the request's key that a reload has changed.

        They apply to everything that is sent from now on: `candidates` leaves other replicas out,
        `RequestDriver.barred` ends an attempt that waits for its connection, and `prepare` refuses
        the rest. What was sent before stays where it is.
        Returns whether `view.allowed` has changed; then the queue must be told.
        """
        before = self.view.allowed
        self.view.allowed = allowed = with_context(allowed, 0 if before is None else before.context)
        return allowed != before

    def limit_context(self) -> bool:
        """Limit the request to replicas whose context is long enough for it.

        Called when the request is placed. It is called again when the fleet's context lengths may
        have changed. Returns whether `view.allowed` has changed; then the queue must be told.
        """
        levels, view = self.fleet.context_levels, self.view
        before = view.allowed
        if levels.is_used or (before is not None and before.context):
            view.allowed = levels.limited(view, view.model)
            return view.allowed != before
        return False

    def make_ticket(self, model: str, lane: str | None) -> Ticket:
        """Create the ticket, before it is offered to the queue. `lane`: see `Ticket`."""
        return Ticket(
            self,
            self.view,
            self.flow,
            model=model,
            lane=lane,
            number=self.urgency.number,
            arrival=self.arrived,
            deadline=self.deadlines.client_deadline,
            concurrency=self.concurrency,
        )

    def may_move(self) -> bool:
        """Whether the request can be sent to another replica after it was sent to one."""
        return self.view.body_bytes <= self.rules.retry_body and self.route.repeatable

    def is_sent_once(self) -> bool:
        """Whether the request is not kept after it was sent: it is too large, or must not be
        repeated."""
        return self.view.body_bytes > self.rules.retry_body or not self.route.is_known

    def digest(self) -> bytes:
        """Return the hash that identifies the request if an engine dies; b"": it has none."""
        return b""

    # -- the port of the engines ------------------------------------------------------------------

    @abstractmethod
    def attach(self, attempt: Attempt) -> None:
        """Set `attempt.io` of a new attempt, whose lease is taken."""

    # The next four methods call the `EnginePort` of an attempt. A request of a test replaces them:
    # no class of a test can implement a compiled trait.

    def open(self, attempt: Attempt, fresh: bool) -> None:
        engine_of(attempt).open(fresh)

    def drop(self, attempt: Attempt) -> None:
        io = attempt.io
        if io is not None:  # `None`: `attach` has failed.
            io.drop()

    def discard(self, attempt: Attempt) -> None:
        engine_of(attempt).discard()

    def free_connection(self, attempt: Attempt) -> None:
        engine_of(attempt).free_connection()

    @abstractmethod
    def last_content_at(self) -> float:
        """Return the time of the replica's last content, or else of the request's arrival."""

    def computed_tokens(self, attempt: Attempt) -> int:
        """Return the prompt tokens that the attempt's engine has computed so far; below 0:
        unknown."""
        return -1

    def see_work_of(self, pool: Sequence[Replica]) -> None:
        """Update the recorded progress of all replicas in `pool`, before one may get a hedge."""
        return

    def estimate_work(self, now: float) -> None:
        """Estimate the tokens of a request that ends before any content, in `work.usage`."""
        return

    def rest(self, attempt: Attempt, reason: Reason) -> Rest | None:
        """Return where and how the rest of a broken stream is requested.

        See `ResumableStream.rest`.
        """
        return None

    # -- the port of the client -------------------------------------------------------------------

    @abstractmethod
    def answer(self, err: RouterError) -> None:
        """End the request with an error of the router (`placing.answer`)."""

    @abstractmethod
    def fail(self, err: RouterError) -> None:
        """Send the client an error of the router, and end the request."""

    @abstractmethod
    def send_kept_error(self) -> None:
        """Send the client the error answer that was kept, because every attempt failed."""

    @abstractmethod
    def truncate(self, reason: Reason) -> None:
        """Make the truncation visible to the client, because no replica resumes the stream."""

    def comment(self, now: float) -> None:
        """Send the client of a silent stream a comment, if it is allowed."""
        return

    def stalled(self) -> None:
        """Disconnect the client, which has not read for too long."""
        return

    @abstractmethod
    def crashed(self, err: Exception) -> None:
        """End the request after an unexpected exception in code that ran for it.

        The proxy logs the exception; the simulator raises it again.
        """
