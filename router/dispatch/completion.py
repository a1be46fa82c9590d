"""Records a request that has ended: counts its tenant's tokens, and writes the access log.

`Completion` is called once per request, whatever ended the request. `request_end.end_request` was
called before.

Must never: raise, do I/O, or keep the request.
"""

from __future__ import annotations

from typing import Any, Final

from router.core.clock import monotonic, time
from router.core.errors import Reason, RouterError
from router.core.urgency import BATCH
from router.dispatch.accounts import Accounts
from router.dispatch.driver.request_end import class_of, status_of
from router.dispatch.exchange import Exchange
from router.dispatch.usage.token_counts import UNKNOWN
from router.fleet.utilisation import slots_of
from router.intake.flow import Flow
from router.observe.log.access_log import TEXT_CHARS_MAX, AccessLog, milliseconds
from router.observe.log.record import AttemptRecord, Line, Record
from router.observe.log.salt import Salter
from router.observe.metrics import Metrics
from router.observe.tenant_usage import NO_KEY
from router.wire.client import ClientConnection
from router.wire.http1.heads import RequestHead
from router.wire.sweep import NEVER
from router.wire.tunnel import Tunnel

# Compiled code calls a `Final` without a search for its name.
_line: Final[Any] = Line
_record: Final[Any] = Record
_MOST: Final = TEXT_CHARS_MAX
# The log encoder takes much longer for an enum member than for a string.
_WORDS: Final[dict[Reason, str]] = {reason: str(reason.value) for reason in Reason}
_OK: Final = Reason.OK
# The values of the `x-hedge` header that are logged.
_HEDGE: Final[dict[bytes, str]] = {b"on": "on", b"off": "off"}


def _word(reason: Reason) -> str:
    # Most requests and attempts end well; a search in a dictionary takes 130 instructions.
    return "ok" if reason is _OK else _WORDS[reason]


class Completion:
    """Records the end of every request of one router."""

    def __init__(self, metrics: Metrics, log: AccessLog) -> None:
        self.metrics = metrics
        self.log = log
        self.accounts: Accounts | None = None  # `None`: the addon usage is not needed.

    def close(self, x: Exchange, peer: str, reason: Reason, charge: int, now: float) -> None:
        """Record a request that `end_request` has counted.

        `peer`: the client's address. `charge`: the tokens that the request costs at least.
        """
        wall = time()
        if x.route.inference:
            self._count_usage(x, reason, charge, wall, now)
        log = self.log
        if log.enabled:
            line = _of_request(x, peer, reason, log.salter, wall, now)
            more: dict[str, object] = {}
            _add_flow(more, x)
            _add_stated(more, x)
            _add_run(more, x)
            log.write(_record(*line, **more) if more else _line(*line))

    def refused(
        self, client: ClientConnection, head: RequestHead | None, request_id: str, err: RouterError
    ) -> None:
        """Record a request that was rejected before an `Exchange` was created for it.

        `head`: `None` if the head could not be read.
        """
        kind = "other"
        method = path = ""
        if head is not None:
            method = head.method.decode("ascii", "replace")
            path = _text(head.target.partition(b"?")[0])
            if head.route is not None:
                kind = head.route[0].kind
        self.metrics.finished(kind, err.reason, err.status, 0.0, None, 0, 0)
        if self.log.enabled:
            self.log.write(
                Line(
                    time(),
                    request_id,
                    client.peer,
                    method,
                    path,
                    kind,
                    None,
                    False,
                    err.status,
                    _word(err.reason),
                )
            )

    def passed(self, tunnel: Tunnel, flow: Flow, reason: Reason) -> None:
        """Record a request that went through a tunnel to the batch server."""
        took_s = monotonic() - tunnel.arrived
        head = tunnel.head
        route, path = head.route
        status = tunnel.status or reason.status
        sizes = tunnel.bytes_in, tunnel.bytes_out
        self.metrics.finished(route.kind, reason, status, took_s, None, *sizes)
        log = self.log
        if log.enabled:
            log.write(
                Record(
                    time() - took_s,
                    tunnel.request_id.decode("ascii"),
                    tunnel.client.peer,
                    head.method.decode("ascii"),
                    _text(path),
                    route.kind,
                    status=status,
                    reason=_word(reason),
                    duration_ms=milliseconds(took_s),
                    bytes_in=sizes[0],
                    bytes_out=sizes[1],
                    tenant=flow.tenant,
                    within=flow.within,
                    known_key=flow.is_known,
                )
            )

    def _count_usage(
        self, x: Exchange, reason: Reason, charge: int, wall: float, now: float
    ) -> None:
        """Count the tokens that the tenant has used: the engine's counts, or an estimate."""
        work, key = x.work, x.asked.key
        usage = work.usage
        prompt = output = cached = 0
        # The tokens of the received part of a broken answer count. A refused request has no counts.
        has_used = usage is not UNKNOWN or (work.replica is not None and reason is Reason.OK)
        if has_used:
            reported = usage.prompt_tokens
            measured = x.view.prompt_tokens
            prompt = x.asked.prompt_tokens(measured) if reported is None else reported
            output = usage.output_tokens or 0
            cached = usage.cached_tokens or 0
        if x.route.light:
            prompt = charge
        elif charge:
            prompt = max(prompt, charge - output)
        is_estimate = has_used and not usage.exact
        cost = self.metrics.usage.count(
            NO_KEY if key is None else key.name,
            class_of(x),
            x.priced_model(),
            prompt,
            cached,
            output,
            is_estimate,
        )
        accounts = self.accounts
        if accounts is not None:
            accounts.record(x, prompt, cached, output, is_estimate, cost, wall, now)


# The functions below return the fields of one line of the access log. Most requests have none of
# those that the functions `_add_…` set, so such a field costs only its check.


def _of_request(
    x: Exchange, peer: str, reason: Reason, salter: Salter, wall: float, now: float
) -> tuple[object, ...]:
    """Return the fields that most requests have, in the order of `Line`."""
    asked, reply, work, state, view = x.asked, x.reply, x.work, x.driver.state, x.view
    head, usage, winner = asked.head, work.usage, state.winner
    arrived, session, replica = x.arrived, view.session, work.replica
    waited_s = x.deadlines.waited_s(now)
    is_simple = not waited_s and len(state.attempts) == 1
    engine_ms: float | None = None
    if winner is not None and not is_simple and work.first_at >= winner.began:
        engine_ms = milliseconds(work.first_at - winner.began)
    slots = None if replica is None else slots_of(replica)
    tried: list[AttemptRecord] = [
        (a.replica_id, a.kind, _word(a.reason), milliseconds(a.ended - a.began))
        for a in state.attempts
    ]
    most = asked.output_limit
    return (
        wall - (now - arrived),
        x.request_id.decode("ascii"),
        peer,
        head.method.decode("ascii"),
        _text(asked.path),
        x.route.kind,
        asked.model,
        view.stream,
        status_of(reply.status, reason),
        _word(reason),
        winner.replica_id if winner is not None else "",
        tried,
        None if replica is None else milliseconds(work.first_at - arrived),
        milliseconds(now - arrived),
        asked.body_bytes,
        reply.bytes_out,
        x.urgency.stated,
        asked.flow.tenant,
        "" if session is None else salter.name(session.encode("utf-8", "replace")),
        usage.prompt_tokens,
        usage.output_tokens,
        usage.cached_tokens,
        usage.exact,
        view.prompt_tokens,
        salter.blocks(view.blocks) if view.blocks else b"",
        asked.flow.within,
        most if most >= 0 else None,
        milliseconds(waited_s) if waited_s else None,
        engine_ms,
        None if slots is None else int(slots + 0.5),
        None if replica is None else replica.kv_tokens,
    )


def _text(path: bytes) -> str:
    """Return a path without the characters that are too many for a line."""
    try:
        text = path.decode("ascii")  # A third of the instructions that UTF-8 and "replace" take.
    except UnicodeDecodeError:
        text = path.decode("utf-8", "replace")
    return text if len(text) <= _MOST else text[:_MOST]


def _add_flow(more: dict[str, object], x: Exchange) -> None:
    """Set whose share of the queue the request used, and its names at the replicas."""
    asked, target = x.asked, x.target
    flow = asked.flow
    if flow.user:
        more["user"] = flow.user
    if flow.is_known:
        more["known_key"] = True
    if asked.name is not x.request_id:
        more["sent_as"] = asked.name.decode("ascii")
    if target is not None and target.model != asked.model:
        more["served_model"] = target.model


def _add_stated(more: dict[str, object], x: Exchange) -> None:
    """Set what the client stated, or its key for it."""
    asked, urgency = x.asked, x.urgency
    routing, key = asked.head.routing, asked.key
    if urgency.unstepped != float(urgency.rank):
        more["number"] = urgency.unstepped
    if x.deadlines.client_deadline != NEVER:
        more["deadline_ms"] = milliseconds(x.deadlines.client_deadline - x.arrived)
    if routing.hedge is not None:
        more["hedge"] = _HEDGE.get(routing.hedge, "")
    ttft_slo_s, tpot_slo_s = routing.ttft_slo_s, routing.tpot_slo_s
    if key is not None and urgency.rank != BATCH:
        ttft_slo_s = ttft_slo_s or key.ttft_slo_s
        tpot_slo_s = tpot_slo_s or key.tpot_slo_s
    if ttft_slo_s:
        more["ttft_slo_ms"] = milliseconds(ttft_slo_s)
    if tpot_slo_s:
        more["tpot_slo_ms"] = milliseconds(tpot_slo_s)


def _add_run(more: dict[str, object], x: Exchange) -> None:
    """Set how the request ran: the replica that answered, and the estimated TTFT."""
    work, winner, estimate = x.work, x.driver.state.winner, x.estimate
    served_in = ""
    if winner is not None:
        if winner.sent_priority:
            more["engine_priority"] = winner.sent_priority.decode("ascii")
        served_in = winner.at.region
        if served_in:
            more["region"] = served_in
        if winner.at.type:
            more["replica_type"] = winner.at.type
    if work.tokens_on_time < work.tokens_due:
        more["tokens_on_time"] = int(work.tokens_on_time + 0.5)
    if estimate is not None and estimate.is_given:
        before_s = estimate.made_at - x.arrived
        more["ttft_estimate_ms"] = milliseconds(before_s + estimate.estimate_s)
        more["ttft_low_ms"] = milliseconds(before_s + estimate.low_s)
        more["ttft_high_ms"] = milliseconds(before_s + estimate.high_s)
    preferred = x.context.fleet.nearest.preferred(x.view)
    if preferred != served_in:
        more["client_region"] = preferred
