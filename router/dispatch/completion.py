"""What a request that is over leaves behind: counters, what its tokens teach, a line in the log.

Called once per request, whatever ended it. Must never: raise, do I/O, or keep the request.
"""

from __future__ import annotations

from time import monotonic, time
from typing import Final

from router.core.errors import STATUS, Reason, RouterError
from router.dispatch.attempts import Life
from router.dispatch.chooser import Chooser
from router.dispatch.client_request import ClientRequest
from router.dispatch.driven_request import DrivenRequest
from router.dispatch.reply import Reply
from router.dispatch.usage import UNKNOWN
from router.dispatch.work import Work
from router.fleet.knowledge import Knowledge
from router.fleet.replica import Replica
from router.intake.flow import Flow
from router.observe.access_log import AccessLog
from router.observe.metrics import UNCLASSED, Metrics
from router.observe.milliseconds import milliseconds
from router.observe.record import AttemptRecord, Record
from router.observe.tenant_usage import NO_KEY
from router.wire.client import ClientConnection
from router.wire.heads import RequestHead
from router.wire.tunnel import Tunnel

# The encoder of the log takes much longer for a member of an enum than for a string.
_WORDS: Final[dict[Reason, str]] = {reason: str(reason.value) for reason in Reason}


class Completion:
    """The end of every request of one router."""

    def __init__(
        self, metrics: Metrics, log: AccessLog, knowledge: Knowledge, chooser: Chooser
    ) -> None:
        self.metrics = metrics
        self.log = log
        self._knowledge = knowledge
        self._chooser = chooser

    def close(
        self,
        request: DrivenRequest,
        asked: ClientRequest,
        life: Life,
        reply: Reply,
        work: Work,
        peer: str,
        reason: Reason,
        now: float,
    ) -> None:
        metrics = self.metrics
        arrived = request.arrived
        ttft = work.first_at - arrived if work.first_at else None
        status = reply.status or STATUS[reason]
        if reason is Reason.CLIENT_GONE:
            status = 499
        kind = request.route.kind
        model = asked.fields.model
        bytes_out = reply.bytes_out
        body_bytes = asked.body_bytes
        urgency = asked.priority or UNCLASSED if request.route.inference else ""
        metrics.finished(
            kind,
            reason,
            status,
            now - arrived,
            ttft,
            body_bytes,
            bytes_out,
            request.view.model,  # not a name that the client may have invented
            urgency,
            request.streamed and reply.status == 200,
        )
        winner = life.winner
        replica = work.replica
        if replica is not None:
            if winner is not None and winner.held and reason is Reason.OK:
                replica.should_have_hit(winner.began)
            self._count_tokens(request, life, reply, work, replica, urgency, now)
        if urgency:
            self._count_usage(request, asked, work, urgency, reason)
        tried: list[AttemptRecord] = []
        for a in life.attempts:
            metrics.attempt(a.replica_id, a.kind, a.reason)
            tried.append((a.replica_id, a.kind, _WORDS[a.reason], milliseconds(a.ended - a.began)))
        log = self.log
        if not log.enabled:
            return
        salter = log.salter
        head, view, usage = asked.head, request.view, work.usage
        session = view.session
        flow = asked.flow
        waited_s = request.waited_s(now)
        log.write(
            Record(
                time() - (now - arrived),
                request.request_id.decode("ascii"),
                peer,
                head.method.decode("ascii"),
                asked.path.decode("utf-8", "replace"),
                kind,
                model,
                request.streamed,
                status,
                _WORDS[reason],
                winner.replica_id if winner is not None else "",
                tried,
                None if ttft is None else milliseconds(ttft),
                milliseconds(now - arrived),
                body_bytes,
                bytes_out,
                asked.priority,
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
                "" if asked.name is request.request_id else asked.name.decode("ascii"),
                milliseconds(work.first_at - winner.began)
                if winner is not None
                and (waited_s or len(tried) > 1)
                and work.first_at >= winner.began
                else None,
                winner.told.decode("ascii") if winner is not None else "",
            )
        )

    def refused(
        self, client: ClientConnection, head: RequestHead | None, request_id: str, err: RouterError
    ) -> None:
        """A request that never became an exchange; `head` is None where not even that was read."""
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
        """A request that passed by through a tunnel."""
        took_s = monotonic() - tunnel.arrived
        head = tunnel.head
        route, path = head.route
        status = tunnel.status or STATUS[reason]
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
        self,
        request: DrivenRequest,
        asked: ClientRequest,
        work: Work,
        urgency: str,
        reason: Reason,
    ) -> None:
        """What its tenant has used: the engine's counts, or what is known where it told none."""
        usage, key = work.usage, asked.key
        prompt = output = cached = 0
        # What broke off is counted as far as it came; of a refusal nobody has told anything.
        has_used = usage is not UNKNOWN or (work.replica is not None and reason is Reason.OK)
        if has_used:
            told = usage.prompt_tokens
            prompt = request.view.prompt_tokens if told is None else told
            output = usage.output_tokens or 0
            cached = usage.cached_tokens or 0
        self.metrics.usage.count(
            NO_KEY if key is None else key.name,
            urgency,
            request.view.model,
            prompt,
            cached,
            output,
            has_used and not usage.exact,
        )

    def _count_tokens(
        self,
        request: DrivenRequest,
        life: Life,
        reply: Reply,
        work: Work,
        replica: Replica,
        urgency: str,
        now: float,
    ) -> None:
        """What an engine told of the tokens of a request, or what was counted of them."""
        usage = work.usage
        view = request.view
        if usage is not UNKNOWN:
            prompt, output, is_exact = usage.prompt_tokens, usage.output_tokens, usage.exact
            self.metrics.counted_tokens(view.model, prompt, output, usage.cached_tokens)
            if is_exact and view.blocks:  # a shorter prompt is mostly chat template
                self._knowledge.counted(view.model, view.prompt_bytes, prompt)
            # An estimate from the bytes of an answer says nothing of its pace.
            is_paced = request.streamed and (is_exact or reply.is_counted)
            if is_paced and output is not None and output > 1:
                tpot_s = (now - work.first_at) / (output - 1)
                self.metrics.paced(urgency, tpot_s)
                if life.continuations == 0:  # of two, the seam is no pace of either
                    replica.paced(tpot_s)
                    events = reply.content_events
                    if is_exact and events > 0:
                        replica.cadence.learn(output, events)
        self._chooser.finished(view, replica, usage.output_tokens)
