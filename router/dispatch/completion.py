"""Records a request that has ended: counts its tenant's tokens, and writes the access log.

`Completion` is called once per request, whatever ended the request. `request_end.end_request` was
called before.

Must never: raise, do I/O, or keep the request.
"""

from __future__ import annotations

from typing import Final

from router.core.clock import monotonic, time
from router.core.errors import Reason, RouterError
from router.core.urgency import BATCH
from router.dispatch.accounts import Accounts
from router.dispatch.driver.request_end import class_of, status_of
from router.dispatch.exchange import Exchange
from router.dispatch.usage.token_counts import UNKNOWN
from router.fleet.utilisation import slots_of
from router.intake.flow import Flow
from router.observe.log.access_log import AccessLog, milliseconds
from router.observe.log.record import AttemptRecord, Record
from router.observe.metrics import Metrics
from router.observe.tenant_usage import NO_KEY
from router.wire.client import ClientConnection
from router.wire.http1.heads import RequestHead
from router.wire.sweep import NEVER
from router.wire.tunnel import Tunnel

# Compiled code calls a `Final` without a search for its name.
_record: Final = Record
# The log encoder takes much longer for an enum member than for a string.
_WORDS: Final[dict[Reason, str]] = {reason: str(reason.value) for reason in Reason}
# The values of the `x-hedge` header that are logged.
_HEDGE: Final[dict[bytes, str]] = {b"on": "on", b"off": "off"}


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
        if not log.enabled:
            return
        salter = log.salter
        asked, reply, work, state = x.asked, x.reply, x.work, x.driver.state
        head, view, usage = asked.head, x.view, work.usage
        arrived, winner, urgency = x.arrived, state.winner, x.urgency
        tried: list[AttemptRecord] = [
            (a.replica_id, a.kind, _WORDS[a.reason], milliseconds(a.ended - a.began))
            for a in state.attempts
        ]
        session = view.session
        flow = asked.flow
        waited_s = x.waited_s(now)
        most = asked.output_limit
        hedge = head.routing.hedge
        replica = work.replica
        slots = None if replica is None else slots_of(replica)
        ttft_slo_s, tpot_slo_s = head.routing.ttft_slo_s, head.routing.tpot_slo_s
        estimate, before_s = x.estimate, 0.0
        if estimate is not None:
            if estimate.is_given:
                before_s = estimate.made_at - arrived
            else:
                estimate = None
        served_in = winner.at.region if winner is not None else ""
        preferred = x.context.fleet.nearest.preferred(view)
        key = asked.key
        if key is not None and urgency.rank != BATCH:
            ttft_slo_s = ttft_slo_s or key.ttft_slo_s
            tpot_slo_s = tpot_slo_s or key.tpot_slo_s
        log.write(
            _record(
                wall - (now - arrived),
                x.request_id.decode("ascii"),
                peer,
                head.method.decode("ascii"),
                asked.path.decode("utf-8", "replace"),
                x.route.kind,
                asked.model,
                view.stream,
                status_of(reply.status, reason),
                _WORDS[reason],
                winner.replica_id if winner is not None else "",
                tried,
                None if work.replica is None else milliseconds(work.first_at - arrived),
                milliseconds(now - arrived),
                asked.body_bytes,
                reply.bytes_out,
                urgency.stated,
                flow.tenant,
                "" if session is None else salter.name(session.encode("utf-8", "replace")),
                usage.prompt_tokens,
                usage.output_tokens,
                usage.cached_tokens,
                usage.exact,
                view.prompt_tokens,
                salter.blocks(view.blocks) if view.blocks else b"",
                milliseconds(waited_s) if waited_s else None,
                flow.within,
                flow.user,
                flow.is_known,
                "" if asked.name is x.request_id else asked.name.decode("ascii"),
                milliseconds(work.first_at - winner.began)
                if winner is not None
                and (waited_s or len(tried) > 1)
                and work.first_at >= winner.began
                else None,
                winner.sent_priority.decode("ascii") if winner is not None else "",
                None if urgency.unstepped == float(urgency.rank) else urgency.unstepped,
                None if x.wanted_until == NEVER else milliseconds(x.wanted_until - arrived),
                most if most >= 0 else None,
                "" if hedge is None else _HEDGE.get(hedge, ""),
                None if slots is None else int(slots + 0.5),
                None if replica is None else replica.kv_tokens,
                milliseconds(ttft_slo_s) if ttft_slo_s else None,
                milliseconds(tpot_slo_s) if tpot_slo_s else None,
                int(work.tokens_on_time + 0.5) if work.tokens_on_time < work.tokens_due else None,
                None if estimate is None else milliseconds(before_s + estimate.estimate_s),
                None if estimate is None else milliseconds(before_s + estimate.low_s),
                None if estimate is None else milliseconds(before_s + estimate.high_s),
                served_in,
                "" if preferred == served_in else preferred,
                winner.at.type if winner is not None else "",
                "" if x.target is None or x.target.model == asked.model else x.target.model,
            )
        )

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
            path = head.target.partition(b"?")[0].decode("utf-8", "replace")
            if head.route is not None:
                kind = head.route[0].kind
        self.metrics.finished(kind, err.reason, err.status, 0.0, None, 0, 0)
        if self.log.enabled:
            self.log.write(
                Record(
                    time(),
                    request_id,
                    client.peer,
                    method,
                    path,
                    kind,
                    None,
                    False,
                    err.status,
                    _WORDS[err.reason],
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
                    path.decode("utf-8", "replace"),
                    route.kind,
                    status=status,
                    reason=_WORDS[reason],
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
