"""One request from the moment it is whole to the moment its answer is: the only place where a
client's connection and a replica's meet.

It asks the state machine (`attempts`) what an event means, and does it: begin an attempt, relay,
answer, truncate. Every callback may be the one in which the client leaves, the replica dies or the
configuration changes; all of them end in `_finish`, which runs once and gives everything back.

The path of a token is `Leg.on_data` → `relay` → `client.write`: no task, no await, no log call,
no timer, one concatenation.
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
from router.dispatch.response_head import interim_head, response_head, stream_head
from router.dispatch.upstream_head import attempt_head
from router.fleet.owners import response_id
from router.fleet.replica import Replica
from router.intake.body import Fields
from router.intake.routes import Route
from router.wire import answers, sse
from router.wire.client import ClientConnection
from router.wire.replica import PAUSE_CLIENT, ReplicaConnection
from router.wire.request_reader import RequestHead
from router.wire.response_reader import COMPLETE, ResponseHead, ResponseReader
from router.wire.sweep import NEVER

if TYPE_CHECKING:
    from router.dispatch.dispatcher import Dispatcher

_COMMENT = b": waiting for the first token\n\n"


class Exchange:
    """A request under way. Times are monotonic seconds."""

    __slots__ = (
        "_blames_replica",
        "_budgeted",
        "_chunked",
        "_client",
        "_commit_due",
        "_d",
        "_done",
        "_gap_s",
        "_is_sse",
        "_keep_alive",
        "_leg",
        "_no_body",
        "_stall_due",
        "_stream_failed",
        "_tail",
        "_total_due",
        "_wait_due",
        "arrived",
        "body",
        "body_bytes",
        "bytes_out",
        "common",
        "deadline",
        "fields",
        "first_at",
        "head",
        "life",
        "limits",
        "path",
        "pinned",
        "request_id",
        "route",
        "status",
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
        self.pinned: Replica | None = None  # state at one replica: no other can answer
        self.common = b""
        self.status = 0  # sent to the client
        self.bytes_out = 0
        self.first_at = 0.0
        self._leg: Leg | None = None
        self._is_sse = False
        self._chunked = False
        self._keep_alive = False  # what the response's head promised
        self._no_body = head.method == b"HEAD"
        self._tail = b""  # what was relayed last
        self._stream_failed = False
        self._blames_replica = False  # and the error was of its own making
        self._budgeted = False  # one retry of the budget is ours
        self._done = False
        timeouts = dispatcher.config.timeouts
        self._gap_s = timeouts.token_gap_s
        self._wait_due = arrived + timeouts.first_token_s
        self._total_due = arrived + timeouts.total_s if timeouts.total_s else NEVER
        self._commit_due = NEVER
        if fields.stream and route.inference and timeouts.commit_after_s:
            self._commit_due = arrived + timeouts.commit_after_s
        self._stall_due = NEVER
        self.deadline = min(self._wait_due, self._total_due, self._commit_due)

    # -- attempts -----------------------------------------------------------------------------

    def begin(self, replica: Replica, *, fresh: bool = False) -> None:
        """Send the request to a replica (`fresh`: over a new connection)."""
        attempt = self.life.begin(replica.id, replica, monotonic())
        self.view.attempts = attempt.index + 1
        self._leg = leg = Leg(self, attempt, replica)
        leg.start(fresh)

    def send(self, leg: Leg, conn: ReplicaConnection) -> None:
        """A leg has its connection."""
        leg.conn = conn
        self.life.sent(leg.attempt)
        replica = leg.replica
        head = attempt_head(
            self.head,
            replica.base_path,
            replica.host_line,
            self.common,
            self.request_id,
            leg.attempt.index,
        )
        conn.send(leg, head, self.body or [], for_head=self._no_body)
        if self.body_bytes > self.limits.retry_body:
            self.body = None  # too large to keep for another attempt
            self._client.release_body()

    def replace(self, leg: Leg, reason: Reason) -> bool:
        """A replica answers that it is busy or has failed, and no content is out yet.

        True: another one is tried; False: the answer stands and is passed on.
        """
        if not self._can_send_again() or self.life.reached >= self.life.most:
            return False
        if reason is Reason.STREAM_ERROR and not (self.route.repeatable and not self.life.resent):
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
        self._d.fleet.failed(replica, reason)
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
        self.begin(self._d.pick(self.view, others))

    # -- from the replica to the client -------------------------------------------------------

    def interim(self, heads: list[ResponseHead]) -> None:
        """1xx: early hints go on to who may see them, the rest ends here."""
        if self.head.http_1_0 or self.life.commit != Commit.NOTHING:
            return
        for head in heads:
            if head.status == 103:
                self._client.write(interim_head(head))

    def content(self, leg: Leg, reader: ResponseReader) -> bool:
        """A leg shows content: commit to it. False if it must not be relayed."""
        if not self.life.content(leg.attempt):
            return False
        self.first_at = now = monotonic()
        self._wait_due = now + self._gap_s
        self._commit_due = NEVER
        # From here tokens move `_wait_due` only; `on_deadline` lets `deadline` catch up.
        self.deadline = min(self._wait_due, self._total_due, self._stall_due)
        head = reader.head
        assert head is not None
        if self.route.kind == "responses" and head.status == 200 and reader.parts:
            made = response_id(b"".join(reader.parts))
            if made is not None:
                self._d.fleet.owners.learn(made, leg.replica.id)
        if self._client.paused:
            self.client_paused()
        if self.status:
            # The client has its 200 already; only a stream can follow it.
            if not (head.is_sse and head.status == 200):
                self._tell_inside_stream(leg, reader)
                return False
            return True
        self.status = head.status
        self._is_sse = head.is_sse
        length = head.content_length
        whole = reader.state == COMPLETE
        if length is None and whole and not head.is_sse and head.status >= 200:
            length = sum(map(len, reader.parts))
        bodyless = self._no_body or head.status in (204, 304)
        self._chunked = length is None and not bodyless and not self.head.http_1_0
        self._keep_alive = self._client.keeps_alive and (
            length is not None or self._chunked or bodyless
        )
        lines = response_head(
            head,
            self.request_id,
            length=length,
            chunked=self._chunked,
            keep_alive=self._keep_alive,
            http_1_0=self.head.http_1_0,
            replica=leg.replica.id if self._d.config.debug_headers else None,
        )
        if whole and length is not None and not bodyless:
            # The usual answer that is no stream: one write.
            lines += b"".join(reader.parts)
            self.bytes_out += length
            reader.parts.clear()
        self._client.write(lines)
        return True

    def relay(self, leg: Leg, reader: ResponseReader) -> None:
        """Pass on what has come. This is the path of a token."""
        parts = reader.parts
        if parts and not self._no_body:
            body = parts[0] if len(parts) == 1 else b"".join(parts)
            parts.clear()
            size = len(body)
            if size:
                self.bytes_out += size
                self._wait_due = monotonic() + self._gap_s
                self._tail = body[-2:] if size > 1 else (self._tail + body)[-2:]
                if self._is_sse and b'"error"' in body and sse.reports_error(body):
                    self._stream_failed = True
                    self._blames_replica = sse.is_server_error(body)
                write = self._client.write
                if not self._chunked:
                    write(body)
                elif reader.state != COMPLETE:
                    write(b"%x\r\n%b\r\n" % (size, body))
                else:
                    write(b"%x\r\n%b\r\n0\r\n\r\n" % (size, body))
                    self._complete(leg, reader)
                    return
        if reader.state == COMPLETE:
            if self._chunked:
                self._client.write(b"0\r\n\r\n")
            self._complete(leg, reader)

    def _complete(self, leg: Leg, reader: ResponseReader) -> None:
        head = reader.head
        assert head is not None
        reason = _reason_of(head.status)
        if self._stream_failed:
            reason = Reason.STREAM_ERROR
        now = monotonic()
        self.life.completed(leg.attempt, now, reason)
        self._leg = None
        leg.finish()
        fleet = self._d.fleet
        if reason is Reason.SERVER_ERROR or self._blames_replica:
            fleet.failed(leg.replica, reason)
        elif reason is Reason.OK:
            fleet.succeeded(leg.replica)
        if leg.replica.removed:
            fleet.released(leg.replica)
        client = self._client
        self._finish(reason, now)
        client.done(self._keep_alive and client.keeps_alive)

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
            self._write_event(answers.error_event(err))
            self._finish(err.reason, now)
            client.close_after_writing()
            return
        self.status = err.status
        keep_alive = client.keeps_alive
        client.write(
            answers.error_response(
                err,
                keep_alive=keep_alive,
                request_id=self.request_id.decode("ascii"),
                head_only=self._no_body,
            )
        )
        self._finish(err.reason, now)
        client.done(keep_alive)

    def _truncate(self, reason: Reason) -> None:
        """Content is out and the rest will not come: that has to be visible."""
        client = self._client
        if self._is_sse:
            event = answers.error_event(RouterError(reason, MESSAGES[reason]))
            # In the middle of an event ours would become a part of it.
            self._write_event(event if self._tail.endswith(b"\n\n") else b"\n\n" + event)
            self._finish(reason, monotonic())
            client.close_after_writing()
        elif self._chunked or not self.head.http_1_0:
            # No last chunk, or less than Content-Length: no client takes this for the whole.
            self._finish(reason, monotonic())
            client.close_after_writing()
        else:
            self._finish(reason, monotonic())
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
        self._write_event(event)
        now = monotonic()
        self.life.completed(leg.attempt, now, _reason_of(head.status))
        self._leg = None
        leg.finish()
        self._d.fleet.released(leg.replica)
        client = self._client
        self._finish(_reason_of(head.status), now)
        client.close_after_writing()

    def _commit_status(self) -> None:
        """Nobody's read timeout shall fire while an engine queues: 200 and comments, from here."""
        client = self._client
        if self.life.commit == Commit.NOTHING:
            self.life.committed_status()
            self._d.metrics.streams_committed_early += 1
            self.status = 200
            self._is_sse = True
            self._chunked = not self.head.http_1_0
            self._keep_alive = self._chunked and client.keeps_alive
            client.write(
                stream_head(self.request_id, chunked=self._chunked, keep_alive=self._keep_alive)
            )
        self._write_event(_COMMENT)

    def _write_event(self, event: bytes) -> None:
        self.bytes_out += len(event)
        if self._chunked:
            event = b"%x\r\n%b\r\n" % (len(event), event)
        self._client.write(event)

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
        self._wait_due = max(self._wait_due, monotonic() + self._gap_s)
        if self._leg is not None and self._leg.conn is not None:
            self._leg.conn.resume(PAUSE_CLIENT)

    def on_deadline(self, now: float) -> None:
        # Tokens move `_wait_due` only; `deadline` catches up here, a few times a minute.
        if self._total_due <= now:
            self._timed_out(Reason.TOTAL_TIMEOUT)
        elif self._stall_due <= now:
            self._client.abort(Reason.WRITE_TIMEOUT)
        elif self._wait_due <= now and self._stall_due == NEVER:
            committed = self.life.commit == Commit.CONTENT
            self._timed_out(Reason.TOKEN_GAP_TIMEOUT if committed else Reason.TTFT_TIMEOUT)
        else:
            if self._commit_due <= now:
                self._commit_due = now + self._d.config.timeouts.commit_after_s
                self._commit_status()
            wait = self._wait_due if self._stall_due == NEVER else NEVER
            self.deadline = min(wait, self._total_due, self._commit_due, self._stall_due)

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
        leg, self._leg = self._leg, None
        if leg is not None:
            leg.cancel()
        self.life.end(reason, monotonic())
        if leg is not None:
            self._d.fleet.released(leg.replica)

    def _finish(self, reason: Reason, now: float) -> None:
        if self._done:
            return
        self._done = True
        self.body = None
        self._client.exchange = None
        if self._budgeted:
            self._budgeted = False
            self._d.budget.give()
        self._d.finished(self, self._client, reason, now)


def _reason_of(status: int) -> Reason:
    """How an engine's own status counts."""
    if status < 400:
        return Reason.OK
    if status in BUSY:
        return Reason.REPLICA_BUSY
    return Reason.SERVER_ERROR if status >= 500 else Reason.REPLICA_REFUSED
