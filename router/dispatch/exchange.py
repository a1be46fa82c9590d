"""One request from the moment it is whole to the moment its answer is: the only place where a
client's connection and a replica's meet.

It asks the state machine (`attempts`) what an event means, and does it or has it done: begin an
attempt, relay, answer, truncate. Every callback may be the one in which the client leaves, the
replica dies or the configuration changes; all of them end in `_finish`, which runs once and gives
everything back.

What the client is sent, byte by byte, is its `Reply`'s; the exchange says what and when.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING

from policies.contract import RequestView
from router.config.model import Limits
from router.core.errors import STATUS, Reason, RouterError
from router.dispatch.attempts import Commit, Life, Step
from router.dispatch.leg import BUSY, Leg
from router.dispatch.messages import MESSAGES
from router.dispatch.reply import Reply
from router.dispatch.upstream_head import attempt_head
from router.dispatch.usage import UNKNOWN, UsageTap
from router.dispatch.usage_ask import PATHS, inject, with_length
from router.fleet.owners import response_id
from router.fleet.replica import Replica
from router.fleet.tokens.provider import Question
from router.intake.body import SCAN_ABOVE
from router.intake.fields import Fields
from router.intake.routes import Route
from router.wire import answers
from router.wire.client import ClientConnection
from router.wire.heads import RequestHead, ResponseHead
from router.wire.replica import PAUSE_CLIENT, ReplicaConnection
from router.wire.response_reader import ResponseReader
from router.wire.sweep import NEVER

if TYPE_CHECKING:
    from router.dispatch.dispatcher import Dispatcher


class Exchange:
    """A request under way. Times are monotonic seconds."""

    __slots__ = (
        "_budgeted",
        "_client",
        "_commit_due",
        "_d",
        "_done",
        "_leg",
        "_no_body",
        "_options",
        "_overdue_due",
        "_stall_due",
        "_total_due",
        "answered_by",
        "arrived",
        "body",
        "body_bytes",
        "common",
        "deadline",
        "fields",
        "first_at",
        "head",
        "life",
        "limits",
        "path",
        "pinned",
        "priority",
        "question",
        "reply",
        "request_id",
        "route",
        "usage",
        "view",
    )

    def __init__(
        self,
        dispatcher: Dispatcher,
        client: ClientConnection,
        head: RequestHead,
        body: list[bytes],
        body_bytes: int,
        route: Route,
        path: bytes,
        fields: Fields,
        request_id: bytes,
        arrived: float,
    ) -> None:
        self._d = dispatcher
        self._client = client
        self.head = head
        self.body: list[bytes] | None = body
        self.body_bytes = body_bytes
        self.route = route
        self.path = path
        self.fields = fields
        self.request_id = request_id
        self.arrived = arrived
        self.limits: Limits = dispatcher.config.limits
        self.view = RequestView(route.kind, fields.model, bool(fields.stream), body_bytes)
        self.life = Life(dispatcher.config.retry.attempts)
        self.priority = ""  # its class by name, as the client says
        self.pinned: Replica | None = None  # state at one replica: no other can answer
        self.question: Question | None = None  # for the token ids that it waits for
        self.common = b""
        self.first_at = 0.0
        self.answered_by: Replica | None = None  # whose content went to the client
        self.usage = UNKNOWN  # how many tokens it took; known when it is over
        self._leg: Leg | None = None
        self._no_body = head.method == b"HEAD"
        options = fields.stream_options if fields.stream else None
        # A copy: the field is a view that keeps the whole body alive.
        self._options = None if options is None else bytes(options)
        self._budgeted = False  # one retry of the budget is ours
        self._done = False
        timeouts = dispatcher.config.timeouts
        wait_due = arrived + timeouts.first_token_s
        self.reply = Reply(
            client,
            request_id,
            no_body=self._no_body,
            http_1_0=head.http_1_0,
            gap_s=timeouts.token_gap_s,
            wait_due=wait_due,
        )
        self._total_due = arrived + timeouts.total_s if timeouts.total_s else NEVER
        self._commit_due = NEVER
        if fields.stream and route.inference and timeouts.commit_after_s:
            self._commit_due = arrived + timeouts.commit_after_s
        self._stall_due = NEVER
        self._overdue_due = NEVER  # then the first token is so late that the replica is suspect
        self.deadline = min(wait_due, self._total_due, self._commit_due)

    # -- attempts -----------------------------------------------------------------------------

    def begin(self, replica: Replica, *, fresh: bool = False) -> None:
        """Send the request to a replica (`fresh`: over a new connection)."""
        now = monotonic()
        streamed = bool(self.fields.stream)
        tokens, held = self._d.chooser.dispatched(self.view, replica)
        attempt = self.life.begin(replica.id, replica, now, tokens, held, streamed)
        self.view.attempts = attempt.index + 1
        if streamed:
            self._overdue_due = now + replica.patience_s(tokens)
            self.deadline = min(self.deadline, self._overdue_due)
        self._leg = leg = Leg(self, attempt, replica)
        leg.start(fresh)

    def send(self, leg: Leg, conn: ReplicaConnection) -> None:
        """A leg has its connection."""
        leg.conn = conn
        self.life.sent(leg.attempt)
        replica = leg.replica
        body = self.body or []
        common = self.common
        asking = self._asking_for_usage(replica)
        if asking is not None:
            common, body = asking
            leg.asks_for_usage = True
        head = attempt_head(
            self.head,
            replica.base_path,
            replica.host_line,
            common,
            self.request_id,
            leg.attempt.index,
        )
        conn.send(leg, head, body, for_head=self._no_body)
        if self.body_bytes > self.limits.retry_body:
            self.body = None  # too large to keep for another attempt
            self._client.release_body()

    def _asking_for_usage(self, replica: Replica) -> tuple[bytes, list[bytes]] | None:
        """The common lines and the body, made to ask for the stream's usage; None: as they are."""
        if (
            not self.fields.stream
            or self.body is None
            or self.path not in PATHS
            or self.body_bytes > SCAN_ABOVE  # not decoded: it may ask already
            or not self._d.config.usage.inject
        ):
            return None
        body = inject(self.body, self._options, replica.engine)
        if body is None:
            return None
        lines = with_length(self.common, self.body_bytes, sum(map(len, body)))
        return None if lines is None else (lines, body)

    def replace(self, leg: Leg, reason: Reason) -> bool:
        """A replica answers that it is busy or has failed, and no content is out yet.

        True: another one is tried; False: the answer stands and is passed on.
        """
        if not self._can_send_again() or self.life.reached >= self.life.most:
            return False
        if reason is Reason.STREAM_ERROR and not (self.route.repeatable and not self.life.lost):
            return False
        others = self._others()
        if not others or not self._take_budget():
            return False
        conn, leg.conn = leg.conn, None
        if conn is not None:
            conn.cancel()
        self._end_attempt(leg, reason, reused=False, received=True)
        self._go_on(others, reason)
        return True

    def failed(self, leg: Leg, reason: Reason, *, reused: bool, received: bool) -> None:
        """A leg ended without a whole response."""
        if self._done:
            return
        step = self._end_attempt(leg, reason, reused=reused, received=received)
        if step == Step.NOTHING:
            return
        if step == Step.TRUNCATE:
            self._truncate(reason)
            return
        if step == Step.HERE and self.body is not None and not leg.replica.removed:
            self._d.metrics.connections_stale += 1
            self._d.metrics.retries(reason)
            self.begin(leg.replica, fresh=True)
            return
        if step in (Step.HERE, Step.ELSEWHERE, Step.BUDGET) and self._can_send_again():
            others = self._others()
            if others and (step != Step.BUDGET or self._take_budget()):
                self._go_on(others, reason)
                return
        self._answer_failure(reason)

    def _end_attempt(self, leg: Leg, reason: Reason, *, reused: bool, received: bool) -> Step:
        replica = leg.replica
        self._leg = None
        self._forget_prefix(leg)
        self._d.fleet.failed(replica, reason, was_overdue=leg.is_overdue)
        step = self.life.failed(
            leg.attempt,
            reason,
            monotonic(),
            reused=reused,
            received=received,
            repeatable=self.route.repeatable,
            known_dead=replica.health.known_dead,
        )
        self._d.fleet.released(replica)
        return step

    def _forget_prefix(self, leg: Leg) -> None:
        """An attempt ends. If it showed nothing, the replica holds nothing of it for sure.

        The end of the one that answered is the ledger's to tell, with its tokens.
        """
        if self.life.winner is not leg.attempt:
            chooser = self._d.chooser
            chooser.withdrawn(self.view, leg.replica, leg.attempt.held)
            chooser.finished(self.view, leg.replica, None)

    def _can_send_again(self) -> bool:
        return (
            self.body is not None
            and self.pinned is None
            and self.life.commit != Commit.CONTENT
            and not self._d.closing
        )

    def _others(self) -> Sequence[Replica]:
        tried = [attempt.at for attempt in self.life.attempts]
        try:
            return self._d.candidates(self, tried)
        except RouterError:
            return []

    def _take_budget(self) -> bool:
        if not self._budgeted:
            self._budgeted = self._d.budget.take()
            if not self._budgeted:
                self._d.metrics.retry_budget_exhausted += 1
        return self._budgeted

    def _go_on(self, others: Sequence[Replica], cause: Reason) -> None:
        self._d.metrics.retries(cause)
        self.begin(self._d.chooser.choose(self.view, others))

    # -- from the replica to the client -------------------------------------------------------

    def interim(self, heads: list[ResponseHead]) -> None:
        if self.life.commit == Commit.NOTHING:
            self.reply.interim(heads)

    def content(self, leg: Leg, reader: ResponseReader) -> Reply | None:
        """A leg shows content: commit to it. Where its bytes go; None: nowhere."""
        if not self.life.content(leg.attempt):
            return None
        reply = self.reply
        self.answered_by = leg.replica
        self.first_at = now = monotonic()
        reply.wait_due = now + reply.gap_s
        self._commit_due = NEVER
        # From here tokens move `wait_due` only; `on_deadline` lets `deadline` catch up.
        self.deadline = min(reply.wait_due, self._total_due, self._stall_due)
        head = reader.head
        assert head is not None
        if self.route.inference:
            self._shown(leg, head, now)
        if self.route.kind == "responses" and head.status == 200 and reader.parts:
            made = response_id(b"".join(reader.parts))
            if made is not None:
                self._d.fleet.owners.learn(made, leg.replica.id)
        if self._client.paused:
            self.client_paused()
        has_begun = reply.status != 0
        if has_begun and not (head.is_sse and head.status == 200):
            # The client has its 200 already; only a stream can follow it.
            self._tell_inside_stream(leg, reader)
            return None
        if head.is_sse and not leg.is_encoded:
            tap = UsageTap(
                takes_out=leg.asks_for_usage, engine=leg.replica.engine, quiet=leg.quiet_events
            )
            reply.watch(tap)
        if not has_begun:
            shown = leg.replica.id if self._d.config.debug_headers else None
            reply.begin(reader, shown, counts_tokens=self.route.inference and head.status == 200)
        return reply

    def _shown(self, leg: Leg, head: ResponseHead, now: float) -> None:
        """Learn from an attempt's first content: what the replica holds, how long it took."""
        self._overdue_due = NEVER
        d = self._d
        replica, attempt = leg.replica, leg.attempt
        if head.status != 200:
            d.chooser.withdrawn(self.view, replica, attempt.held)  # refused: nothing was prefilled
            return
        if head.load is not None:
            d.fleet.told_by_the_way(replica, head.load)
        ttft_s = None
        if head.is_sse:
            ttft_s = now - attempt.began
        d.fleet.showed_content(replica, now, attempt.began, ttft_s, attempt.tokens)
        d.chooser.shown(self.view, replica, attempt.held, ttft_s)

    def completed(self, leg: Leg, reader: ResponseReader) -> None:
        """A leg's response is whole, and all of it was relayed."""
        head = reader.head
        assert head is not None
        reply = self.reply
        blames_replica = False
        reason = _reason_of(head.status)
        if reply.has_failed:
            reason = Reason.STREAM_ERROR
            blames_replica = reply.blames_replica
        now = monotonic()
        self.life.completed(leg.attempt, now, reason)
        self._leg = None
        leg.finish()
        fleet = self._d.fleet
        if reason is Reason.SERVER_ERROR or blames_replica:
            fleet.failed(leg.replica, reason)
        elif reason is Reason.OK:
            fleet.succeeded(leg.replica, leg.attempt.began, content=self.route.inference)
        if leg.replica.removed:
            fleet.released(leg.replica)
        client = self._client
        self._finish(reason, now, is_whole=True)
        client.done(reply.keep_alive and client.keeps_alive)

    # -- answers of our own -------------------------------------------------------------------

    def _answer_failure(self, reason: Reason) -> None:
        retry_after = 2 if STATUS[reason] == 503 else None
        self.answer(RouterError(reason, MESSAGES[reason], retry_after_s=retry_after))

    def answer(self, err: RouterError) -> None:
        """End the request with an error of the router's own, in whatever form is still possible."""
        if self._done:
            return
        self._cancel_all(err.reason)
        client = self._client
        now = monotonic()
        if self.life.commit == Commit.STATUS:
            self.reply.event(answers.error_event(err))
            self._finish(err.reason, now)
            client.close_after_writing()
            return
        keep_alive = self.reply.error(err)
        self._finish(err.reason, now)
        client.done(keep_alive)

    def _truncate(self, reason: Reason) -> None:
        client = self._client
        may_close = self.reply.truncate(RouterError(reason, MESSAGES[reason]))
        self._finish(reason, monotonic())
        if may_close:
            client.close_after_writing()
        else:
            client.exchange = None
            client.abort(reason)

    def _tell_inside_stream(self, leg: Leg, reader: ResponseReader) -> None:
        """A stream has begun with our own 200, and then the engine answers something else."""
        body = b"".join(reader.parts)
        reader.parts.clear()
        head = reader.head
        assert head is not None
        if b'"error"' in body and b"\n" not in body.strip():
            event = b"data: " + body.strip() + b"\n\n"
        else:
            reason = Reason.BAD_RESPONSE if head.status == 200 else _reason_of(head.status)
            event = answers.error_event(
                RouterError(reason, f"the replica answered {head.status}", status=head.status)
            )
        self.reply.event(event)
        now = monotonic()
        self.life.completed(leg.attempt, now, _reason_of(head.status))
        self._leg = None
        leg.finish()
        self._d.fleet.released(leg.replica)
        client = self._client
        self._finish(_reason_of(head.status), now)
        client.close_after_writing()

    def _commit_status(self) -> None:
        if self.life.commit == Commit.NOTHING:
            self.life.committed_status()
            self._d.metrics.streams_committed_early += 1
        self.reply.comment()

    # -- the client and the clock -------------------------------------------------------------

    def client_gone(self, reason: Reason) -> None:
        """In the same callback in which it left: the engine must not work for nobody."""
        if not self._done:
            self._cancel_all(reason)
            self._finish(reason, monotonic())

    def client_paused(self) -> None:
        self._stall_due = monotonic() + self._d.config.timeouts.write_stall_s
        self.deadline = min(self.deadline, self._stall_due)
        if self._leg is not None and self._leg.conn is not None:
            self._leg.conn.pause(PAUSE_CLIENT)

    def client_resumed(self) -> None:
        self._stall_due = NEVER
        reply = self.reply
        reply.wait_due = max(reply.wait_due, monotonic() + reply.gap_s)
        if self._leg is not None and self._leg.conn is not None:
            self._leg.conn.resume(PAUSE_CLIENT)

    def on_deadline(self, now: float) -> None:
        # Tokens move `wait_due` only; `deadline` catches up here, a few times a minute.
        wait_due = self.reply.wait_due
        if self._total_due <= now:
            self._timed_out(Reason.TOTAL_TIMEOUT)
        elif self._stall_due <= now:
            self._client.abort(Reason.WRITE_TIMEOUT)
        elif wait_due <= now and self._stall_due == NEVER:
            committed = self.life.commit == Commit.CONTENT
            self._timed_out(Reason.TOKEN_GAP_TIMEOUT if committed else Reason.TTFT_TIMEOUT)
        else:
            if self._overdue_due <= now:
                self._overdue_due = NEVER
                self._token_is_overdue(now)
            if self._commit_due <= now:
                self._commit_due = now + self._d.config.timeouts.commit_after_s
                self._commit_status()
            wait = wait_due if self._stall_due == NEVER else NEVER
            self.deadline = min(
                wait, self._total_due, self._commit_due, self._stall_due, self._overdue_due
            )

    def _token_is_overdue(self, now: float) -> None:
        leg = self._leg
        if leg is not None:
            leg.is_overdue = True
            self._d.fleet.overdue(leg.replica, now)

    def _timed_out(self, reason: Reason) -> None:
        leg = self._leg
        if leg is not None:
            leg.cancel()
            self.failed(leg, reason, reused=False, received=True)
        else:
            self._answer_failure(reason)

    # -- the end ------------------------------------------------------------------------------

    def shut(self) -> None:
        """The router stops: end this request in whatever form is still possible."""
        if self.life.commit == Commit.CONTENT and not self._done:
            self._cancel_all(Reason.DRAINING)
            self._truncate(Reason.DRAINING)
        else:
            self.answer(RouterError(Reason.DRAINING, MESSAGES[Reason.DRAINING], retry_after_s=1))

    def end(self) -> None:
        """The router has answered it well by itself."""
        self._finish(Reason.OK, monotonic())

    def _cancel_all(self, reason: Reason) -> None:
        question, self.question = self.question, None
        if question is not None:
            question.cancel()
        leg, self._leg = self._leg, None
        if leg is not None:
            leg.cancel()
            self._forget_prefix(leg)
        self.life.end(reason, monotonic())
        if leg is not None:
            self._d.fleet.released(leg.replica)

    def _finish(self, reason: Reason, now: float, *, is_whole: bool = False) -> None:
        if self._done:
            return
        self._done = True
        if self.route.inference:
            self.usage = self.reply.usage(is_whole)
        self.body = None
        self._client.exchange = None
        if self._budgeted:
            self._budgeted = False
            self._d.budget.give()
        self._d.finished(self)
        self._d.ledger.close(self, self._client, reason, now)


def _reason_of(status: int) -> Reason:
    """How an engine's own status counts."""
    if status < 400:
        return Reason.OK
    if status in BUSY:
        return Reason.REPLICA_BUSY
    return Reason.SERVER_ERROR if status >= 500 else Reason.REPLICA_REFUSED
