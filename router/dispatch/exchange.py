"""One request from the moment it is whole to the moment its answer is: what its client sees of it.

Its `RequestDriver` has the attempts and decides about them; the exchange sends them, commits,
relays, answers, truncates. Every callback may be the one in which the client leaves, the replica
dies or the configuration changes; all of them end in `_finish`, which runs once and gives
everything back.

What the client is sent, byte by byte, is its `Reply`'s; the exchange says what and when.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from functools import partial
from math import inf
from time import monotonic, time
from typing import TYPE_CHECKING, Final, cast

from policies.contract import RequestView
from policies.queueing.ticket import Ticket
from router.core.errors import STATUS, Reason, RouterError
from router.core.urgency import Urgency
from router.dispatch.abort import Aborter, is_nameable, unnamed_parameters
from router.dispatch.attempts import Attempt, Commit
from router.dispatch.continuation.outcome import Outcome
from router.dispatch.continuation.request import ENGINES, KINDS
from router.dispatch.continuation.stream import Continuation
from router.dispatch.driven_request import DrivenRequest
from router.dispatch.leg import Leg, error_of
from router.dispatch.messages import MESSAGES
from router.dispatch.reply import Reply
from router.dispatch.request_driver import RequestDriver
from router.dispatch.response_head import is_text
from router.dispatch.sending import send
from router.dispatch.tenants import Entry, models_of
from router.dispatch.usage import NATIVE, UNKNOWN, Usage, UsageTap
from router.fleet.cadence import Cadence
from router.fleet.owners import response_id
from router.fleet.replica import Replica
from router.fleet.tokens.provider import Question
from router.intake.body import SCAN_ABOVE
from router.intake.fields import Fields, Unread
from router.intake.flow import NO_FLOW, Flow
from router.intake.keys import Key
from router.intake.routes import JSON, Route, has_judged_body, may_answer_in_text
from router.intake.values import is_given, output_tokens_of
from router.observe.events import log_event
from router.wire.client import ClientConnection, ClientExchange
from router.wire.error_shapes import of_replica, of_router
from router.wire.heads import RequestHead, ResponseHead
from router.wire.replica import PAUSE_CLIENT, ReplicaConnection
from router.wire.response_reader import ResponseReader
from router.wire.sweep import NEVER

if TYPE_CHECKING:
    from router.dispatch.dispatcher import Dispatcher

# Kinds of routes whose answers are text that the engine generates.
_CHOICES: Final = 1024  # of one request, as far as they are believed
_OUTPUT: Final = 256  # tokens of each of several choices, where the client sets no limit
_WRITES: Final = frozenset({"chat", "completions", "responses", "messages", "generate"})


class Exchange(DrivenRequest, ClientExchange):
    """A request under way. Times are monotonic seconds."""

    __slots__ = (
        "_broke_at",
        "_cadence",
        "_client",
        "_commit_due",
        "_d",
        "_done",
        "_stall_due",
        "_total_due",
        "_worked",
        "aborter",
        "answered_by",
        "arrived_wall",
        "body",
        "body_bytes",
        "common",
        "context",
        "deadline",
        "driver",
        "entry",
        "fields",
        "first_at",
        "flow",
        "has_priority",
        "has_rid",
        "head",
        "key",
        "name",
        "names_response",
        "no_body",
        "parameters",
        "path",
        "priority",
        "question",
        "reply",
        "rules",
        "stream_options",
        "usage",
        "wanted_until",
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
        name: bytes,
        arrived: float,
        urgency: Urgency,
    ) -> None:
        model = dispatcher.fleet.routed(fields.model)
        view = RequestView(route.kind, model, bool(fields.stream), body_bytes)
        context = dispatcher.context
        self.rules = rules = context.rules
        # Its class by name; "": of what is no inference. A step never changes it.
        self.priority = urgency.name if urgency.source else ""
        streamed = bool(fields.stream)
        is_whole = route.inference and not streamed and not route.light
        times = rules.times_of(self.priority)
        super().__init__(view, urgency, arrived, route, streamed, is_whole, times, request_id)
        self._d = dispatcher
        self.context = context
        self._client = client
        self.head = head
        self.body: list[bytes] | None = body
        self.body_bytes = body_bytes
        self.path = path
        self.fields = fields
        self.name = name  # as engines know it
        self.arrived_wall = time()  # seconds since 1970
        self.driver = RequestDriver(self, context)
        # The body contains `priority`, or may contain it in a place that the scan of a large body
        # did not read; it must be rewritten, or the engine obeys the client's value.
        is_unread = body_bytes > SCAN_ABOVE and type(fields) is Unread
        self.has_priority = route.inference and (
            fields.priority is not None or (is_unread and route.is_known)
        )
        self.key: Key | None = None  # its API key; None: none that we know
        self.flow: Flow = NO_FLOW  # whose share of the fleet it uses
        self.entry: Entry | None = None  # what it holds of its tenant's
        self.wanted_until = inf  # its client has no use for an answer that begins later
        self.question: Question | None = None  # for the token ids that it waits for
        self._broke_at = 0.0  # its last content, while another replica is asked for the rest
        self._cadence: Cadence | None = None  # of the replica whose stream is relayed now
        self.common = b""
        self.first_at = 0.0
        self.answered_by: Replica | None = None  # whose content went to the client
        self.usage = UNKNOWN  # how many tokens it took; known when it is over
        self._worked = UNKNOWN  # ... and was estimated to take, as its client left
        # Names its attempts, so that their engines can be told to stop; None: it cannot be named.
        self.aborter: Aborter | None = None
        if dispatcher.aborter is not None and body_bytes <= SCAN_ABOVE:
            self.aborter = dispatcher.aborter if is_nameable(path, fields) else None
        # The body has a name of its client's, or may have one: no engine may be told that.
        self.has_rid = is_given(fields.rid) or is_unread
        # The body's `parameters` as a member without such a name; `None`: they have none.
        self.parameters: bytes | None = None
        if fields.parameters is not None:
            self.parameters = unnamed_parameters(fields.parameters)
        # The body names the response that it makes, so it could name another party's.
        self.names_response = route.kind == "responses" and is_given(fields.request_id)
        self.no_body = head.method == b"HEAD"
        options = fields.stream_options if fields.stream else None
        # A copy: the field is a view that keeps the whole body alive.
        self.stream_options = None if options is None else bytes(options)
        self._done = False
        self.reply = Reply(
            client,
            request_id,
            target=path,
            no_body=self.no_body,
            http_1_0=head.http_1_0,
            gap_s=times.token_gap_s,
            wait_due=NEVER,
        )
        self._total_due = arrived + times.total_s if times.total_s else NEVER
        self._commit_due = NEVER
        if fields.stream and route.streams_events and times.commit_after_s:
            self._commit_due = arrived + times.commit_after_s
        self._stall_due = NEVER
        self.deadline = min(self._total_due, self._commit_due)

    def limit(self, until: float) -> None:
        """Its client says until when it wants an answer to have begun. Before the first attempt."""
        self.wanted_until = self.reply.wait_due = until
        self.first_s = self._patience_s()
        self.deadline = min(until, min(self._total_due, self._commit_due))

    def _patience_s(self) -> float:
        """What an attempt may take to its first content. A client that says how long it waits for a
        whole answer is not cut off before."""
        if not self.is_whole:
            return self.times.first_token_s
        return self.times.whole_s if self.wanted_until == inf else NEVER

    def on_queued(self, now: float) -> None:
        self.reply.wait_due = NEVER
        self.deadline = min(self._total_due, self._commit_due, self._stall_due)

    def on_granted(self, now: float) -> None:
        self.reply.wait_due = self.wanted_until
        if self._commit_due != NEVER and self.driver.life.commit == Commit.NOTHING:
            # It may have been put off while the wait could have ended in a refusal.
            self._commit_due = self.arrived + self.times.commit_after_s
        self.deadline = min(self.deadline, self.reply.wait_due, self._commit_due)

    def make_ticket(self, model: str, lane: str | None) -> Ticket:
        view, fields, flow = self.view, self.fields, self.flow
        most: int | None = output_tokens_of(fields)
        output = -1
        if fields.n is not None and fields.n > 1:
            output = min(fields.n, _CHOICES) * (most or _OUTPUT)
        return Ticket(
            self,
            model=model,
            lane=lane,
            number=self.urgency.number,
            key=flow.account,
            user=flow.member,
            known_key=flow.is_known,
            names_user=flow.user != "",
            weight=1.0 if self.key is None else self.key.weight,
            tokens=view.prompt_tokens,
            output=output,
            most_output=-1 if most is None else most,
            arrival=self.arrived,
            deadline=self.wanted_until,
            body_bytes=self.body_bytes,
            streamed=bool(fields.stream),
            look=partial(self.context.fleet.knowledge.held, view) if view.blocks else None,
            block_tokens=view.block_tokens,
            concurrency=self.concurrency,
        )

    def flow_key(self) -> tuple[str, str]:
        return self.flow.account, self.flow.member

    def may_move(self) -> bool:
        return self.body_bytes <= self.rules.retry_body and self.route.repeatable

    def prepare(self, replica: Replica) -> Attempt:
        return self.driver.prepare(replica)

    def go(self, prepared: object) -> None:
        self.driver.go(cast(Attempt, prepared))

    def recall(self, now: float) -> None:
        self.driver.recall(now)

    def last_attempt(self) -> tuple[Replica, float] | None:
        attempts = self.driver.life.attempts
        return (attempts[-1].at, attempts[-1].began) if attempts else None

    # -- what its driver asks of it ---------------------------------------------------------------

    def attach(self, attempt: Attempt) -> None:
        attempt.io = Leg(self, self.driver, attempt)

    def open(self, attempt: Attempt, fresh: bool) -> None:
        leg_of(attempt).start(fresh)

    def drop(self, attempt: Attempt) -> None:
        leg_of(attempt).cancel()

    def discard(self, attempt: Attempt) -> None:
        leg_of(attempt).discard()

    def release(self, attempt: Attempt) -> None:
        leg_of(attempt).finish()

    def can_resend(self) -> bool:
        return self.body is not None

    def candidates(self, tried: Collection[object]) -> Sequence[Replica]:
        model = self.view.model
        # What is no inference needs no model: any replica may answer.
        anyone = model is None and not has_judged_body(self.head.method)
        return self.context.fleet.eligible(model, tried, anyone=anyone)

    def look_by(self, due: float) -> None:
        self.deadline = min(self.deadline, due)

    def send(self, leg: Leg, conn: ReplicaConnection) -> None:
        """A leg has its connection."""
        leg.conn = conn
        self.driver.connected(leg.attempt)
        send(self, leg, conn)
        if self.body_bytes > self.rules.retry_body or not self.route.is_known:
            self.release_body()  # too large to keep, or nobody knows what a second time would do

    def is_sending(self) -> bool:
        """Whether the body, or a part of it, still waits to be read by a replica."""
        for attempt in self.driver.live:
            conn = leg_of(attempt).conn
            if conn is not None and conn.is_sending:
                return True
        return False

    def is_continued(self) -> bool:
        return self.reply.continuation is not None

    def rest(self) -> list[bytes] | Outcome:
        stream = self.reply.continuation
        assert stream is not None
        return stream.rest(self.body or [])

    def shown_at(self) -> float:
        """When its client was last shown something of the answer; its arrival: nothing yet.

        Infinity: it has stopped reading what there is, so that the wait is of its own making.
        """
        return self.said_at() if self._stall_due == NEVER else NEVER

    def said_at(self) -> float:
        """When the answer's last content came; its arrival: none has come."""
        if not self.first_at:
            return self.arrived
        return self._broke_at or self.reply.wait_due - self.reply.gap_s

    def release_body(self) -> None:
        """It is not kept for another attempt. Until it has left it is in memory all the same."""
        self.body = None
        self.body_sent()

    def body_sent(self) -> None:
        """A replica has read most of what it was sent."""
        if self.body is None and not self._done and not self.is_sending():
            self._client.release_body()

    def abort(self, replica: Replica, rid: bytes, conn: ReplicaConnection) -> None:
        """An attempt is given up that its engine may not give up by itself."""
        assert self.aborter is not None, "nobody else gives names"
        authorization = self.head.authorization if self._d.tenants.forwards else None
        self.aborter.abort(replica, rid, conn, authorization)

    # -- from the replica to the client -------------------------------------------------------

    def interim(self, heads: list[ResponseHead]) -> None:
        if self.driver.life.commit == Commit.NOTHING:
            self.reply.interim(heads)

    def content(self, leg: Leg, reader: ResponseReader) -> Reply | None:
        """A leg shows content: commit to it. Where its bytes go; None: nowhere."""
        if not self.driver.life.content(leg.attempt):
            return None
        now = monotonic()
        attempt, replica = leg.attempt, leg.attempt.at
        self.driver.won(attempt, now)
        reply = self.reply
        before, self.answered_by = self.answered_by, replica
        if before is None:
            self.first_at = now
        reply.wait_due = now + reply.gap_s
        self._broke_at = 0.0
        self._commit_due = NEVER
        # From here tokens move `wait_due` only; `on_deadline` lets `deadline` catch up.
        self.deadline = min(reply.wait_due, min(self._total_due, self._stall_due))
        head = reader.head
        assert head is not None
        if self.route.inference and not self.route.light:
            self._shown(attempt, head, now)
        if self.route.kind == "responses" and head.status == 200 and reader.parts:
            made = response_id(b"".join(reader.parts))
            if made is not None:
                self._learn_response(made, replica)
        if self._client.paused:
            self.client_paused()
        has_begun = reply.status != 0
        if has_begun and (head.status != 200 or not head.is_sse or leg.is_encoded):
            # The client has its 200 already; only a stream can follow it.
            self.driver.completed(attempt, error_of(head.status), now)
            self._tell_inside_stream(reader)
            return None
        if head.is_sse and not leg.is_encoded:
            self._watch(leg, before, now)
        if not has_begun:
            self._begin_reply(reader, replica)
        return reply

    def _learn_response(self, made: str, replica: Replica) -> None:
        """Remember where a stored response is, and whose it is if this request has made it."""
        owners = self.context.fleet.owners
        if not self.route.inference:
            owners.shown(made, replica.id)
        elif not owners.learn(made, replica.id, self.flow.party):
            log_event(
                logging.WARNING,
                "a response has the id of another party's stored response",
                key=f"response {replica.id}",
                replica=replica.id,
                tenant=self.flow.account,
            )

    def _watch(self, leg: Leg, before: Replica | None, now: float) -> None:
        """A leg's stream of events goes to the client, behind what `before` said of it."""
        context, reply = self.context, self.reply
        stream = reply.continuation
        replica = leg.attempt.at
        begins = (
            self.context.rules.continues
            and stream is None
            and self.body is not None
            and self.route.kind in KINDS
            and replica.engine in ENGINES
        )
        tap = UsageTap(
            takes_out=leg.asks_for_usage,
            whole=begins or stream is not None,
            engine=replica.engine,
            quiet=leg.quiet_events,
            meter=replica.cadence,
        )
        if self._stall_due == NEVER:
            self._cadence = replica.cadence
            # The first content, and what comes before it and behind the last.
            self._cadence.begins(now, leg.quiet_events + 2)
        if stream is not None and before is not None:
            context.metrics.continuation(Outcome.CONTINUED)
            context.chooser.finished(self.view, before, stream.tokens)
            stream.resume(tap)
            reply.watch(tap, stream)
        elif begins:
            reply.watch(tap, Continuation(self.route.kind, self._d.store, tap))
        else:
            reply.watch(tap)

    def awaits_rest(self, now: float) -> None:
        """The stream broke, and another replica was asked for its rest."""
        self._stop_cadence(now)
        self._broke_at = self.said_at()
        self.reply.wait_due = NEVER
        self.deadline = min(self._stall_due, min(self._total_due, self.driver.due()))

    def _begin_reply(self, reader: ResponseReader, replica: Replica) -> None:
        head = reader.head
        assert head is not None
        shown = replica.id if self.context.rules.debug_headers else None
        counts = self.route.inference and 200 <= head.status < 300
        self.reply.begin(reader, shown, counts_tokens=counts)
        if counts and not self.route.is_known:
            self.reply.is_text = is_text(head) and may_answer_in_text(self.path)

    def _shown(self, attempt: Attempt, head: ResponseHead, now: float) -> None:
        """Learn from an attempt's first content: what the replica holds, how long it took."""
        if head.status != 200:
            self.driver.shows_refusal(attempt, now)
            return
        replica = attempt.at
        if head.load is not None:
            self.context.fleet.told_by_the_way(replica, head.load)
        ttft_s = None
        if head.is_sse or (self.streamed and not head.is_json):
            ttft_s = now - attempt.began
        self.reply.progress = replica.progress
        self.driver.shows(attempt, ttft_s, now)

    def completed(self, leg: Leg, reader: ResponseReader) -> None:
        """A leg's response is whole, and all of it was relayed."""
        head = reader.head
        assert head is not None
        reply = self.reply
        if reply.has_broken:
            leg.finish()
            self.driver.failed(leg.attempt, Reason.STREAM_ERROR, reused=False, received=True)
            return
        blames_replica = False
        reason = error_of(head.status)
        if reply.has_failed:
            reason = Reason.STREAM_ERROR
            blames_replica = reply.blames_replica
        now = monotonic()
        attempt = leg.attempt
        self.driver.completed(attempt, reason, now)
        fleet = self.context.fleet
        if reason is Reason.SERVER_ERROR or blames_replica:
            fleet.failed(attempt.at, reason, attempt.began, request_id=self.request_id)
        elif reason is Reason.OK:
            generates = self.route.inference and not self.route.light
            fleet.succeeded(attempt.at, attempt.began, content=generates)
        client = self._client
        self._finish(reason, now, is_whole=True)
        client.done(reply.keep_alive and client.keeps_alive)

    # -- answers of our own -------------------------------------------------------------------

    def tell_aside(self) -> None:
        """Every attempt failed, and the earliest of those that said how is passed on."""
        attempt = self.driver.life.put_aside
        assert attempt is not None
        reader, replica = leg_of(attempt).said, attempt.at
        assert reader is not None and reader.head is not None
        self.driver.life.told()
        reply, client = self.reply, self._client
        if reply.status:
            self._tell_inside_stream(reader)
            return
        self._begin_reply(reader, replica)
        reply.relay(reader)
        reason = error_of(reader.head.status)
        if reason is Reason.OK:  # it was the stream that told of an error
            reason = Reason.STREAM_ERROR
        self._finish(reason, monotonic(), is_whole=True)
        client.done(reply.keep_alive and client.keeps_alive)

    def answer_failure(self, reason: Reason) -> None:
        retry_after = 2 if STATUS[reason] == 503 else None
        self.answer(RouterError(reason, MESSAGES[reason], retry_after_s=retry_after))

    def outlived(self) -> None:
        """Its client has no use for an answer any more."""
        reason = Reason.DEADLINE_PASSED
        self._estimate_work()
        self.answer(RouterError(reason, MESSAGES[reason], retry_after_s=1))

    def answer(self, err: RouterError) -> None:
        """End the request with an error of the router's own, in whatever form is still possible."""
        if self._done:
            return
        if err.reason is Reason.MODEL_NOT_FOUND:
            served = self.context.fleet.told_models(models_of(self.key))
            err = RouterError(err.reason, err.message + served, param=err.param)
        self._cancel(err.reason)
        client = self._client
        now = monotonic()
        if self.driver.life.commit == Commit.STATUS:
            self.reply.late_error(of_router(err))
            self._finish(err.reason, now)
            client.close_after_writing()
            return
        keep_alive = self.reply.error(err)
        self._finish(err.reason, now)
        client.done(keep_alive)

    def truncate(self, reason: Reason) -> None:
        client, reply = self._client, self.reply
        if reply.let_go():
            self._finish(reason, monotonic(), is_whole=True)
            client.done(reply.keep_alive and client.keeps_alive)
            return
        may_close = reply.truncate(RouterError(reason, MESSAGES[reason]))
        self._finish(reason, monotonic())
        if may_close:
            client.close_after_writing()
        else:
            client.exchange = None
            client.abort(reason)

    def _tell_inside_stream(self, reader: ResponseReader) -> None:
        """A stream has begun with our own 200, and then the engine answers something else."""
        body = b"".join(reader.parts)
        reader.parts.clear()
        head = reader.head
        assert head is not None
        reason = error_of(head.status)
        if head.status == 200:
            reason = Reason.BAD_RESPONSE
            told = of_router(RouterError(reason, "the replica's answer is no stream"))
        else:
            told = of_replica(head.status, body)
        self.reply.late_error(told)
        client = self._client
        self._finish(reason, monotonic())
        client.close_after_writing()

    def _may_commit(self) -> bool:
        """Whether a 200 that only keeps the client waiting cannot be followed by a refusal."""
        ticket, queue = self.ticket, self.context.queue
        if ticket is None or queue is None:
            return True
        if self.unreached_since >= 0.0:
            return False  # a 503 may follow
        if self.waits_since >= 0.0 and (self._client.is_draining or self._total_due != NEVER):
            return False
        return queue.commits(ticket)

    def _commit_status(self) -> None:
        if self.driver.life.commit == Commit.NOTHING:
            if not self._may_commit():
                return  # the next look asks again
            self.driver.life.committed_status()
            self.context.metrics.streams_committed_early += 1
        self.reply.comment()

    # -- the client and the clock -------------------------------------------------------------

    def client_gone(self, reason: Reason) -> None:
        """In the same callback in which it left: the engine must not work for nobody."""
        if not self._done:
            self._estimate_work()
            self._cancel(reason)
            self._finish(reason, monotonic())

    def _estimate_work(self) -> None:
        """The client leaves before any content: estimate what an engine has done for it until now.

        The engine has read the prompt. It may also have made output that nobody was shown: a whole
        answer, or a stream whose first tokens the engine keeps back. That is estimated from the
        engine's usual pace. A request that no engine has, or that the engine refused, is free.
        """
        if self.answered_by is not None or not self.route.inference or self.route.light:
            return
        now = monotonic()
        for attempt in self.driver.live:
            conn = leg_of(attempt).conn
            if conn is None:
                continue  # nothing was sent
            head = conn.reader.head
            if head is not None and head.status != 200:
                continue  # refused
            replica = attempt.at
            output = 0.0
            pace_s = replica.cadence_s or replica.tpot_s
            if pace_s:
                busy_s = now - attempt.began - replica.progress.first_s
                output = min(max(0.0, busy_s / pace_s), self._most_output())
            self._worked = Usage(self._prompt_tokens(), int(output), None, False)
            return

    def _most_output(self) -> float:
        """More tokens than that no engine makes for the request.

        An engine may read only one of the members, so the largest counts. Native routes have others
        of their own.
        """
        fields = self.fields
        most = max(fields.max_tokens or 0, fields.max_completion_tokens or 0)
        most = max(most, fields.max_output_tokens or 0)
        return 1e6 if most <= 0 or self.path in NATIVE else float(min(most, 1_000_000))

    def _relayed(self) -> Usage:
        """An engine has answered and told no counts: those of the output, by what was relayed.

        What is answered on a path that the router does not know counts if it may be text.
        """
        if self.route.kind not in _WRITES and not self.reply.is_text:
            return UNKNOWN
        return Usage(None, self.reply.estimated_output(), None, False)

    def _prompt_tokens(self) -> int:
        """The estimated size of the prompt. A JSON body whose prompt was not measured, because the
        body is too large to be decoded or prefixes are off, is estimated from its bytes."""
        tokens = self.view.prompt_tokens
        if not tokens and self.route.body == JSON:
            tokens = self.body_bytes // 4
        return tokens

    def _stop_cadence(self, now: float) -> None:
        """The stream ends, or its client no longer lets it go on."""
        cadence, self._cadence = self._cadence, None
        if cadence is not None:
            cadence.ends(now)

    def client_paused(self) -> None:
        now = monotonic()
        self._stop_cadence(now)
        self._stall_due = now + self.context.rules.write_stall_s
        self.deadline = min(self.deadline, self._stall_due)
        self.first_s = NEVER
        self.driver.excuse()
        for attempt in self.driver.live:
            conn = leg_of(attempt).conn
            if conn is not None:
                conn.pause(PAUSE_CLIENT)

    def client_resumed(self) -> None:
        self._stall_due = NEVER
        now = monotonic()
        reply, replica = self.reply, self.answered_by
        reply.wait_due = max(reply.wait_due, now + reply.gap_s)
        self.first_s = self._patience_s()
        self.driver.await_first(now + reply.gap_s)
        self.deadline = min(self.deadline, self.driver.due())
        is_relayed = reply.is_counted and not self._broke_at
        if replica is not None and is_relayed and self._cadence is None:
            self._cadence = replica.cadence
            self._cadence.begins(now)
        for attempt in self.driver.live:
            conn = leg_of(attempt).conn
            if conn is not None:
                conn.resume(PAUSE_CLIENT)

    def on_deadline(self, now: float) -> None:
        # Tokens move `wait_due` only; `deadline` catches up here, a few times a minute.
        wait_due = self.reply.wait_due
        if self._total_due <= now:
            self.driver.timed_out(Reason.TOTAL_TIMEOUT)
        elif self._stall_due <= now:
            self._client.abort(Reason.WRITE_TIMEOUT)
        elif wait_due <= now and self._stall_due == NEVER:
            if self.driver.life.commit == Commit.CONTENT:
                self.driver.timed_out(Reason.TOKEN_GAP_TIMEOUT)
            else:
                self.outlived()  # no replica is to blame, as when its client leaves
        else:
            self.driver.look(now)
            if self._done:
                return
            if self._commit_due <= now:
                self._commit_due = now + self.times.commit_after_s
                self._commit_status()
            wait = wait_due if self._stall_due == NEVER else NEVER
            self.deadline = min(
                wait, self._total_due, self._commit_due, self._stall_due, self.driver.due()
            )

    # -- the end ------------------------------------------------------------------------------

    def shut(self) -> None:
        """The router stops: end this request in whatever form is still possible."""
        if self.driver.life.commit == Commit.CONTENT and not self._done:
            self._cancel(Reason.DRAINING)
            self.truncate(Reason.DRAINING)
        else:
            self.answer(RouterError(Reason.DRAINING, MESSAGES[Reason.DRAINING], retry_after_s=1))

    def end(self) -> None:
        """The router has answered it well by itself."""
        self._finish(Reason.OK, monotonic())

    def _cancel(self, reason: Reason) -> None:
        question, self.question = self.question, None
        if question is not None:
            question.cancel()
        self.driver.cancel(reason)

    def _finish(self, reason: Reason, now: float, *, is_whole: bool = False) -> None:
        if self._done:
            return
        self._done = True
        self._stop_cadence(now)
        if self.route.inference:
            usage = self.reply.usage(is_whole)
            if usage is UNKNOWN:
                usage = self._worked
                if self.answered_by is not None and self.reply.is_work:
                    usage = self._relayed()
            if (
                usage.prompt_tokens is None
                and usage is not UNKNOWN
                and self.body_bytes > SCAN_ABOVE
            ):
                # The prompt of such a body was not measured, and nobody told its tokens.
                usage = Usage(self._prompt_tokens(), usage.output_tokens, None, False)
            self.usage = usage
        if self.reply.continuation is not None:
            self.reply.continuation.close()
        self.body = None
        self._client.exchange = None
        self.driver.close()
        self._d.finished(self, reason, now)
        self._d.ledger.close(self, self._client, reason, now)


def leg_of(attempt: Attempt) -> Leg:
    """What sends an attempt of this proxy."""
    leg = attempt.io
    assert isinstance(leg, Leg)
    return leg
