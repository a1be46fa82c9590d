"""One request in the proxy, from the complete request to the end of its response.

The request's `RequestDriver` owns the attempts and decides about them; an `AttemptIO` sends each of
them. The exchange relays the response of one attempt to the client. If no response can be relayed,
the exchange sends an error or truncates the response. In any callback the client may leave, the
replica may fail, or the configuration may change. Every request ends in `_finish`, which takes
effect once.

Each resource is released by its owner:

- `AttemptState` releases the lease of an attempt when the attempt ends,
- `RequestDriver` (`cancel`, `close`) ends the remaining attempts, and releases the place in the
  retry budget,
- `QueueDriver.over` releases the queue ticket,
- `Dispatcher.finished` releases the tenant's limits.

The exchange decides what is sent to the client and when; its `Reply` writes the bytes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from mypy_extensions import trait

from router.core.clock import monotonic
from router.core.errors import Reason, RouterError
from router.core.ttft_estimate import header_value
from router.core.urgency import Urgency
from router.dispatch.attempts.attempt_io import AttemptIO, error_of, io_of
from router.dispatch.attempts.token_ids import Question
from router.dispatch.client_request import ClientRequest
from router.dispatch.context import Context
from router.dispatch.driver.attempt_state import Attempt, Commit
from router.dispatch.driver.deadlines import Deadlines
from router.dispatch.driver.reports import answered_badly, content_shown, refusal_shown
from router.dispatch.driver.request_end import end_request
from router.dispatch.driver.retries import failed
from router.dispatch.driver.watch import check
from router.dispatch.messages import MESSAGES
from router.dispatch.proxied_request import ProxiedRequest
from router.dispatch.reply import Reply
from router.dispatch.response_head import is_text
from router.dispatch.restored_name import RestoredName
from router.dispatch.resumption import Rest
from router.dispatch.rules import Times
from router.dispatch.tenants import models_of
from router.dispatch.usage.token_counts import Usage
from router.dispatch.usage.usage_estimate import (
    learn_stream,
    most_generated,
    usage_at_end,
    usage_before_content,
)
from router.dispatch.usage.usage_tap import UsageTap
from router.fleet.names import Target
from router.fleet.prefix.response_affinity import response_id
from router.fleet.replica import Replica
from router.intake.routes import Route, may_answer_in_text
from router.wire.client import ClientConnection
from router.wire.front import ClientExchange
from router.wire.http1.error_shapes import of_replica, of_router
from router.wire.http1.heads import ResponseHead
from router.wire.http1.response_reader import ResponseReader
from router.wire.replica import PAUSE_CLIENT
from router.wire.sweep import NEVER

# A client that leaves within this time after `[DONE]` shows the time of the whole answer.
_LEAVES_WITHIN_S: Final = 0.1


@trait
class ExchangeOwner(ABC):
    """The owner of the requests that have not ended (the dispatcher)."""

    __slots__ = ()

    @abstractmethod
    def finished(
        self, exchange: Exchange, client: ClientConnection, reason: Reason, now: float
    ) -> None:
        """Forget a request that has ended, and log it. Called once per request."""


class SweptDeadlines(Deadlines):
    """The time limits of a request in the proxy; a party of the sweep."""

    __slots__ = ("_exchange",)
    __deletable__ = ("_exchange",)  # Lets compiled code delete the attribute.

    def __init__(
        self,
        exchange: Exchange,
        times: Times,
        route: Route,
        arrived: float,
        streams: bool,
        most: int,
    ) -> None:
        super().__init__(times, route, arrived, streams=streams, most=most)
        self._exchange = exchange

    def on_deadline(self, now: float) -> None:
        exchange = self._exchange
        try:
            check(exchange.driver, now)
        except Exception as err:
            exchange.crashed(err)

    def end(self) -> None:
        """Break the reference cycle, so that no garbage collection is needed."""
        del self._exchange


class Exchange(ProxiedRequest, ClientExchange):
    """A client's request in the proxy, until it ends. Times are monotonic seconds."""

    __slots__ = ("_client", "_owner", "question", "reply")

    def __init__(
        self,
        owner: ExchangeOwner,
        context: Context,
        client: ClientConnection,
        asked: ClientRequest,
        body: list[bytes],
        request_id: bytes,
        arrived: float,
        urgency: Urgency,
        target: Target | None = None,
    ) -> None:
        rules = context.rules
        times = rules.times_of(urgency.stated)
        deadlines = SweptDeadlines(
            self, times, asked.route, arrived, asked.streamed, rules.attempts
        )
        super().__init__(context, asked, body, request_id, arrived, urgency, target, deadlines)
        self._owner = owner
        self._client = client
        self.question: Question | None = None  # Asks for the token ids that the request waits for.
        self.reply = Reply(
            client,
            request_id,
            target=asked.path,
            head=asked.head,
        )

    # -- the interface for the request driver --------------------------------------------------

    def attach(self, attempt: Attempt) -> None:
        attempt.io = AttemptIO(self, attempt)

    def open(self, attempt: Attempt, fresh: bool) -> None:
        io_of(attempt).start(fresh)

    def drop(self, attempt: Attempt) -> None:
        io_of(attempt).cancel()

    def discard(self, attempt: Attempt) -> None:
        io_of(attempt).discard()

    def free_connection(self, attempt: Attempt) -> None:
        io_of(attempt).finish()

    def rest(self, attempt: Attempt, reason: Reason) -> Rest | None:
        stream, driver = self.reply.stream, self.driver
        if stream is None:
            return None
        body = b"".join(self.body or ())
        return stream.rest(driver.state, attempt, reason, body, driver.others, driver.take_budget)

    def shown_at(self) -> float:
        """Return the time of the last content, or of the request's arrival if no content came.

        The result is infinity while the client does not read, because no content can then be
        relayed.
        """
        return NEVER if self.deadlines.is_paused else self.last_content_at()

    def last_content_at(self) -> float:
        if not self.work.first_at:
            return self.arrived
        return self.work.broke_at or self.reply.last_at

    def body_sent(self) -> None:
        """Release the memory of the client's body, if the body was sent and is not kept."""
        if self.body is None and not self.driver.is_over:
            for attempt in self.driver.state.live:
                conn = io_of(attempt).conn
                if conn is not None and conn.is_sending:
                    return
            self._client.held.release_body()

    # -- from the replica to the client --------------------------------------------------------

    def interim(self, heads: list[ResponseHead]) -> None:
        if self.driver.state.commit == Commit.NOTHING:
            self.reply.interim(heads)

    def content(self, attempt: Attempt, reader: ResponseReader, now: float) -> Reply | None:
        if not self.driver.won(attempt, now):
            return None
        io, replica = io_of(attempt), attempt.at
        reply, head = self.reply, reader.head
        assert head is not None
        before = self.work.shown(replica, now)
        has_begun = reply.status != 0
        if has_begun and (head.status != 200 or not head.is_sse or io.is_encoded):
            self._end_in_stream(attempt, reader, now)
            return None
        reply.last_at = now
        # From now on, each token changes only `last_at`.
        self.deadlines.content(now, head.is_sse and not io.is_encoded)
        if self.route.inference and not self.route.light:
            self._shown(attempt, head, now)
        if self.route.kind == "responses" and head.status == 200 and reader.parts:
            made = response_id(b"".join(reader.parts))
            if made is not None:
                self.learn_response(made, replica)
        if self._client.paused:
            self._pause()
        named = self.asked.named
        if named is not None and named.restores_name and reply.restored_name is None:
            reply.restored_name = RestoredName(named.name)
        if head.is_sse and not io.is_encoded:
            self._watch(io, before, now)
        if not has_begun:
            self._begin_reply(reader, replica)
        return reply

    def _end_in_stream(self, attempt: Attempt, reader: ResponseReader, now: float) -> None:
        """End the request: the client has a 200 for a stream, and the answer is not a stream.

        A 200 does not count against the replica: without the early 200 it would be a success.
        """
        head = reader.head
        assert head is not None
        reason = error_of(head.status)
        if reason is Reason.OK:
            reason = Reason.BAD_RESPONSE
        refusal_shown(self, self.context, attempt, now)
        self.driver.completed(attempt, reason, now)
        if reason is Reason.SERVER_ERROR:
            answered_badly(self, self.context, attempt, reason)
        self._send_error_event(reader, reason)

    def _watch(self, io: AttemptIO, before: Replica | None, now: float) -> None:
        """Relay an attempt's event stream to the client.

        `before`: the replica whose broken stream this attempt resumes; `None` if this attempt is
        the first one.
        """
        reply, resumption = self.reply, self.rules.resumption
        stream = reply.stream
        replica = io.attempt.at
        tap = UsageTap(
            takes_out=io.attempt.asks_for_usage,
            mark=replica.descriptor.counts_mark,
            quiet=io.quiet_events,
            meter=replica.cadence,
        )
        if not self.deadlines.is_paused:
            # The following events are not counted as tokens: the first content, the events before
            # it, and the end.
            self.work.flows(replica.cadence, now, io.quiet_events + 2)
        if stream is not None and before is not None:
            self.context.chooser.finished(self.view, before, stream.resumes(tap), now)
        elif resumption is not None and self.body is not None:
            stream = resumption.opens(self.route.kind, replica.descriptor, tap)
        if stream is None:
            # The request is not sent again, however its stream ends.
            self.release_body()
            self.asked.forget()
        view = self.view
        reply.watch(tap, view.arrived + view.ttft_slo_s, view.tpot_slo_s, stream)

    def _name_estimate(self) -> None:
        """Put the estimated time to first token into the response's head, if the client asks."""
        estimate = self.estimate
        if self.asked.head.routing.wants_estimate and estimate is not None and estimate.is_given:
            self.reply.estimate = header_value(estimate, self.arrived)

    def _begin_reply(self, reader: ResponseReader, replica: Replica) -> None:
        head = reader.head
        assert head is not None
        shown = replica.id if self.rules.debug_headers else None
        counts = self.route.inference and 200 <= head.status < 300
        self._name_estimate()
        region = replica.region if self.asked.head.routing.wants_region else ""
        self.reply.begin(reader, shown, region, counts_tokens=counts)
        if counts and not self.route.is_known:
            self.reply.is_text = is_text(head) and may_answer_in_text(self.asked.path)

    def _shown(self, attempt: Attempt, head: ResponseHead, now: float) -> None:
        """Learn from the first content: which prefix the replica holds, and the time to first
        token."""
        if head.status != 200 or attempt.error_status:
            refusal_shown(self, self.context, attempt, now)
            return
        replica = attempt.at
        if head.load is not None:
            self.context.fleet.polls.load_reported(replica, head.load)
        ttft_s = None
        if head.is_sse or (self.view.stream and not head.is_json):
            ttft_s = now - attempt.began
        self.reply.progress = replica.progress
        content_shown(self, self.context, attempt, ttft_s, now)

    def completed(self, attempt: Attempt, reader: ResponseReader, now: float) -> None:
        head = reader.head
        assert head is not None
        reply = self.reply
        if not reply.is_complete:  # The stream reported a failure, which is withheld.
            self.free_connection(attempt)
            failed(self.driver, attempt, Reason.STREAM_ERROR, reused=False, received=True)
            return
        self._end_whole(attempt, head.status, now)
        client = self._client
        client.done(reply.keep_alive and client.keeps_alive, now)

    def _end_whole(self, attempt: Attempt, status: int, now: float) -> None:
        """End the request, whose client was sent all of the attempt's answer."""
        blames_replica = False
        reason = error_of(status)
        if self.reply.has_failed:
            reason = Reason.STREAM_ERROR
            blames_replica = self.reply.blames_replica
        self.driver.completed(attempt, reason, now)
        fleet = self.context.fleet
        if reason is Reason.SERVER_ERROR or blames_replica:
            answered_badly(self, self.context, attempt, reason)
        elif reason is Reason.OK and not attempt.error_status:
            generates = self.route.inference and not self.route.light
            fleet.outcomes.succeeded(attempt.at, attempt.began, content=generates)
            if not fleet.suspects.is_empty:
                fleet.suspects.answered(self.digest())
        self._finish(reason, now, is_whole=True)

    # -- errors and answers of the router ------------------------------------------------------

    def send_kept_error(self) -> None:
        """Send the client the error answer that was kept first, because all attempts failed."""
        attempt = self.driver.state.kept_error
        assert attempt is not None
        reader, replica = io_of(attempt).kept_response, attempt.at
        assert reader is not None and reader.head is not None
        self.driver.state.kept_error_wins()
        reply, client = self.reply, self._client
        if reply.status:
            self._send_error_event(reader, attempt.reason)
            return
        self._begin_reply(reader, replica)
        reply.relay(reader)
        reason = error_of(reader.head.status)
        # If the status of the answer was 200, the error was inside the stream.
        if reason is Reason.OK:
            reason = Reason.STREAM_ERROR
        now = monotonic()
        self._finish(reason, now, is_whole=True)
        client.done(reply.keep_alive and client.keeps_alive, now)

    def fail(self, err: RouterError) -> None:
        """End the request with an error: a response, or an event if a stream has begun."""
        if err.reason is Reason.MODEL_NOT_FOUND:
            models = models_of(self.asked.key)
            served = self.context.fleet.listing.names_text(models, self.view.allowed)
            err = RouterError(err.reason, err.message + served, param=err.param)
        client = self._client
        now = monotonic()
        if self.reply.status:
            self.reply.end_with_error(of_router(err))
            keep_alive = self.reply.keep_alive and client.keeps_alive
        else:
            keep_alive = self.reply.error(err)
        self._finish(err.reason, now)
        client.done(keep_alive, now)

    def truncate(self, reason: Reason, err: RouterError | None = None) -> None:
        client, reply, now = self._client, self.reply, monotonic()
        if reply.send_withheld_error():
            self._finish(reason, now, is_whole=True)
            client.done(reply.keep_alive and client.keeps_alive, now)
            return
        may_close = reply.truncate(err or RouterError(reason, MESSAGES[reason]))
        self._finish(reason, now)
        if may_close:
            client.done(False, now)
        else:
            client.exchange = None
            client.abort(reason)

    def _send_error_event(self, reader: ResponseReader, reason: Reason) -> None:
        """End the request with an engine's answer as an error event, after an early 200."""
        body = b"".join(reader.parts)
        reader.parts.clear()
        head = reader.head
        assert head is not None
        if head.status >= 400:
            facts = of_replica(head.status, body)
        elif reason is Reason.BAD_RESPONSE:
            facts = of_router(RouterError(reason, "the replica's answer is not an event stream"))
        else:
            facts = of_router(RouterError(reason, MESSAGES[reason]))
        self.reply.end_with_error(facts)
        client, now = self._client, monotonic()
        self._finish(reason, now)
        client.done(self.reply.keep_alive and client.keeps_alive, now)

    def _may_send_early_status(self) -> bool:
        """Whether an early 200 may be sent, because the request will not be refused any more."""
        ticket, queue = self.ticket, self.context.queue
        if self.driver.state.kept_error is not None:
            return False  # Another attempt only compares answers; the client may get the error.
        if ticket is None or queue is None:
            return True
        if self.unreached_since >= 0.0:
            return False  # No early 200, because a 503 may follow.
        deadlines = self.deadlines
        is_bounded = self._client.front.draining or deadlines.total_due != NEVER
        if deadlines.waits_since >= 0.0 and is_bounded:
            return False
        return queue.pools.allows_early_status(ticket)

    def comment(self, now: float) -> None:
        """Send a comment to the client of a silent stream, with an early 200 if it is the first."""
        state, deadlines = self.driver.state, self.deadlines
        if state.commit == Commit.CONTENT:
            quiet_until = self.reply.last_at + deadlines.times.commit_after_s
            deadlines.commented(now, quiet_until)
            if quiet_until <= now and not deadlines.is_paused:
                self.reply.gap_comment()
            return
        deadlines.commented(now)
        if state.commit == Commit.NOTHING:
            if not self._may_send_early_status():
                return  # The next check of the deadlines tries again.
            state.committed_status()
            self._name_estimate()
            self.context.metrics.streams_committed_early += 1
        self.reply.comment()

    def stalled(self) -> None:
        self._client.abort(Reason.WRITE_TIMEOUT)

    # -- the client and the clock --------------------------------------------------------------

    def client_gone(self, reason: Reason) -> None:
        """End the request in the callback that reports the client's disconnect.

        The attempts are cancelled at once, so no GPU time is wasted.
        """
        if self.driver.is_over:
            return
        try:
            winner = self.driver.state.winner if self.reply.has_done else None
            is_read = reason is Reason.CLIENT_GONE and not self.deadlines.is_paused
            if winner is not None and winner in self.driver.state.live and is_read:
                # The engine has not ended its response yet, and the client did not wait for it. If
                # the client stayed idle before it left, the time is not that of the answer.
                now = monotonic()
                if now - self.reply.last_at > _LEAVES_WITHIN_S:
                    winner.is_timed = False
                self._end_whole(winner, self.reply.status, now)
                return
            self.estimate_work(monotonic())
        except Exception as err:
            self.context.log_defect(err)
        self._abandon(reason)

    def _abandon(self, reason: Reason) -> None:
        """End the request without sending anything else to the client."""
        try:
            self.driver.cancel(reason)
        except Exception as err:
            self.context.log_defect(err)
        self._finish(reason, monotonic())

    def client_paused(self) -> None:
        try:
            self._pause()
        except Exception as err:
            self.crashed(err)

    def client_resumed(self) -> None:
        try:
            self._resume()
        except Exception as err:
            self.crashed(err)

    def _pause(self) -> None:
        now = monotonic()
        self.work.stops(now)
        self.deadlines.paused(now, self.rules.write_stall_s)
        for attempt in self.driver.state.live:
            conn = io_of(attempt).conn
            if conn is not None:
                conn.pause(PAUSE_CLIENT)

    def _resume(self) -> None:
        now = monotonic()
        reply, replica = self.reply, self.work.replica
        if self.deadlines.is_relayed:
            reply.last_at = now  # The silence before was the client's.
        self.deadlines.resumed(now)
        is_relayed = reply.is_counted and not self.work.broke_at
        if replica is not None and is_relayed and not self.work.is_flowing:
            self.work.flows(replica.cadence, now)
        for attempt in self.driver.state.live:
            conn = io_of(attempt).conn
            if conn is not None:
                conn.resume(PAUSE_CLIENT)

    # -- the end -------------------------------------------------------------------------------

    def shut(self) -> None:
        """End the request because the router stops.

        The client gets an error response, an error event or a visible truncation, depending on what
        was sent before.
        """
        reason = Reason.DRAINING
        try:
            self._break_off(RouterError(reason, MESSAGES[reason], retry_after_s=1))
        except Exception as err:
            self.crashed(err)

    def crashed(self, err: Exception) -> None:
        """End the request after an unexpected exception, in the same way as `shut`.

        The failing code may fail again, so each further attempt to end the request runs less code.
        """
        self.context.log_defect(err)
        if self.driver.is_over:
            return
        reason = Reason.INTERNAL
        client = self._client
        try:
            if not client.closing:
                self._break_off(RouterError(reason, MESSAGES[reason]))
        except Exception as again:
            self.context.log_defect(again)
        if not self.driver.is_over:
            self._abandon(reason)
            client.abort(reason)

    def refuse(self, err: RouterError) -> None:
        """End the request because its key may not use the fleet any more."""
        try:
            self._break_off(err)
        except Exception as again:
            self.crashed(again)

    def revoke(self, err: RouterError) -> None:
        """Refuse the request because its key was removed, unless it was sent to a replica.

        A request that was sent before is served to its end, but it is not sent again.
        """
        if self.driver.state.commit == Commit.CONTENT or self._is_sent():
            self.release_body()
        else:
            self.refuse(err)

    def _is_sent(self) -> bool:
        return any(io_of(attempt).conn is not None for attempt in self.driver.state.live)

    def _break_off(self, err: RouterError) -> None:
        if self.reply.is_complete:  # The exception came after the whole response was written.
            self.driver.cancel(err.reason)
            self._finish(err.reason, monotonic(), is_whole=True)
            self._client.done(False, monotonic())
        # Before the status is sent, the client has received no byte of the winning attempt.
        elif (
            self.driver.state.commit == Commit.CONTENT
            and self.reply.status
            and not self.driver.is_over
        ):
            self.driver.cancel(err.reason)
            self.truncate(err.reason, err)
        else:
            self.answer(err)

    def end(self, now: float) -> None:
        """End a request that the router itself has answered successfully."""
        self._finish(Reason.OK, now)

    def _finish(self, reason: Reason, now: float, *, is_whole: bool = False) -> None:
        if self.driver.is_over:
            return
        self.driver.is_over = True
        self.body = None
        question, self.question = self.question, None
        if question is not None:
            question.cancel()
        self._client.exchange = None
        reply = self.reply
        # An exception in one step must not prevent the later steps.
        try:
            self._count_tokens(is_whole or reply.has_done)
        except Exception as err:
            self.context.log_defect(err)
        try:
            end_request(
                self.driver, reason, reply.status, reply.bytes_out, reply.content_events, now
            )
        except Exception as err:
            self.context.log_defect(err)
        self._owner.finished(self, self._client, reason, now)
        self.deadlines.end()

    def estimate_work(self, now: float) -> None:
        # A request costs nothing if no engine received it or if the engine refused it.
        if self.work.replica is not None or not self.route.inference:
            return
        for attempt in self.driver.state.live:
            conn = io_of(attempt).conn
            if conn is None:
                continue  # This attempt was not sent to an engine.
            head = conn.reader.head
            if head is not None and head.status != 200:
                continue  # The engine of this attempt refused the request, so it used no tokens.
            if self.route.light:
                self.work.usage = Usage(0, 0, None, False)  # `usage.charges` apply.
                return
            asked = self.asked
            prompt, most = asked.prompt_tokens(self.view.prompt_tokens), most_generated(asked)
            self.work.usage = usage_before_content(attempt, prompt, most, now)
            return

    def _count_tokens(self, is_whole: bool) -> None:
        work, reply = self.work, self.reply
        if self.route.inference and not self.route.light:
            ratio = self.context.fleet.knowledge.ratio
            work.usage = usage_at_end(work, reply, self.asked, self.view, ratio, is_whole=is_whole)
            if not work.usage.exact:
                learn_stream(work, reply, self.asked, self.view, ratio)
            work.timely = reply.timely(is_whole)
        if reply.stream is not None:
            reply.stream.close()
