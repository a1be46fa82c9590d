"""Handles the end of a request, in the proxy and in the simulator.

The attempts have ended before, and their leases were released. This module stops the request's
timers, takes it out of the queue, counts it in the metrics, and reports its token counts to the
parts that learn from answers. The request's `Work` contains the replica that answered and the token
counts. Afterwards the proxy writes its access log (`completion.py`), and the simulator fills its
`Outcome`.

Must never: raise, do I/O, read a clock, or keep a reference to the request.
"""

from __future__ import annotations

from router.core.errors import Reason
from router.dispatch.context import Context
from router.dispatch.driver.gain import count_gain
from router.dispatch.driver.request import Request
from router.dispatch.driver.request_driver import RequestDriver
from router.dispatch.driver.speed_samples import samples_ended
from router.dispatch.usage.token_counts import UNKNOWN, Usage
from router.fleet.replica import Replica
from router.observe.metrics import UNCLASSED, ModelCounts


def end_request(
    driver: RequestDriver, reason: Reason, sent: int, bytes_out: int, events: int, now: float
) -> None:
    """End a request. Called once per request, whatever ended it, after its last attempt has ended.

    `sent`: the status that was sent to the client, 0 for none. `bytes_out`: bytes of the body.
    `events`: content events, if the answer is a stream whose events were counted; otherwise -1.
    """
    request, context = driver.request, driver.context
    work, route, state = request.work, request.route, driver.state
    work.stops(now)
    driver.close()
    replica = work.replica
    queue = context.queue
    if queue is not None and route.inference and not route.light:
        tokens, output = _cost(work.usage, reason, replica is not None)
        queue.over(request, reason, replica, tokens, output, now)
    metrics, view, arrived = context.metrics, request.view, request.arrived
    status, label = status_of(sent, reason), class_of(request)
    counts = metrics.finished(
        route.kind,
        reason,
        status,
        now - arrived,
        work.first_at - arrived if replica is not None else None,
        view.body_bytes,
        bytes_out,
        # The metrics get the model by which the request was routed, because the client may have
        # invented the name in the body.
        view.model,
        label,
        view.stream and sent == 200,
        context.fleet.nearest.preferred(view),
    )
    tpot_s = _tpot_s(request, events, now)
    count_gain(request, metrics, label, reason, status, tpot_s, now)
    estimate = request.estimate
    if estimate is not None:
        estimate.ended(now)
        if estimate.is_judged:
            metrics.estimated(label, estimate.is_kept, estimate.high_s - estimate.low_s)
    if replica is not None:
        winner = state.winner
        if winner is not None and winner.held_blocks and reason is Reason.OK:
            replica.reports.should_have_hit(winner.began)
        _learn(request, context, replica, label, events, tpot_s, now, counts)
    if request.view.stream:
        usage = work.usage
        samples_ended(state.attempts, reason, usage.output_tokens, usage.exact, now)
    for attempt in state.attempts:
        metrics.attempt(attempt.replica_id, attempt.kind, attempt.reason, attempt.at.removed)


def release_share(
    request: Request, context: Context, charge: int, now: float, is_work: bool = False
) -> None:
    """Release a request's share of its tenant's limits, after its end.

    `charge`: what the tenant pays. `is_work`: an engine has worked for the request, also if it
    reported no tokens. A request that the engine refused costs no tokens, but it counts as a
    request.
    """
    share, usage = request.tenant_share, request.work.usage
    if share is not None:
        share.leave(usage, is_work or usage is not UNKNOWN, charge, now)
        if context.queue is not None:
            context.queue.wake()


def status_of(sent: int, reason: Reason) -> int:
    """Return the status for counters and the log. `sent`: see `end_request`."""
    if reason is Reason.CLIENT_GONE:
        return 499
    return sent or reason.status


def class_of(request: Request) -> str:
    """Return the class label of the request's counters.

    The label is a class name, or UNCLASSED; "" if the request is not inference.
    """
    return request.urgency.stated or UNCLASSED if request.route.inference else ""


def _tpot_s(request: Request, events: int, now: float) -> float:
    """Return the mean seconds per output token after the first of a stream; -1: unknown.

    It is unknown if the client did not read all the time, because its pauses delay the stream.
    """
    usage = request.work.usage
    output = usage.output_tokens
    # If the tokens are only estimated from the bytes of the answer, its speed is unknown.
    if output is None or output < 2 or not request.view.stream:
        return -1.0
    if request.work.replica is None or not (usage.exact or events >= 0):
        return -1.0
    for attempt in request.state.attempts:
        if not attempt.is_timed:
            return -1.0
    return max(0.0, (now - request.work.first_at) / (output - 1))


def _learn(
    request: Request,
    context: Context,
    replica: Replica,
    label: str,
    events: int,
    tpot_s: float,
    now: float,
    counts: ModelCounts | None,
) -> None:
    """Learn from a request's token counts about its model, and about `replica`, which answered.

    `label`: the request's class label. `tpot_s`: the result of `_tpot_s`. `counts`: the counters of
    the model.
    """
    work, view = request.work, request.view
    usage = work.usage
    if usage is not UNKNOWN:
        prompt, output, is_exact = usage.prompt_tokens, usage.output_tokens, usage.exact
        region = context.fleet.nearest.preferred(view)
        context.metrics.counted_tokens(
            view.model,
            region,
            label,
            prompt,
            output,
            usage.cached_tokens,
            replica.id,
            replica.removed,
            counts,
        )
        # A prompt without whole blocks is mostly the chat template.
        if is_exact and view.blocks and not view.media_tokens:
            account = request.flow.account
            context.fleet.knowledge.counted(view.model, view.prompt_bytes, prompt, account)
        if tpot_s >= 0.0 and output is not None:
            context.metrics.paced(label, tpot_s)
            # The pause of a stream that broke would falsify the measured speed of both replicas.
            if request.state.resumptions == 0:
                context.fleet.outcomes.paced(replica, tpot_s)
                if is_exact and events > 0:
                    replica.learned.cadence.learn(output, events)
    context.chooser.finished(view, replica, usage.output_tokens, now)


def _cost(usage: Usage, reason: Reason, is_answered: bool) -> tuple[int, int]:
    """Return the uncached prompt tokens and the output tokens that the queue gets; -1: unknown."""
    if not is_answered and usage is UNKNOWN:
        return -1, 0
    reported = usage.output_tokens
    output = -1 if reported is None and reason is Reason.OK else reported or 0
    if usage.prompt_tokens is None:
        return -1, output
    return max(0, usage.prompt_tokens - (usage.cached_tokens or 0)), output
