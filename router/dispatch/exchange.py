"""One request in the proxy, from the complete request to the end of its response.

The request's `RequestDriver` owns the attempts and decides about them; an `AttemptIO` sends each of
them. The exchange relays the response of one attempt to the client. If no response can be relayed,
the exchange sends an error or truncates the response. In any callback the client may leave, the
replica may fail, or the configuration may change. Every request ends in `finish`, which takes
effect once.

Each resource is released by its owner:

- `AttemptState` releases the lease of an attempt when the attempt ends,
- `RequestDriver` (`cancel`, `close`) ends the remaining attempts, and releases the place in the
  retry budget,
- `QueueDriver.over` releases the queue ticket,
- `Dispatcher.finished` releases the tenant's limits, the holds of addons, and the place in the
  sweep,
- `finish` drops the body and the question for token ids; `HeldBytes` counts the body's bytes.

The exchange decides what is sent to the client and when; its `Reply` writes the bytes. What follows
the first content is in `relaying.py`; `ending.py` ends requests from outside.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from mypy_extensions import trait

from policies.facts import RequestView
from policies.queueing.ticket import Ticket
from router.core.clock import monotonic
from router.core.errors import Reason, RouterError
from router.core.urgency import Urgency
from router.dispatch.attempts.attempt_io import AttemptIO, AttemptOwner, error_of, io_of
from router.dispatch.attempts.token_ids import Question
from router.dispatch.client_request import ClientRequest
from router.dispatch.context import Context
from router.dispatch.driver.attempt_state import Attempt, Commit
from router.dispatch.driver.deadlines import Deadlines
from router.dispatch.driver.placing import answer
from router.dispatch.driver.request_driver import RequestDriver
from router.dispatch.driver.request_end import end_request
from router.dispatch.driver.retries import failed
from router.dispatch.driver.watch import check
from router.dispatch.messages import MESSAGES
from router.dispatch.relaying import (
    begin_reply,
    facts_of,
    learn_response,
    name_estimate,
    pause,
    resume,
    shown,
    watch,
)
from router.dispatch.reply import Reply
from router.dispatch.restored_name import RestoredName
from router.dispatch.resumption import Rest
from router.dispatch.tenants import models_of
from router.dispatch.usage.token_counts import Usage
from router.dispatch.usage.usage_estimate import (
    learn_stream,
    most_generated,
    usage_at_end,
    usage_before_content,
)
from router.fleet.names import Target
from router.fleet.prefix.response_affinity import response_id
from router.fleet.replica import Replica
from router.fleet.suspects import digest_of
from router.intake.keys import Key
from router.intake.routes import STORED_PREFIX, has_judged_body
from router.wire.client import ClientConnection, ClientExchange
from router.wire.http1.error_shapes import ErrorFacts, of_router
from router.wire.http1.heads import ResponseHead
from router.wire.http1.response_reader import ResponseReader

# A client that leaves within this time after `[DONE]` shows the time of the whole answer.
_LEAVES_WITHIN_S: Final = 0.1


@trait
class ExchangeOwner(ABC):
    """The owner of the requests that have not ended (the dispatcher)."""

    __slots__ = ()

    @abstractmethod
    def reserve(self, exchange: Exchange, key: Key) -> tuple[int, int, int]:
        """See `Request.reserve`."""

    @abstractmethod
    def preferred_region(self, exchange: Exchange, key: Key | None) -> str:
        """See `Request.preferred_region`."""

    @abstractmethod
    def finished(
        self, exchange: Exchange, client: ClientConnection, reason: Reason, now: float
    ) -> None:
        """Forget a request that has ended, and log it. Called once per request."""


class Exchange(AttemptOwner, ClientExchange):
    """A client's request in the proxy, until it ends. Times are monotonic seconds.

    It is a party of the sweep (`wire/sweep.py`), which checks its time limits.
    """

    __slots__ = ("_digest", "_owner", "asked", "client", "context", "driver", "question", "reply")

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
        """`target`: the model that the client's name stands for; `None`: the name means itself."""
        rules, fleet, route = context.rules, context.fleet, asked.route
        times = rules.times_of(urgency.stated)
        deadlines = Deadlines(times, route, arrived, streams=asked.streamed, most=rules.attempts)
        models = fleet.models
        model = models.routed(asked.model) if target is None else models.routed_target(target)
        view = RequestView(route.kind, model, asked.streamed, asked.body_bytes)
        view.choices = asked.choices
        super().__init__(
            fleet, rules, view, urgency, arrived, route, request_id, asked.flow, body, deadlines
        )
        self.named = asked.named
        self.target = target
        self.asked = asked
        self._digest = b""
        self._owner = owner
        self.client = client
        self.question: Question | None = None  # Asks for the token ids that the request waits for.
        self.reply = Reply(client, request_id, target=asked.path, head=asked.head)
        self.context = context
        self.driver = RequestDriver(self, context)

    # -- which replicas it may use ----------------------------------------------------------------

    def preferred_region(self, key: Key | None) -> str:
        return self._owner.preferred_region(self, key)

    def reserve(self, key: Key) -> tuple[int, int, int]:
        return self._owner.reserve(self, key)

    def judges_body(self) -> bool:
        return has_judged_body(self.asked.head.method)

    def owner(self) -> Replica | None:
        """Return the replica that holds the stored response that the request refers to.

        Returns `None` if the request refers to no stored response, or if the replica of that
        response is unknown. Raises RouterError (STATE_LOST) if the replica is unknown and keys are
        required.
        """
        asked = self.asked
        stored = asked.fields.previous_response_id
        if stored is None and asked.path.startswith(STORED_PREFIX):
            stored = asked.path[len(STORED_PREFIX) :].partition(b"/")[0].decode("ascii", "replace")
        if stored is None:
            return None
        party, allowed = asked.flow.party, self.view.allowed
        self.pinned = owner = self.context.fleet.eligibility.owner_of(stored, party, allowed)
        if owner is None and self.rules.requires_keys:
            # The response may have been created before this process started; then its owner is
            # unknown.
            raise RouterError(Reason.STATE_LOST, "there is no such response")
        return owner

    def make_ticket(self, model: str, lane: str | None) -> Ticket:
        self.view.output_limit = self.asked.output_limit
        return super().make_ticket(model, lane)

    def digest(self) -> bytes:
        if not self._digest and self.body:
            self._digest = digest_of(self.asked.path, self.body)
        return self._digest

    # -- the port of the engines ------------------------------------------------------------------

    def attach(self, attempt: Attempt) -> None:
        attempt.io = AttemptIO(self, self.driver, self.asked, attempt)

    def rest(self, attempt: Attempt, reason: Reason) -> Rest | None:
        stream, driver = self.reply.stream, self.driver
        if stream is None:
            return None
        body = b"".join(self.body or ())
        return stream.rest(driver.state, attempt, reason, body, driver.others, driver.take_budget)

    def last_content_at(self) -> float:
        if not self.work.first_at:
            return self.arrived
        return self.work.broke_at or self.reply.last_at

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

    # -- what an attempt reports ------------------------------------------------------------------

    def release_body(self) -> None:
        """Stop keeping the request's body for other attempts.

        The memory of the body is released after all of the body was sent.
        """
        if self.context.fleet.suspects.is_enabled:
            self.digest()  # The attempt that runs may be lost.
        self.body = None
        self.body_sent()

    def body_sent(self) -> None:
        """Release the memory of the client's body, if the body was sent and is not kept."""
        if self.body is None and not self.driver.is_over:
            for attempt in self.driver.state.live:
                conn = io_of(attempt).conn
                if conn is not None and conn.is_sending:
                    return
            self.client.held.release_body()

    def interim(self, heads: list[ResponseHead]) -> None:
        if self.driver.state.commit == Commit.NOTHING:
            self.reply.interim(heads)

    def content(self, attempt: Attempt, reader: ResponseReader, now: float) -> Reply | None:
        io, replica, before = io_of(attempt), attempt.at, self.work.replica
        reply, head = self.reply, reader.head
        assert head is not None
        is_read = head.is_sse and not io.is_encoded  # The events of the stream are read.
        if not self.driver.won(attempt, now, is_read):
            return None
        has_begun = reply.status != 0
        if has_begun and (head.status != 200 or not is_read):
            # The client has a 200 for a stream, and the answer is not a stream. A 200 does not
            # count against the replica: without the early 200 it would be a success.
            reason = error_of(head.status)
            if reason is Reason.OK:
                reason = Reason.BAD_RESPONSE
            self.driver.refused(attempt, reason, now)
            self._send_error_event(facts_of(reader, reason), reason)
            return None
        reply.last_at = now  # From now on, each token changes only this time.
        if self.route.inference and not self.route.light:
            shown(self, self.context, reply, attempt, head, now)
        if self.route.kind == "responses" and head.status == 200 and reader.parts:
            made = response_id(b"".join(reader.parts))
            if made is not None:
                learn_response(self.context, self.asked, made, replica)
        if self.client.paused:
            pause(self.driver, now)
        named = self.asked.named
        if named is not None and named.restores_name and reply.restored_name is None:
            reply.restored_name = RestoredName(named.name)
        if is_read and not watch(self, self.context, reply, io, before, now):
            # The request is not sent again, however its stream ends.
            self.release_body()
            self.asked.forget()
        if not has_begun:
            begin_reply(self, self.asked, reply, reader, replica)
        return reply

    def completed(self, attempt: Attempt, reader: ResponseReader, now: float) -> None:
        head = reader.head
        assert head is not None
        reply = self.reply
        if not reply.is_complete:  # The stream reported a failure, which is withheld.
            self.free_connection(attempt)
            failed(self.driver, attempt, Reason.STREAM_ERROR)
            return
        self._end_whole(attempt, head.status, now)
        client = self.client
        client.done(reply.keep_alive and client.keeps_alive, now)

    # -- the port of the client -------------------------------------------------------------------

    def answer(self, err: RouterError) -> None:
        answer(self.driver, err)

    def fail(self, err: RouterError) -> None:
        """End the request with an error: a response, or an event if a stream has begun."""
        if err.reason is Reason.MODEL_NOT_FOUND:
            models = models_of(self.asked.key)
            served = self.context.fleet.listing.names_text(models, self.view.allowed)
            err = RouterError(err.reason, err.message + served, param=err.param)
        if self.reply.status:
            self._send_error_event(of_router(err), err.reason)
            return
        client, now = self.client, monotonic()
        keep_alive = self.reply.error(err)
        self.finish(err.reason, now)
        client.done(keep_alive, now)

    def _send_error_event(self, facts: ErrorFacts, reason: Reason) -> None:
        """End the request with an error event, because the client has the status of a stream."""
        client, now = self.client, monotonic()
        self.reply.end_with_error(facts)
        self.finish(reason, now)
        client.done(self.reply.keep_alive and client.keeps_alive, now)

    def send_kept_error(self) -> None:
        """Send the client the error answer that was kept first, because all attempts failed."""
        attempt = self.driver.state.kept_error
        assert attempt is not None
        reader, replica = io_of(attempt).kept_response, attempt.at
        assert reader is not None and reader.head is not None
        self.driver.state.kept_error_wins()
        reply, client = self.reply, self.client
        if reply.status:
            self._send_error_event(facts_of(reader, attempt.reason), attempt.reason)
            return
        begin_reply(self, self.asked, reply, reader, replica)
        reply.relay(reader)
        reason = error_of(reader.head.status)
        # If the status of the answer was 200, the error was inside the stream.
        if reason is Reason.OK:
            reason = Reason.STREAM_ERROR
        now = monotonic()
        self.finish(reason, now, is_whole=True)
        client.done(reply.keep_alive and client.keeps_alive, now)

    def truncate(self, reason: Reason, err: RouterError | None = None) -> None:
        client, reply, now = self.client, self.reply, monotonic()
        if reply.send_withheld_error():
            self.finish(reason, now, is_whole=True)
            client.done(reply.keep_alive and client.keeps_alive, now)
            return
        may_close = reply.truncate(err or RouterError(reason, MESSAGES[reason]))
        self.finish(reason, now)
        if may_close:
            client.done(False, now)
        else:
            client.exchange = None
            client.abort(reason)

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
            if not self.driver.may_commit_early(self.client.front.draining):
                return  # The next comment that is due tries again.
            state.committed_status()
            name_estimate(self, self.asked, self.reply)
            self.context.metrics.streams_committed_early += 1
        self.reply.comment()

    def stalled(self) -> None:
        self.client.abort(Reason.WRITE_TIMEOUT)

    # -- the sweep --------------------------------------------------------------------------------

    @property
    def deadline(self) -> float:
        """The time at which the sweep calls `on_deadline`."""
        return self.deadlines.next_check

    def on_deadline(self, now: float) -> None:
        try:
            check(self.driver, now)
        except Exception as err:
            self.crashed(err)

    # -- what the client's connection reports -----------------------------------------------------

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

    def client_paused(self) -> None:
        try:
            pause(self.driver, monotonic())
        except Exception as err:
            self.crashed(err)

    def client_resumed(self) -> None:
        try:
            resume(self.driver, self.reply, monotonic())
        except Exception as err:
            self.crashed(err)

    # -- the end ----------------------------------------------------------------------------------

    def crashed(self, err: Exception) -> None:
        """End the request after an unexpected exception, in the same way as `shut`.

        The failing code may fail again, so each further attempt to end the request runs less code.
        """
        self.context.log_defect(err)
        if self.driver.is_over:
            return
        reason = Reason.INTERNAL
        client = self.client
        try:
            if not client.closing:
                self.break_off(RouterError(reason, MESSAGES[reason]))
        except Exception as again:
            self.context.log_defect(again)
        if not self.driver.is_over:
            self._abandon(reason)
            client.abort(reason)

    def break_off(self, err: RouterError) -> None:
        """Like `refuse`, but may raise."""
        if self.reply.is_complete:  # The exception came after the whole response was written.
            self.driver.cancel(err.reason)
            self.finish(err.reason, monotonic(), is_whole=True)
            self.client.done(False, monotonic())
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

    def _abandon(self, reason: Reason) -> None:
        """End the request without sending anything else to the client."""
        try:
            self.driver.cancel(reason)
        except Exception as err:
            self.context.log_defect(err)
        self.finish(reason, monotonic())

    def _end_whole(self, attempt: Attempt, status: int, now: float) -> None:
        """End the request, whose client was sent all of the attempt's answer."""
        blames_replica = False
        reason = error_of(status)
        if self.reply.has_failed:
            reason = Reason.STREAM_ERROR
            blames_replica = self.reply.blames_replica
        self.driver.completed(attempt, reason, now, blames_replica=blames_replica)
        self.finish(reason, now, is_whole=True)

    def finish(self, reason: Reason, now: float, *, is_whole: bool = False) -> None:
        if self.driver.is_over:
            return
        self.driver.is_over = True
        self.body = None
        question, self.question = self.question, None
        if question is not None:
            question.cancel()
        self.client.exchange = None
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
        self._owner.finished(self, self.client, reason, now)

    def _count_tokens(self, is_whole: bool) -> None:
        """Set the token counts of a request that has ended. `is_whole`: its answer is complete."""
        work, reply = self.work, self.reply
        if self.route.inference and not self.route.light:
            ratio = self.context.fleet.knowledge.ratio
            work.usage = usage_at_end(work, reply, self.asked, self.view, ratio, is_whole=is_whole)
            if not work.usage.exact:
                learn_stream(work, reply, self.asked, self.view, ratio)
            work.timely = reply.timely(is_whole)
        if reply.stream is not None:
            reply.stream.close()
