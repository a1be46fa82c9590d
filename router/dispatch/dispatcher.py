"""Handles each complete request: classifies it, checks its tenant's limits, and starts it.

The dispatcher reads each request's head and body into a `ClientRequest`, and begins an `Exchange`
for the request. `routing_facts.py` measures the prompt, and `placement.py` sends the request to its
first replica. A reload replaces the configuration; a request that has already started keeps the
`Rules` and the header lines it began with. The dispatcher implements the `Handler` interface that
client connections call.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Final

from router.config.model import Config
from router.core.clock import monotonic
from router.core.errors import Reason, RouterError
from router.core.urgency import Urgency
from router.dispatch.attempts.abort import Aborter
from router.dispatch.attempts.engine_priority import IgnoredNumbers
from router.dispatch.attempts.ids import Ids
from router.dispatch.attempts.upstream_head import common_lines
from router.dispatch.charges import ChargeRules
from router.dispatch.client_request import ClientRequest
from router.dispatch.completion import Completion
from router.dispatch.context import Context
from router.dispatch.driver.placing import admit
from router.dispatch.driver.request_end import release_share
from router.dispatch.ending import revoke
from router.dispatch.exchange import Exchange, ExchangeOwner
from router.dispatch.local_answers import answer_health, answer_locally, answer_models
from router.dispatch.messages import MESSAGES
from router.dispatch.placement import Placement
from router.dispatch.recurring import Recurring
from router.dispatch.routing_facts import RoutingFacts, salt_of, session_in
from router.dispatch.rules import ArrivalRules
from router.dispatch.tenants import KEY_LIMITS, Tenants, check_model
from router.fleet.dialects import UNKNOWN
from router.fleet.names import NamedModel, Target
from router.fleet.replica import Replica
from router.intake.authority import check_default, check_no_background
from router.intake.body import may_be_large, read_fields, watch
from router.intake.fields import Fields, Unread
from router.intake.keys import Key, Keyring
from router.intake.routes import (
    BATCHES,
    HEALTH,
    HEALTH_PATH,
    JSON,
    MODELS,
    PREFLIGHT,
    RESPONSES,
    SERVER,
    Route,
    classify,
    has_judged_body,
)
from router.intake.urgency import UNSAID, class_in_path
from router.observe.events import log_event
from router.observe.log.access_log import AccessLog
from router.observe.prices import prices_of
from router.wire.client import ClientConnection, Handler
from router.wire.http1 import answers
from router.wire.http1.body_decoder import decoder_of
from router.wire.http1.cors import is_preflight
from router.wire.http1.heads import JSON_BODY, BodyReading, RequestHead
from router.wire.sweep import Sweeper
from router.wire.tunnel import LocalServer, Tunnel

_REMOVED = "the API key of this request was removed, or has expired"
# Compiled code reads a `Final` of its own module without a search for its name.
_JSON_BODY: Final = JSON_BODY
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")


class Dispatcher(Handler, ExchangeOwner):
    """Handles the requests of every client connection."""

    def __init__(
        self,
        context: Context,
        config: Config,
        sweeper: Sweeper,
        log: AccessLog,
        authorization: bytes | None,
        keys: Keyring,
    ) -> None:
        self.exchanges: set[Exchange] = set()
        self.completion = Completion(context.metrics, log)
        # Posts aborts to engines; `None`: attempts are stopped by closing their connections only.
        self.aborter: Aborter | None = None
        self.tenants = Tenants(config, keys, log.salter.name, monotonic())
        self.tenants.on_expired = self.apply_keys
        self._expired_keys = Recurring(self._expire_keys, sweeper)
        self.placement = Placement()
        # Serves files and batches; `None`: these paths are forwarded to replicas.
        self.batch_server: LocalServer | None = None
        self.tunnels: set[Tunnel] = set()
        self.tunnels_most = 0  # Maximum number of tunnels at once.
        # Returns why load balancers should not use the router; None: they should use it.
        self.unready: Callable[[], Reason | None] = _always_ready
        self._context = context
        context.log_defect = self.log_defect
        self._facts = RoutingFacts(context, salt_of(config))
        self._ignored_numbers = IgnoredNumbers()
        self._sweeper = sweeper
        self._ids = Ids()
        # The settings in force. A reload replaces these objects.
        self.arrival = ArrivalRules(config, authorization)
        self.charges = ChargeRules(config.usage.charges)
        context.metrics.usage.prices = prices_of(config)

    def apply_keys(self) -> None:
        """Apply the keys after a reload, or after a key has expired, to the requests that have not
        ended: the regions of the keys, and the removal of keys."""
        if self.tenants.keys_expire:
            self._expired_keys.watch()  # The reload may have given a key its first expiry.
        for exchange in [*self.exchanges]:
            key = exchange.asked.key
            if key is not None:
                is_changed = exchange.limit_regions(self.tenants.allowed_now(key))
                queue = self._context.queue
                if is_changed and queue is not None:
                    queue.limits_changed(exchange)
                if self.tenants.is_removed(key, exchange.asked.head):
                    revoke(exchange, RouterError(Reason.KEY_REQUIRED, _REMOVED, is_final=True))

    def _expire_keys(self, now: float) -> bool:
        """Refuse the waiting requests of keys that have expired. Without requests nothing is
        compared: the next request of an expired key is refused when it arrives."""
        goes_on = bool(self.exchanges) and self.tenants.keys_expire
        self.tenants.expire_keys()
        return goes_on

    # -- Handler ------------------------------------------------------------------------------

    def check_head(self, head: RequestHead) -> None:
        if head.origin is not None and self.arrival.cors is not None:
            if is_preflight(head):
                head.route = PREFLIGHT, head.target
                return
            head.drop(b"origin")
        if self.tenants.requires_keys and head.target != HEALTH_PATH:
            self.tenants.identify(head)  # Reject a missing or unknown key before the body is read.
        allowed = self.arrival.allowed
        head.route = found = classify(head.method, head.target, allowed)
        if found[0].kind == "other":
            path_class, target = class_in_path(head.target)
            if path_class >= 0:
                head.path_class, head.target = path_class, target
                head.route = found = classify(head.method, target, allowed)
        if found[0] is BATCHES and self._has_batch_server():
            if self._context.closing:
                raise RouterError(Reason.DRAINING, MESSAGES[Reason.DRAINING], retry_after_s=1)
            self._check_tunnels(head)
            head.passes = True
        elif head.has_body and (found[0].inference or has_judged_body(head.method)):
            self._check_body(head, found[0])

    def _check_body(self, head: RequestHead, route: Route) -> None:
        """Prepare the reading of a body whose members the router reads."""
        is_json = route.body == JSON
        if is_json:
            head.reading = _JSON_BODY
        size, coding, decoder = head.content_length, head.content_encoding, None
        if coding is not None:
            is_known = route.inference and route.is_known
            decoder = decoder_of(coding, is_json=is_json, is_known=is_known)
            if decoder is not None:
                size = head.content_encoding = None
                head.drop(b"content-encoding")
        scan = watch(route, size, head.content_type) if may_be_large(size) else None
        if decoder is not None or scan is not None:
            head.reading = BodyReading(is_json=is_json, decoder=decoder, watch=scan)

    def relieve(self, peer: str, head: RequestHead, body_bytes: int) -> bool:
        queue, tenants = self._context.queue, self.tenants
        key = tenants.known(head)
        flow = tenants.flow(key, head, peer)
        is_freed = queue is not None and queue.relieve(flow, body_bytes)
        return is_freed or (key is not None and not body_bytes)

    def _check_tunnels(self, head: RequestHead) -> None:
        """Refuses a request if there are too many tunnels. If there are API keys, clients without
        one may use only half of the tunnels."""
        most, tenants = self.tunnels_most, self.tenants
        if tenants.has_keys and tenants.known(head) is None:
            most //= 2
        if len(self.tunnels) >= most:
            text = "too many requests for files and batches at once"
            raise RouterError(Reason.NO_FILES, text, retry_after_s=1)

    def _has_batch_server(self) -> bool:
        return self.batch_server is not None

    def hand_over(self, client: ClientConnection, head: RequestHead, early: bytes) -> None:
        batch_server = self.batch_server
        assert batch_server is not None
        name = _request_id_of(head, self._ids.new())
        arrival = self.arrival
        introduction = self.tenants.introduce(head, arrival.authorization is not None)
        tunnel = Tunnel(
            client, head, name, early, introduction, self, self._sweeper, arrival.timeouts
        )
        self.tunnels.add(tunnel)
        tunnel.start(batch_server)

    def passed(self, tunnel: Tunnel, reason: Reason) -> None:
        """Forget a tunnel to the batch server that has ended, and log its request."""
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
        fields = self._fields_of(head, body, size)
        if route is RESPONSES:
            check_no_background(fields)
        # The engine reads the model in the body; the header `x-router-model` is not forwarded.
        own_model = fields.model
        model = own_model  # The name that the client wrote.
        if model is None and head.routing.model is not None:
            model = fields.model = head.routing.model.decode("utf-8", "replace")[:256]
        tenants = self.tenants
        is_open = route is HEALTH or route is PREFLIGHT
        key = tenants.known(head) if is_open else tenants.identify(head)
        is_inference = route.inference
        names = self._context.fleet.models.names
        named: NamedModel | None = None
        target: Target | None = None
        if names.is_used and route is not MODELS:
            named = names.find(model)
            if named is not None:
                flow = tenants.flow(key, head, client.peer, fields)
                target = named.target(session_in(head, fields), flow.party, name.decode("ascii"))
                fields.model = target.model
        urgency = self._urgency(fields, head, client.peer, key, route) if is_inference else UNSAID
        if type(fields) is Unread:  # Faster than `isinstance`, which looks up the metaclass.
            tenants.check_read(key, fields, is_inference=is_inference, is_known=route.is_known)
        if key is not None and (is_inference or (route.kind == "other" and head.has_body)):
            self._check_models(key, own_model, fields, head, target)
        flow = tenants.flow(key, head, client.peer, fields)
        asked = ClientRequest(
            head, size, route, path, fields, name, key, flow, self.aborter, named, model
        )
        request_id = _request_id_of(head, name)
        exchange = Exchange(
            self, self._context, client, asked, body, request_id, arrived, urgency, target
        )
        client.exchange = exchange
        self.exchanges.add(exchange)
        if is_inference:
            self._facts.fill(exchange, self.arrival)
        try:
            self._admit(exchange)
            if not is_inference and self._answers_itself(exchange, client):
                return
        except RouterError as err:
            exchange.answer(err)
            return
        self._write_common_lines(asked, client.peer)
        self._sweeper.add(exchange)
        self.placement.begin(exchange, body)

    def _fields_of(self, head: RequestHead, body: list[bytes], size: int) -> Fields:
        """Return the members of the body that the router reads. Raises RouterError."""
        if not has_judged_body(head.method):
            return Fields()
        return read_fields(
            head.route[0],
            body,
            size,
            head.content_type,
            head.content_encoding,
            head.reading.watch,
            self.arrival.members,
        )

    def _urgency(
        self, fields: Fields, head: RequestHead, peer: str, key: Key | None, route: Route
    ) -> Urgency:
        """Return the urgency of an inference request. Raises RouterError if it is not allowed."""
        tenants = self.tenants
        if not route.is_edited:
            tenants.check_unedited(key, fields, head.content_type, self._dialect_of(fields))
            # On routes whose bodies are not edited, `priority` and `service_tier` have another
            # meaning.
            fields.priority = None
            fields.put("service_tier", None)
        if fields.priority is None:
            return tenants.urgency(fields, head, peer, key, UNKNOWN)
        return self._stated_urgency(fields, head, peer, key)

    def _check_models(
        self,
        key: Key,
        own_model: str | None,
        fields: Fields,
        head: RequestHead,
        target: Target | None,
    ) -> None:
        """Check that a key may use the model. Raises RouterError.

        `own_model`: the name in the body. `target`: the model that it stands for.
        """
        route: Route
        path: bytes
        route, path = head.route
        models = check_model(key, own_model, fields)
        if models is None or not route.inference or route.light:
            return
        if target is not None and own_model is not None:
            # A key that may use a name may use the model that the name stands for.
            own_model = target.model
            models |= {target.model}
        fleet = self._context.fleet
        served = fleet.defaults.of(fleet.models.routed(own_model))
        check_default(fields, path, served, models, is_known=route.is_known)

    def _admit(self, exchange: Exchange) -> None:
        """Apply the limits of its tenant to the request. Raises RouterError to refuse it."""
        asked = exchange.asked
        key, routing = asked.key, asked.head.routing
        timeout_s, tenants = self._timeout_s(exchange), self.tenants
        try:
            admit(
                exchange.driver,
                tenants,
                key,
                asked.flow,
                timeout_s,
                routing.ttft_slo_s,
                routing.tpot_slo_s,
            )
        except RouterError as err:
            if key is not None and err.reason in KEY_LIMITS:
                exchange.reply.limits = tenants.limit_lines(key, exchange.arrived)
            raise
        if key is not None and asked.route.inference:
            exchange.reply.limits = tenants.limit_lines(key, exchange.arrived)

    def preferred_region(self, exchange: Exchange, key: Key | None) -> str:
        known = self._context.fleet.nearest.regions
        return self.tenants.region(key, exchange.asked.head, exchange.client.peer, known)

    def reserve(self, exchange: Exchange, key: Key) -> tuple[int, int, int]:
        if self.tenants.keys_expire:
            self._expired_keys.watch()
        prompt, most, answers = self.charges.reserved(exchange)
        accounts = self.completion.accounts
        if accounts is not None and (key.budgets or key.model_budgets):
            accounts.enter(exchange, prompt, most, answers)
        return prompt, most, answers

    def _answers_itself(self, exchange: Exchange, client: ClientConnection) -> bool:
        """Answer a request that needs no replica. Returns False if a replica must answer it.

        Raises RouterError if the answer is an error.
        """
        route = exchange.route
        if route is MODELS:
            return answer_models(exchange, client)
        if route is HEALTH:
            answer_health(exchange, client, self.unready())
        elif route is SERVER:
            answer_locally(exchange, client, b"", answers.ALLOW)
        elif route is PREFLIGHT:
            cors = self.arrival.cors  # `None` if a reload has turned CORS off
            allows = b"" if cors is None else cors.preflight(exchange.asked.head)
            answer_locally(exchange, client, b"", allows)
        else:
            return False
        return True

    def _dialect_of(self, fields: Fields) -> str:
        """Return the priority dialect of the engines that serve the request's model."""
        fleet = self._context.fleet
        return fleet.dialects.of(fleet.models.routed(fields.model))

    def _stated_urgency(
        self, fields: Fields, head: RequestHead, peer: str, key: Key | None
    ) -> Urgency:
        """Return the urgency of a request whose body contains a priority.

        Raises RouterError (BAD_PRIORITY).
        """
        fleet, ignored = self._context.fleet, self.tenants.judge.ignored
        dialect = self._dialect_of(fields)
        before = ignored.get(dialect, 0)
        urgency = self.tenants.urgency(fields, head, peer, key, dialect)
        if ignored.get(dialect, 0) != before:
            self._ignored_numbers.ignored(fields.model, fleet.models.known, dialect, monotonic())
        return urgency

    def _write_common_lines(self, asked: ClientRequest, peer: str) -> None:
        """Build the header lines that every replica gets."""
        tenants, arrival = self.tenants, self.arrival
        asked.forwards_key = tenants.forwards
        asked.common = common_lines(
            asked.head,
            asked.body_bytes,
            peer=peer.encode("ascii", "replace"),
            peer_is_trusted=tenants.flows.addresses.is_trusted(peer),
            proto=arrival.proto,
            via=arrival.via,
            authorization=arrival.authorization,
            forwards_key=asked.forwards_key,
            reads_answer=asked.route.inference,
        )

    def _timeout_s(self, exchange: Exchange) -> float:
        """Return how many seconds the client waits for an answer; infinity: no limit."""
        routing = exchange.asked.head.routing
        timeout_s, sdk_timeout_s = routing.timeout_s, routing.sdk_timeout_s
        # The timeout of a client SDK applies only until the first byte. A waiting stream is sent
        # comments, so this timeout does not apply to a stream.
        if (
            sdk_timeout_s < timeout_s
            and self.arrival.uses_sdk_timeouts
            and not exchange.view.stream
        ):
            return sdk_timeout_s
        return timeout_s

    def refused(self, client: ClientConnection, head: RequestHead | None, err: RouterError) -> str:
        name = self._ids.new()
        request_id = (name if head is None else _request_id_of(head, name)).decode("ascii")
        self.completion.refused(client, head, request_id, err)
        return request_id

    def log_defect(self, err: Exception) -> None:
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
        """Forget a request that has ended, release its tenant's limits, and log the request."""
        self.exchanges.discard(exchange)
        self._sweeper.discard(exchange)
        try:
            self._settle(exchange, client, reason, now)
        except Exception as err:
            self.log_defect(err)

    def _settle(
        self, exchange: Exchange, client: ClientConnection, reason: Reason, now: float
    ) -> None:
        """Release the request's share of its tenant's limits, learn from its answer, and log it."""
        replica = exchange.work.replica
        accounts = self.completion.accounts
        if accounts is not None:
            accounts.release(exchange)
        charge = self.charges.cost(exchange, now) if exchange.route.inference else 0
        release_share(exchange, self._context, charge, now, exchange.reply.is_work)
        kept = exchange.driver.state.kept_error
        if replica is None and kept is not None:
            replica = kept.at  # The client got an error of this replica.
        if exchange.asked.flow.within and replica is not None:
            status = exchange.reply.status
            if replica.errors.checks_keys or status == 401:
                self._learn_keys(exchange, replica, status, reason)
        self.completion.close(exchange, client.peer, reason, charge, now)

    def _learn_keys(
        self, exchange: Exchange, replica: Replica, status: int, reason: Reason
    ) -> None:
        """Learn from an answer whether the engine checks keys, and which credentials it accepts."""
        if self.arrival.authorization is not None or not self.tenants.forwards:
            return  # The engine did not receive the client's own credential.
        if replica.access is not None:
            return
        if not exchange.route.inference:
            return
        head, flow = exchange.asked.head, exchange.asked.flow
        if status == 401:
            replica.errors.showed_keys(True)
        elif status == 200 and reason is Reason.OK:
            if not flow.tenant:
                # The replica served a request that had no credential.
                replica.errors.showed_keys(False)
            elif head.authorization is None or head.api_key is None:
                # If a request has two credentials, it is unknown which one the engine checked.
                self.tenants.flows.confirm(flow)


def _request_id_of(head: RequestHead, name: bytes) -> bytes:
    """Return the client's request id if it is short and safe to log, else the router's own id."""
    given = head.request_id
    if given is not None and _REQUEST_ID.fullmatch(given):
        return given
    return name


def _raised_at(err: Exception) -> str:
    """Return the file and the line where the exception was raised."""
    trace = err.__traceback__
    if trace is None:
        return ""
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"


def _always_ready() -> None:
    return None
