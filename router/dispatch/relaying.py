"""What is sent, learned and counted when an attempt's answer is relayed to the client.

`Exchange` calls these functions at the first content, at errors, and when the client stops reading.
Each further read of a stream goes from `AttemptIO` to the `Reply` directly.

Must never: begin another attempt, or end the request.
"""

from __future__ import annotations

import logging

from router.core.errors import Reason, RouterError
from router.core.ttft_estimate import header_value
from router.dispatch.attempts.attempt_io import AttemptIO, io_of
from router.dispatch.client_request import ClientRequest
from router.dispatch.context import Context
from router.dispatch.driver.attempt_state import Attempt
from router.dispatch.driver.reports import content_shown, refusal_shown
from router.dispatch.driver.request import Request
from router.dispatch.driver.request_driver import RequestDriver
from router.dispatch.messages import MESSAGES
from router.dispatch.reply import Reply
from router.dispatch.response_head import is_text
from router.dispatch.usage.usage_tap import UsageTap
from router.fleet.replica import Replica
from router.intake.routes import may_answer_in_text
from router.observe.events import log_event
from router.wire.http1.error_shapes import ErrorFacts, of_replica, of_router
from router.wire.http1.heads import ResponseHead
from router.wire.http1.response_reader import ResponseReader
from router.wire.replica import PAUSE_CLIENT

# -- the beginning of the answer ------------------------------------------------------------------


def begin_reply(
    request: Request, asked: ClientRequest, reply: Reply, reader: ResponseReader, replica: Replica
) -> None:
    """Send the client the head of a replica's response."""
    head, route = reader.head, request.route
    assert head is not None
    shown = replica.id if request.rules.debug_headers else None
    counts = route.inference and 200 <= head.status < 300
    name_estimate(request, asked, reply)
    region = replica.region if asked.head.routing.wants_region else ""
    reply.begin(reader, shown, region, counts_tokens=counts)
    if counts and not route.is_known:
        reply.is_text = is_text(head) and may_answer_in_text(asked.path)


def name_estimate(request: Request, asked: ClientRequest, reply: Reply) -> None:
    """Put the estimated time to first token into the response's head, if the client asks."""
    estimate = request.estimate
    if asked.head.routing.wants_estimate and estimate is not None and estimate.is_given:
        reply.estimate = header_value(estimate, request.arrived)


def watch(
    request: Request,
    context: Context,
    reply: Reply,
    io: AttemptIO,
    before: Replica | None,
    now: float,
) -> bool:
    """Count the events of an attempt's stream while they are relayed.

    `before`: the replica whose broken stream this attempt resumes; `None` if this attempt is the
    first one. Returns whether another replica may be asked for the rest, if this stream breaks.
    """
    resumption = request.rules.resumption
    stream = reply.stream
    replica = io.attempt.at
    cadence = replica.learned.cadence
    tap = UsageTap(
        takes_out=io.asks_for_usage,
        mark=replica.descriptor.counts_mark,
        quiet=io.quiet_events,
        meter=cadence,
    )
    if not request.deadlines.is_paused:
        # The following events are not counted as tokens: the first content, the events before it,
        # and the end.
        request.work.flows(cadence, now, io.quiet_events + 2)
    view = request.view
    if stream is not None and before is not None:
        context.chooser.finished(view, before, stream.resumes(tap), now)
    elif resumption is not None and request.body is not None:
        stream = resumption.opens(request.route.kind, replica.descriptor, tap)
    reply.watch(tap, view.arrived + view.ttft_slo_s, view.tpot_slo_s, stream)
    return stream is not None


# -- what the answer shows ------------------------------------------------------------------------


def shown(
    request: Request,
    context: Context,
    reply: Reply,
    attempt: Attempt,
    head: ResponseHead,
    now: float,
) -> None:
    """Learn from the first content: which prefix the replica holds, and the time to first
    token."""
    if head.status != 200 or attempt.error_status:
        refusal_shown(request, context, attempt, now)
        return
    replica = attempt.at
    if head.load is not None:
        context.fleet.polls.load_reported(replica, head.load)
    ttft_s = None
    if head.is_sse or (request.view.stream and not head.is_json):
        ttft_s = now - attempt.began
    reply.progress = replica.progress
    content_shown(request, context, attempt, ttft_s, now)


def learn_response(context: Context, asked: ClientRequest, made: str, replica: Replica) -> None:
    """Record which replica holds a stored response.

    If this request created the response, the response's owner is recorded, too.
    """
    affinity, flow = context.fleet.response_affinity, asked.flow
    if not asked.route.inference:
        affinity.shown(made, replica.id)
    elif not affinity.learn(made, replica.id, flow.party):
        log_event(
            logging.WARNING,
            "a response has the id of another party's stored response",
            key=f"response {replica.id}",
            replica=replica.id,
            tenant=flow.account,
        )


def facts_of(reader: ResponseReader, reason: Reason) -> ErrorFacts:
    """Return an engine's error, or an answer that is not a stream, as the facts of an error event.

    Takes the body out of the reader.
    """
    body = b"".join(reader.parts)
    reader.parts.clear()
    head = reader.head
    assert head is not None
    if head.status >= 400:
        return of_replica(head.status, body)
    if reason is Reason.BAD_RESPONSE:
        return of_router(RouterError(reason, "the replica's answer is not an event stream"))
    return of_router(RouterError(reason, MESSAGES[reason]))


# -- a client that does not read ------------------------------------------------------------------


def pause(driver: RequestDriver, now: float) -> None:
    """Stop reading from the replicas, because the client does not read."""
    request = driver.request
    request.work.stops(now)
    request.deadlines.paused(now, request.rules.write_stall_s)
    for attempt in driver.state.live:
        conn = io_of(attempt).conn
        if conn is not None:
            conn.pause(PAUSE_CLIENT)


def resume(driver: RequestDriver, reply: Reply, now: float) -> None:
    """Read from the replicas again, because the client reads again."""
    request = driver.request
    work, replica = request.work, request.work.replica
    if request.deadlines.is_relayed:
        reply.last_at = now  # The silence before was the client's.
    request.deadlines.resumed(now)
    is_relayed = reply.is_counted and not work.broke_at
    if replica is not None and is_relayed and not work.is_flowing:
        work.flows(replica.learned.cadence, now)
    for attempt in driver.state.live:
        conn = io_of(attempt).conn
        if conn is not None:
            conn.resume(PAUSE_CLIENT)
