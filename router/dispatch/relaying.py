"""Relays an attempt's answer to the client of its request: what is sent, learned and counted when
the first content or an error comes, and when the answer is complete.

`Exchange` calls these functions. Each further read of a stream goes from `AttemptIO` to the `Reply`
directly.

Must never: begin another attempt.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from router.core.clock import monotonic
from router.core.errors import Reason, RouterError
from router.core.ttft_estimate import header_value
from router.dispatch.attempts.attempt_io import AttemptIO, error_of, io_of
from router.dispatch.driver.attempt_state import Attempt
from router.dispatch.driver.reports import content_shown, refusal_shown
from router.dispatch.messages import MESSAGES
from router.dispatch.response_head import is_text
from router.dispatch.usage.usage_tap import UsageTap
from router.fleet.replica import Replica
from router.intake.routes import may_answer_in_text
from router.observe.events import log_event
from router.wire.http1.error_shapes import of_replica, of_router
from router.wire.http1.heads import ResponseHead
from router.wire.http1.response_reader import ResponseReader
from router.wire.replica import PAUSE_CLIENT
from router.wire.sweep import NEVER

if TYPE_CHECKING:
    from router.dispatch.exchange import Exchange


def end_in_stream(x: Exchange, attempt: Attempt, reader: ResponseReader, now: float) -> None:
    """End the request: the client has a 200 for a stream, and the answer is not a stream.

    A 200 does not count against the replica: without the early 200 it would be a success.
    """
    head = reader.head
    assert head is not None
    reason = error_of(head.status)
    if reason is Reason.OK:
        reason = Reason.BAD_RESPONSE
    refusal_shown(x, x.context, attempt, now)
    x.driver.completed(attempt, reason, now)
    send_error_event(x, reader, reason)


def watch(x: Exchange, io: AttemptIO, before: Replica | None, now: float) -> None:
    """Relay an attempt's event stream to the client.

    `before`: the replica whose broken stream this attempt resumes; `None` if this attempt is
    the first one.
    """
    reply, resumption = x.reply, x.rules.resumption
    stream = reply.stream
    replica = io.attempt.at
    tap = UsageTap(
        takes_out=io.asks_for_usage,
        mark=replica.descriptor.counts_mark,
        quiet=io.quiet_events,
        meter=replica.learned.cadence,
    )
    if not x.deadlines.is_paused:
        # The following events are not counted as tokens: the first content, the events before
        # it, and the end.
        x.work.flows(replica.learned.cadence, now, io.quiet_events + 2)
    if stream is not None and before is not None:
        x.context.chooser.finished(x.view, before, stream.resumes(tap), now)
    elif resumption is not None and x.body is not None:
        stream = resumption.opens(x.route.kind, replica.descriptor, tap)
    if stream is None:
        # The request is not sent again, however its stream ends.
        x.release_body()
        x.asked.forget()
    view = x.view
    reply.watch(tap, view.arrived + view.ttft_slo_s, view.tpot_slo_s, stream)


def name_estimate(x: Exchange) -> None:
    """Put the estimated time to first token into the response's head, if the client asks."""
    estimate = x.estimate
    if x.asked.head.routing.wants_estimate and estimate is not None and estimate.is_given:
        x.reply.estimate = header_value(estimate, x.arrived)


def begin_reply(x: Exchange, reader: ResponseReader, replica: Replica) -> None:
    head = reader.head
    assert head is not None
    shown = replica.id if x.rules.debug_headers else None
    counts = x.route.inference and 200 <= head.status < 300
    name_estimate(x)
    region = replica.region if x.asked.head.routing.wants_region else ""
    x.reply.begin(reader, shown, region, counts_tokens=counts)
    if counts and not x.route.is_known:
        x.reply.is_text = is_text(head) and may_answer_in_text(x.asked.path)


def shown(x: Exchange, attempt: Attempt, head: ResponseHead, now: float) -> None:
    """Learn from the first content: which prefix the replica holds, and the time to first
    token."""
    if head.status != 200 or attempt.error_status:
        refusal_shown(x, x.context, attempt, now)
        return
    replica = attempt.at
    if head.load is not None:
        x.context.fleet.polls.load_reported(replica, head.load)
    ttft_s = None
    if head.is_sse or (x.view.stream and not head.is_json):
        ttft_s = now - attempt.began
    x.reply.progress = replica.progress
    content_shown(x, x.context, attempt, ttft_s, now)


def end_whole(x: Exchange, attempt: Attempt, status: int, now: float) -> None:
    """End the request, whose client was sent all of the attempt's answer."""
    blames_replica = False
    reason = error_of(status)
    if x.reply.has_failed:
        reason = Reason.STREAM_ERROR
        blames_replica = x.reply.blames_replica
    x.driver.completed(attempt, reason, now, blames_replica=blames_replica)
    x.finish(reason, now, is_whole=True)


def send_error_event(x: Exchange, reader: ResponseReader, reason: Reason) -> None:
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
    x.reply.end_with_error(facts)
    client, now = x.client, monotonic()
    x.finish(reason, now)
    client.done(x.reply.keep_alive and client.keeps_alive, now)


def may_send_early_status(x: Exchange) -> bool:
    """Whether an early 200 may be sent, because the request will not be refused any more."""
    ticket, queue = x.ticket, x.context.queue
    if x.driver.state.kept_error is not None:
        return False  # Another attempt only compares answers; the client may get the error.
    if ticket is None or queue is None:
        return True
    if x.unreached_since >= 0.0:
        return False  # No early 200, because a 503 may follow.
    deadlines = x.deadlines
    is_bounded = x.client.front.draining or deadlines.total_due != NEVER
    if deadlines.waits_since >= 0.0 and is_bounded:
        return False
    return queue.pools.allows_early_status(ticket)


def learn_response(x: Exchange, made: str, replica: Replica) -> None:
    """Record which replica holds a stored response.

    If this request created the response, the response's owner is recorded, too.
    """
    affinity = x.context.fleet.response_affinity
    if not x.route.inference:
        affinity.shown(made, replica.id)
    elif not affinity.learn(made, replica.id, x.asked.flow.party):
        log_event(
            logging.WARNING,
            "a response has the id of another party's stored response",
            key=f"response {replica.id}",
            replica=replica.id,
            tenant=x.asked.flow.account,
        )


# -- a client that does not read ------------------------------------------------------------------


def pause(x: Exchange, now: float) -> None:
    """Stop reading from the replicas, because the client does not read."""
    x.work.stops(now)
    x.deadlines.paused(now, x.rules.write_stall_s)
    for attempt in x.driver.state.live:
        conn = io_of(attempt).conn
        if conn is not None:
            conn.pause(PAUSE_CLIENT)


def resume(x: Exchange, now: float) -> None:
    """Read from the replicas again, because the client reads again."""
    reply, replica = x.reply, x.work.replica
    if x.deadlines.is_relayed:
        reply.last_at = now  # The silence before was the client's.
    x.deadlines.resumed(now)
    is_relayed = reply.is_counted and not x.work.broke_at
    if replica is not None and is_relayed and not x.work.is_flowing:
        x.work.flows(replica.learned.cadence, now)
    for attempt in x.driver.state.live:
        conn = io_of(attempt).conn
        if conn is not None:
            conn.resume(PAUSE_CLIENT)
