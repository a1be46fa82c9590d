"""Handles each complete request: classifies it, checks its tenant, chooses a replica and starts it.

The dispatcher owns the `Context` that requests share. It reads each request's head and body into a
`ClientRequest`. A reload replaces the configuration; a request that has already started keeps the
`Rules` and the header lines it began with. The dispatcher implements the `Handler` interface that
client connections call.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Sequence
from functools import partial
from math import inf
from random import Random
from time import monotonic
from urllib.parse import unquote

from policies.queueing.contract import OrderPolicy
from router.config.keys import KeyLine
from router.config.model import Config
from router.core.errors import Reason, RouterError
from router.core.urgency import BATCH, Urgency
from router.dispatch.attempts.abort import Aborter
from router.dispatch.attempts.body_edit import append
from router.dispatch.attempts.ids import Ids
from router.dispatch.attempts.token_ids import TokenIds
from router.dispatch.attempts.upstream_head import common_lines
from router.dispatch.chooser import Chooser
from router.dispatch.client_request import ClientRequest
from router.dispatch.completion import Completion
from router.dispatch.context import Context
from router.dispatch.driver.first_probes import HELPED
from router.dispatch.event_loop import LoopScheduler
from router.dispatch.exchange import Exchange, Keeper
from router.dispatch.hedging.hedger import Hedger
from router.dispatch.ignored_numbers import IgnoredNumbers
from router.dispatch.messages import MESSAGES
from router.dispatch.tenants import Tenants, check_model, may_hedge, models_of
from router.fleet.dialects import UNKNOWN
from router.fleet.prefix.kv_events.chains import TokenChains
from router.fleet.replica import Replica
from router.fleet.table import Fleet
from router.intake.authority import check_default
from router.intake.body import is_form, may_be_large, read_fields, watch
from router.intake.fields import MAX_SESSION, Fields, Unread
from router.intake.flow import with_steps
from router.intake.keys import Key
from router.intake.prompt import prompt_blocks, prompt_seed
from router.intake.routes import (
    BATCHES,
    MODELS,
    MODELS_PATH,
    SERVER,
    STORED_PREFIX,
    Route,
    classify,
    has_judged_body,
)
from router.intake.urgency import UNSAID, class_in_path
from router.intake.values import session_of
from router.observe.events import log_event
from router.observe.log.access_log import AccessLog
from router.observe.metrics import Metrics
from router.wire.client import ClientConnection, Handler
from router.wire.http1 import answers
from router.wire.http1.heads import RequestHead
from router.wire.sweep import Sweeper
from router.wire.tunnel import LocalServer, Tunnel

_MEMBER = b'"priority":0'  # A `priority` member; used to test whether a body can be extended.
# Bytes of a body above which its parsed fields are dropped before a replica is chosen.
_SMALL = 4096
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")


class Dispatcher(Handler, Keeper):
    """Handles the requests of every client connection."""

    def __init__(
        self,
        config: Config,
        fleet: Fleet,
        chooser: Chooser,
        sweeper: Sweeper,
        metrics: Metrics,
        log: AccessLog,
        authorization: bytes | None,
        keys: Sequence[KeyLine],
        hedger: Hedger,
        loop: asyncio.AbstractEventLoop,
        rng: Random,
    ) -> None:
        self.fleet = fleet
        self.hedger = hedger
        self.loop = loop
        self.chooser = chooser
        self.metrics = metrics
        self.exchanges: set[Exchange] = set()
        self.completion = Completion(metrics, log)
        # Gets the token ids of prompts; set when KV events are enabled.
        self.token_ids: TokenIds | None = None
        # Posts aborts to engines; `None`: attempts are stopped by closing their connections only.
        self.aborter: Aborter | None = None
        self.tenants = Tenants(config, keys, log.salter.name, monotonic())
        self.context = Context(config, fleet, chooser, hedger, metrics, LoopScheduler(loop), rng)
        self.context.crashed = self.crashed
        # The queue driver; `None`: requests are sent without queueing.
        self.queue = self.context.queue
        # Serves files and batches; `None`: these paths are forwarded to replicas.
        self.batch_server: LocalServer | None = None
        self.tunnels: set[Tunnel] = set()
        self._ignored_numbers = IgnoredNumbers()
        self._sweeper = sweeper
        self._ids = Ids()
        self._prompt_seed = prompt_seed(config.access_log.salt)
        self.adopt(config, authorization, keys)

    def adopt(
        self,
        config: Config,
        authorization: bytes | None,
        keys: Sequence[KeyLine],
        orders: Sequence[OrderPolicy] | None = None,
    ) -> None:
        """Apply a new configuration.

        Requests that have already started keep their `Rules`. `orders`: the order policies, one for
        each queue; `None`: these policies are built here.
        """
        self.config = config
        self.tenants.adopt(config, keys, self.completion.log.salter.name, monotonic())
        prefix = config.prefix
        self._hashes_prefixes = prefix.enabled
        self._block_bytes = prefix.block_bytes
        self._blocks = prefix.blocks
        self._isolates_tenants = prefix.isolate_tenants
        self.metrics.usage.adopt(config.usage.prices)
        self.context.adopt(config, orders)
        if self.queue is not None:
            self.queue.wake()
        self._believes_sdks = config.queue.sdk_timeouts
        self._authorization = authorization
        self._via = config.via.encode("ascii")
        self._proto = b"https" if config.tls is not None else b"http"
        self._allowed = frozenset(path.encode() for path in config.allow_paths)

    # -- Handler ------------------------------------------------------------------------------

    def check_head(self, head: RequestHead) -> None:
        if self.tenants.requires_keys:
            self.tenants.identify(head)  # Reject a missing or unknown key before the body is read.
        head.route = found = classify(head.method, head.target, self._allowed)
        if found[0].kind == "other":
            path_class, target = class_in_path(head.target)
            if path_class >= 0:
                head.path_class, head.target = path_class, target
                head.route = found = classify(head.method, target, self._allowed)
        if found[0] is BATCHES and self._has_batch_server():
            if self.context.closing:
                raise RouterError(Reason.DRAINING, MESSAGES[Reason.DRAINING], retry_after_s=1)
            head.passes = True
        elif head.has_body and may_be_large(head.content_length) and has_judged_body(head.method):
            head.watch = watch(found[0], head.content_length, head.content_type)

    def relieve(self, client: ClientConnection, head: RequestHead, body_bytes: int) -> bool:
        queue, tenants = self.queue, self.tenants
        key = tenants.known(head)
        flow = tenants.flow(key, head, client.peer)
        is_freed = queue is not None and queue.relieve(flow, body_bytes)
        return is_freed or (key is not None and not body_bytes)

    def _has_batch_server(self) -> bool:
        return self.batch_server is not None

    def hand_over(self, client: ClientConnection, head: RequestHead, early: bytes) -> None:
        batch_server = self.batch_server
        assert batch_server is not None
        name, timeouts = _called(head, self._ids.new()), self.config.timeouts
        introduction = self.tenants.introduce(head, self._authorization is not None)
        tunnel = Tunnel(client, head, name, early, introduction, self, self._sweeper, timeouts)
        self.tunnels.add(tunnel)
        tunnel.start(batch_server)

    def passed(self, tunnel: Tunnel, reason: Reason) -> None:
        """Forget a tunnel that has ended, and log it."""
        self.tunnels.discard(tunnel)
        head = tunnel.head
        flow = self.tenants.flow(self.tenants.known(head), head, tunnel.client.peer)
        self.completion.passed(tunnel, flow, reason)

    def start(
        self, client: ClientConnection, head: RequestHead, body: list[bytes], size: int
    ) -> None:
        arrived = monotonic()
        route: Route
        path: bytes
        route, path = head.route
        name = self._ids.new()
        fields = Fields()
        if has_judged_body(head.method):
            fields = read_fields(
                route,
                body,
                size,
                head.content_type,
                head.content_encoding,
                head.watch,
            )
        # The engine reads the model in the body; the header `x-router-model` is not forwarded.
        own_model = fields.model
        if own_model is None and head.routing.model is not None:
            fields.model = head.routing.model.decode("utf-8", "replace")[:256]
        tenants = self.tenants
        key = tenants.identify(head)
        is_inference = route.inference
        if is_inference and not route.is_edited:
            tenants.check_unedited(key, fields, head.content_type, self._pool_of(fields))
            # On routes whose bodies are not edited, fields with these names belong to another API.
            fields.priority = fields.service_tier = None
        urgency = UNSAID
        if is_inference:
            if fields.priority is None:
                urgency = tenants.urgency(fields, head, client.peer, key, UNKNOWN)
            else:
                urgency = self._stated_urgency(fields, head, client.peer, key)
        if type(fields) is Unread:  # Faster than `isinstance`, which looks up the metaclass.
            tenants.check_read(key, fields, is_inference=is_inference, is_known=route.is_known)
            if is_inference and route.is_known and not _may_be_edited(head, body):
                tenants.check_unreadable(key, fields, self._pool_of(fields))
        if key is not None and (is_inference or (route.kind == "other" and head.has_body)):
            models = check_model(key, own_model, fields)
            if models is not None and is_inference and not route.light:
                served = self.fleet.defaults.of(self.fleet.routed(own_model))
                check_default(fields, path, served, models, is_known=route.is_known)
        context = self.context
        asked = ClientRequest(
            head,
            size,
            route,
            path,
            fields,
            name,
            key,
            tenants.flow(key, head, client.peer, fields),
            self.aborter,
        )
        request_id = _called(head, name)
        exchange = Exchange(self, context, client, asked, body, request_id, arrived, urgency)
        client.exchange = exchange
        self.exchanges.add(exchange)
        if is_inference:
            routing = head.routing
            if key is not None or routing.ttft_slo_s > 0.0 or routing.tpot_slo_s > 0.0:
                exchange.state_slos(key, routing.ttft_slo_s, routing.tpot_slo_s)
            self._measure(exchange, head, fields, size)
        try:
            if self.context.closing:
                raise RouterError(Reason.DRAINING, MESSAGES[Reason.DRAINING], retry_after_s=1)
            if is_inference:
                routing = head.routing
                if routing.patience_s != inf or routing.sdk_patience_s != inf:
                    self._limit(exchange, head, arrived)
                tokens = exchange.view.prompt_tokens
                exchange.tenant_share = share = tenants.enter(
                    key,
                    asked.flow,
                    fields,
                    tokens,
                    arrived,
                    is_batch=urgency.rank == BATCH,
                    takes_steps=context.takes_steps(),
                    waits=self.queue is not None and not route.light,
                )
                if share is not None:
                    exchange.concurrency = share.concurrency
                    if share.steps:
                        exchange.urgency = with_steps(urgency, share.steps)
            if route is MODELS and self._answer_models(exchange, client, path):
                return
            if route is SERVER:
                self._answer(exchange, client, b"", answers.ALLOW)
                return
        except RouterError as err:
            exchange.answer(err)
            return
        peer = client.peer
        asked.forwards_key = tenants.forwards
        asked.common = common_lines(
            head,
            size,
            peer=peer.encode("ascii", "replace"),
            peer_is_trusted=tenants.flows.addresses.is_trusted(peer),
            proto=self._proto,
            via=self._via,
            authorization=self._authorization,
            forwards_key=asked.forwards_key,
        )
        self._sweeper.add(exchange)
        view = exchange.view
        if self.token_ids is not None and view.blocks:
            place = partial(self._place_with_tokens, exchange)
            question = self.token_ids.ask(view.kind, fields, body, place)
            if question is not None and not question.is_done:
                exchange.question = question
                fields.drop()
                return
            view.chains = question.chains if question is not None else None
        if size > _SMALL:
            # The fields are views that would keep the body in memory after the body was sent.
            fields.drop()
        self._place(exchange)

    def _pool_of(self, fields: Fields) -> str:
        """Return the priority dialect of the engines that serve the request's model."""
        return self.fleet.dialects.of(self.fleet.routed(fields.model))

    def _stated_urgency(
        self, fields: Fields, head: RequestHead, peer: str, key: Key | None
    ) -> Urgency:
        """Return the urgency of a request whose body contains a priority.

        Raises RouterError (BAD_PRIORITY).
        """
        fleet, ignored = self.fleet, self.tenants.judge.ignored
        dialect = self._pool_of(fields)
        before = ignored.get(dialect, 0)
        urgency = self.tenants.urgency(fields, head, peer, key, dialect)
        if ignored.get(dialect, 0) != before:
            self._ignored_numbers.ignored(fields.model, fleet.known_models, dialect, monotonic())
        return urgency

    def _limit(self, exchange: Exchange, head: RequestHead, arrived: float) -> None:
        """Set the time until which the client waits for an answer.

        Raises RouterError (DEADLINE_PASSED) if the deadline has passed.
        """
        patience_s, sdk_s = head.routing.patience_s, head.routing.sdk_patience_s
        # An SDK timeout ends with the first byte. A waiting stream is sent comments, so the timeout
        # does not apply to it.
        if sdk_s < patience_s and self._believes_sdks and not exchange.view.stream:
            patience_s = sdk_s
        if patience_s <= 0.0:
            exchange.wanted_until = arrived  # The access log contains this deadline.
            reason = Reason.DEADLINE_PASSED
            raise RouterError(reason, MESSAGES[reason], retry_after_s=1)
        if patience_s != inf:
            exchange.limit(arrived + patience_s)

    def _place_with_tokens(self, exchange: Exchange, chains: TokenChains | None) -> None:
        """Choose a replica for a request that waited for its token ids.

        `chains`: `None` if the token ids came too late.
        """
        exchange.question = None
        exchange.view.chains = chains
        try:
            self._place(exchange)
        except Exception as err:
            exchange.crashed(err)

    def _place(self, exchange: Exchange) -> None:
        queue = self.queue
        replica: Replica | None
        try:
            owner = self._owner(exchange, exchange.asked.path)
            route = exchange.route
            if owner is not None and (queue is None or not route.inference):
                replica = owner
            elif route.light:
                replica = self._least_loaded(exchange)
            elif queue is not None and route.inference:
                replica = queue.enter(exchange, owner)
            else:
                replica = self.chooser.choose(exchange.view, exchange.candidates(()))
        except RouterError as err:
            retry, late = partial(self._place, exchange), partial(exchange.answer, err)
            if err.reason not in HELPED or not self.context.first_probes.hold(
                exchange, retry, late
            ):
                exchange.answer(err)
            return
        if self.context.first_probes:
            self.context.first_probes.forget(exchange)
        if replica is not None:  # `None`: the queue sends the request later.
            exchange.driver.start(replica)

    def _measure(
        self, exchange: Exchange, head: RequestHead, fields: Fields, body_bytes: int
    ) -> None:
        """Compute what routing needs about the prompt: prefix blocks, size, and session."""
        view = exchange.view
        exchange.hedges_as = self._hedges_as(exchange, head, fields, body_bytes)
        if not exchange.route.is_known:
            if type(fields) is not Unread and not is_form(head.content_type):
                # A JSON body is mostly text; the estimate assumes 4 bytes per token.
                view.prompt_tokens = body_bytes // 4
        elif body_bytes < self._block_bytes:
            # The body is smaller than one block, so the exact size of the prompt matters little.
            view.prompt_tokens = body_bytes // 4
        elif self._hashes_prefixes:
            tenant = b""
            if self._isolates_tenants:
                tenant = exchange.asked.flow.isolation
            blocks, prompt_bytes = prompt_blocks(
                view.kind,
                fields,
                self._block_bytes,
                self._blocks,
                tenant,
                body_bytes,
                self._prompt_seed,
            )
            self.fleet.knowledge.measure(view, blocks, prompt_bytes)
            if exchange.route.light:
                # A light request prefills nothing, so no replica will hold the prompt's prefix.
                view.blocks = ()
        session = head.routing.session
        if session is not None:
            view.session = session.decode("utf-8", "replace")[:MAX_SESSION]
        else:
            view.session = session_of(fields)

    def _hedges_as(
        self, exchange: Exchange, head: RequestHead, fields: Fields, body_bytes: int
    ) -> str:
        """Return the class under which the request may be hedged.

        Returns "" if a second copy could do harm, or if neither the class's settings nor the client
        asks for a copy.
        """
        route, may_ask = exchange.route, may_hedge(exchange.asked.key)
        found = self.hedger.hedges_as(exchange.urgency.stated, head.routing.hedge, may_ask)
        if not found or not route.is_known or not route.repeatable or route.light:
            return ""
        config = self.config
        if body_bytes > config.limits.retry_body:
            return ""  # The body is not kept, so it cannot be sent a second time.
        if fields.n is not None and fields.n > 1 and not config.hedging.choices:
            return ""
        return found

    def refused(self, client: ClientConnection, head: RequestHead | None, err: RouterError) -> str:
        name = self._ids.new()
        request_id = (name if head is None else _called(head, name)).decode("ascii")
        self.completion.refused(client, head, request_id, err)
        return request_id

    def crashed(self, err: Exception) -> None:
        where = _raised_at(err)
        log_event(
            logging.ERROR,
            "a request failed inside the router",
            key=where,
            where=where,
            error=repr(err),
        )

    def finished(
        self, exchange: Exchange, client: ClientConnection, reason: Reason, now: float
    ) -> None:
        """Forget a request that has ended and is recorded."""
        self.exchanges.discard(exchange)
        self._sweeper.discard(exchange)
        try:
            self._keep(exchange, client, reason, now)
        except Exception as err:
            self.crashed(err)

    def _keep(
        self, exchange: Exchange, client: ClientConnection, reason: Reason, now: float
    ) -> None:
        """Release the request's share of its tenant's limits, and learn from its answer."""
        replica = exchange.work.replica
        exchange.leave_tenant(exchange.reply.is_work, now)
        if exchange.asked.flow.within and replica is not None:
            status = exchange.reply.status
            if replica.checks_keys or status == 401:
                self._learn_keys(exchange, replica, status, reason)
        self.completion.close(exchange, client.peer, reason, now)

    def _learn_keys(
        self, exchange: Exchange, replica: Replica, status: int, reason: Reason
    ) -> None:
        """Learn from an answer whether the engine checks keys, and which credentials it accepts."""
        if self._authorization is not None or not self.tenants.forwards:
            return  # The engine did not receive the client's own credential.
        if not exchange.route.inference:
            return
        head, flow = exchange.asked.head, exchange.asked.flow
        if status == 401:
            replica.checks_keys = True
        elif status == 200 and reason is Reason.OK:
            if not flow.tenant:
                replica.checks_keys = False  # The replica served a request that had no credential.
            elif head.authorization is None or head.api_key is None:
                # If a request has two credentials, it is unknown which one the engine checked.
                self.tenants.flows.confirm(flow)

    # -- choosing -----------------------------------------------------------------------------

    def _owner(self, exchange: Exchange, path: bytes) -> Replica | None:
        """Return the replica that holds the stored response that the request refers to.

        Returns `None` if the request refers to no stored response, or if the replica of that
        response is unknown. Raises RouterError (STATE_LOST) if the replica is unknown and keys are
        required.
        """
        fields = exchange.asked.fields
        stored = fields.previous_response_id
        if stored is None and path.startswith(STORED_PREFIX):
            stored = path[len(STORED_PREFIX) :].partition(b"/")[0].decode("ascii", "replace")
        if stored is None:
            return None
        exchange.pinned = owner = self.fleet.owner_of(stored, exchange.asked.flow.party)
        if owner is None and self.tenants.requires_keys:
            # The response may be older than this process; then the owner of the response is
            # unknown.
            raise RouterError(Reason.STATE_LOST, "there is no such response")
        return owner

    def _least_loaded(self, exchange: Exchange) -> Replica:
        """Return the least loaded fit replica, for a request that uses no GPU.

        Such a request never waits, even if all replicas are at their limits. Raises RouterError if
        no replica is fit.
        """
        model = exchange.view.model
        if has_judged_body(exchange.asked.head.method):
            self.fleet.check(model)
        fit = self.fleet.serving(model)
        if not fit:
            # This call raises RouterError with the reason why no replica is fit.
            fit = tuple(exchange.candidates(()))
        return min(fit, key=_load)

    # -- /v1/models ---------------------------------------------------------------------------

    def _answer_models(self, exchange: Exchange, client: ClientConnection, path: bytes) -> bool:
        """Answer `/v1/models` from the fleet's model list.

        Returns False if the list is empty or does not contain the model; a replica answers then.
        """
        if exchange.asked.head.method not in (b"GET", b"HEAD"):
            return False
        models = self.fleet.model_list()
        if not len(models):
            return False
        allowed = models_of(exchange.asked.key)
        if path == MODELS_PATH:
            body = models.whole if allowed is None else models.part(allowed)
        else:
            name = unquote(path[len(MODELS_PATH) + 1 :].decode("utf-8", "replace"))
            is_hidden = allowed is not None and name not in allowed
            found = None if is_hidden else models.entry(name)
            if found is None:
                if is_hidden:
                    raise RouterError(
                        Reason.MODEL_NOT_FOUND, f"the model `{name}` does not exist", param="model"
                    )
                # This call raises RouterError with the reason why the model is missing.
                self.fleet.eligible(self.fleet.routed(name))
                return False
            body = found
        self._answer(exchange, client, body)
        return True

    def _answer(
        self, exchange: Exchange, client: ClientConnection, body: bytes, extra: bytes = b""
    ) -> None:
        """Send a 200 response that the router itself has made.

        `extra`: complete header lines.
        """
        keep_alive = client.keeps_alive
        answer = answers.response(
            200,
            body,
            keep_alive=keep_alive,
            request_id=exchange.request_id.decode("ascii"),
            extra=extra,
            head_only=exchange.asked.head.method == b"HEAD",
        )
        reply = exchange.reply
        reply.status = 200
        reply.bytes_out = len(body)
        reply.is_complete = True
        client.write(answer)
        exchange.end()
        client.done(keep_alive)


def _called(head: RequestHead, name: bytes) -> bytes:
    """Return the client's request id if it is short and safe to log, else the router's own id."""
    given = head.request_id
    if given is not None and _REQUEST_ID.fullmatch(given):
        return given
    return name


def _may_be_edited(head: RequestHead, body: list[bytes]) -> bool:
    """Whether a priority in a body that was not parsed can be overridden, or has no effect at the
    engine.

    A member can be appended to an uncompressed JSON object. In a compressed body a priority has no
    effect, because no supported engine reads compressed bodies.
    """
    encoding = head.content_encoding
    is_plain = encoding is None or encoding == b"identity"
    return not is_plain or append(body, _MEMBER) is not None


def _raised_at(err: Exception) -> str:
    """Return the file and the line where the exception was raised."""
    trace = err.__traceback__
    if trace is None:
        return ""
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"


def _load(replica: Replica) -> tuple[int, int]:
    # Replicas are compared by `inflight`, too, because light requests count only there.
    return replica.load, replica.inflight
