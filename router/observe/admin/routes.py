"""The routes of the admin port: metrics, health, the fleet, reload, drain.

Every error is JSON of the form {"error": {"code", "message"}}. Request bodies are read (at most 64
KiB, for at most 5 s), and never decompressed; most routes ignore them. A request that may change
something and has an Origin header comes from a web page and returns 403. Otherwise a web page in a
browser could drain a router on the same machine. A request that a proxy has forwarded (`Via`)
returns 403: if a replica has the address of an admin port, this router or another one would send
its clients' requests there. `authority.py` decides which requests need a token.

Import only through `listener.py`: this module imports aiohttp.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import Annotated, Final

import msgspec
from aiohttp import web
from aiohttp.typedefs import Middleware

from router.core.errors import ConfigError
from router.core.unreadable import NOT_JSON
from router.fleet.membership import ACTIONS
from router.observe.admin.actions import AdminActions, Refused, read_query
from router.observe.admin.authority import Authority
from router.observe.admin.fleet_page import fleet_page, queue_page
from router.observe.events import log_event
from router.observe.families.collector import Collector

BODY_BYTES_MAX = 64 * 1024
BODY_TIMEOUT_S = 5.0
# After a request was refused, its body is read for this many seconds, so that the client gets the
# error response.
LINGER_S = 1.0
# An idle connection is closed after this many seconds: longer than Prometheus's scrape interval.
KEEP_ALIVE_S = 75.0

_INDEX = """hedgerow admin
GET  /metrics   Prometheus metrics
GET  /livez     200 while the process runs; also /healthz
GET  /readyz    200 if load balancers should use the router (`ready`), else 503 and the reason;
                also /health
GET  /fleet     the replicas and the queue, as text
GET  /replicas  the fleet, as JSON
GET  /hedging   when second copies are sent, and their gain, as JSON
GET  /queue     waiting requests by class and tenant, as JSON; ?format=text gives text
GET  /usage     tokens, requests and cost by tenant and class, as JSON; ?from=2026-11-01 and
                ?to=2026-11-30 select days (with `usage.file`), ?format=csv gives a row for each day
GET  /replicas/ID  one replica; also while it finishes requests after its removal
POST /replicas  add a replica; the body is an entry of `replicas` in the configuration, as JSON:
                {"url": "http://gpu-3:8000"}
DELETE /replicas/ID  remove a replica; it finishes its requests
POST /replicas/ID/cordon  send no new requests to a replica; it finishes those that it has
POST /replicas/ID/drain  the same; the state becomes `drained` when the last request has ended
POST /replicas/ID/uncordon  send requests again
POST /replicas/ID/reclaim  drain a replica whose machine goes away, and move its requests; the body
                may be {"seconds": 30}
POST /reload    read the configuration again
POST /drain     accept no new requests, finish those under way
"""

_ENTRY_BYTES: Final = 64 * 1024  # a larger entry of a replica would take long to check
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})  # RFC 9110 section 9.2.1

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def build_probes(
    actions: AdminActions, collector: Collector, authority: Authority
) -> web.Application:
    """Return the aiohttp application with the routes that need no token: probes and scrapes."""
    guard = _guarded(authority, asks_token=False)
    app = web.Application(client_max_size=BODY_BYTES_MAX, middlewares=[guard])
    _add_probes(app.router, actions, collector)
    return app


def _add_probes(router: web.UrlDispatcher, actions: AdminActions, collector: Collector) -> None:
    async def metrics(request: web.Request) -> web.Response:
        is_zipped = _accepts_gzip(request.headers.get("Accept-Encoding", ""))
        body, content_type = await collector.render(request.headers.get("Accept", ""), is_zipped)
        headers = {"Content-Type": content_type, "Vary": "Accept, Accept-Encoding"}
        if is_zipped:
            headers["Content-Encoding"] = "gzip"
        return web.Response(body=body, headers=headers)

    async def livez(request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(request: web.Request) -> web.Response:
        ready, why = actions.ready()
        return web.Response(status=200 if ready else 503, text=f"{why or 'ready'}\n")

    router.add_get("/metrics", metrics)
    # `/healthz` has the meaning that it has in Kubernetes, and `/health` that of the engines.
    for path, handler in (
        *(("/livez", livez), ("/healthz", livez)),
        *(("/readyz", readyz), ("/health", readyz)),
    ):
        router.add_get(path, handler)


def build(actions: AdminActions, collector: Collector, authority: Authority) -> web.Application:
    """Return the aiohttp application with all routes, which calls `actions` and `collector`."""

    async def index(request: web.Request) -> web.Response:
        return web.Response(text=_INDEX)

    async def fleet(request: web.Request) -> web.Response:
        ready, why = actions.ready()
        unready = "" if ready else why
        return web.Response(
            text=fleet_page(await actions.replicas(), await actions.queue(), unready)
        )

    async def replicas(request: web.Request) -> web.Response:
        return answered(list(await actions.replicas()))

    async def hedging(request: web.Request) -> web.Response:
        return answered(await actions.hedging())

    async def queue(request: web.Request) -> web.Response:
        state = await actions.queue()
        return web.Response(text=queue_page(state)) if wants_text(request) else answered(state)

    async def usage(request: web.Request) -> web.Response:
        first, last, is_csv = read_query(request.query.items())
        if not is_csv:
            return answered(await actions.usage(first, last))
        body = await actions.usage_csv(first, last)
        headers = {"Content-Disposition": 'attachment; filename="usage.csv"'}
        return web.Response(body=body, content_type="text/csv", charset="utf-8", headers=headers)

    async def reload(request: web.Request) -> web.Response:
        try:
            config_hash = await actions.reload()
        except ConfigError as err:
            return refused(
                400,
                "bad_config",
                "the configuration is invalid; the previous one stays in use",
                problems=err.problems,
            )
        return answered({"ok": True, "hash": config_hash})

    async def drain(request: web.Request) -> web.Response:
        actions.drain()
        return answered({"ok": True}, status=202)

    guard = _guarded(authority)
    app = web.Application(client_max_size=BODY_BYTES_MAX, middlewares=[guard])
    _add_probes(app.router, actions, collector)
    for handler in (fleet, replicas, hedging, queue, usage):
        app.router.add_get(f"/{handler.__name__}", handler)
    for handler in (reload, drain):
        app.router.add_post(f"/{handler.__name__}", handler)
    app.router.add_get("/", index)
    _add_members(app.router, actions)
    return app


def _guarded(authority: Authority, *, asks_token: bool = True) -> Middleware:
    """Return the middleware of every route.

    It refuses web pages, forwarded requests and requests without the token, reads the body within
    its limits, and turns every error into JSON.
    """

    @web.middleware
    async def guard(request: web.Request, handler: _Handler) -> web.StreamResponse:
        try:
            refusal = _refusal(request, authority, asks_token)
            if refusal is not None:
                refusal.force_close()  # the request's body is not read
                return refusal
            await _read_body(request)
            return await handler(request)
        except Refused as no:
            return refused(no.status, no.code, no.message, no.problems)
        except web.HTTPException as err:
            if err.status < 400:
                raise
            return _as_json(err)
        except Exception as err:
            log_event(logging.ERROR, "admin request failed", key=request.path, error=repr(err))
            return refused(500, "internal", "the router failed on this request; see its log")

    return guard


def _refusal(request: web.Request, authority: Authority, asks_token: bool) -> web.Response | None:
    """Return the refusal of a request whose body is not read; `None`: it is answered."""
    headers = request.headers
    if request.method not in _SAFE and "Origin" in headers:
        return refused(403, "forbidden", "requests from web pages are refused")
    if "Via" in headers:
        return refused(403, "forbidden", "requests through a proxy (Via) are refused")
    path = _path(request)
    has_token = authority.has_token(_only(request, "Authorization"))
    if asks_token and not has_token and authority.needs_token(request.method, path):
        return _without_token()
    # A browser checks the name in the certificate, so a page under another name gets no answer.
    if not (has_token or request.secure or authority.knows(path, _only(request, "Host"))):
        text = "this name is unknown (admin.hosts); use the address, or send the admin token"
        return refused(421, "unknown_host", text)
    if headers.get("Content-Encoding", "identity").lower() != "identity":
        return refused(415, "encoded_body", "the body must not be compressed")
    return None


def _as_json(err: web.HTTPException) -> web.Response:
    """Return an error of aiohttp as JSON, with what to do, or the reason."""
    text, headers = err.reason, {}
    if isinstance(err, web.HTTPNotFound):
        text = "there is no such path; GET / lists the paths"
    elif isinstance(err, web.HTTPMethodNotAllowed):
        headers["Allow"] = err.headers["Allow"]
        text = f"this path allows only {headers['Allow']}"
    response = refused(err.status, err.reason.lower().replace(" ", "_"), text)
    response.headers.update(headers)
    if isinstance(err, web.HTTPRequestEntityTooLarge | web.HTTPRequestTimeout):
        response.force_close()  # the rest of the request's body is not read
    return response


def _accepts_gzip(codings: str) -> bool:
    """Whether a value of Accept-Encoding allows gzip. Only the weight 0 forbids it."""
    for item in codings.lower().replace(" ", "").split(","):
        coding, _, weight = item.partition(";q=")
        if coding == "gzip":
            return not weight or weight.strip("0.") != ""
    return False


def _path(request: web.Request) -> str:
    """Return the path of the request's route, or of the request if there is no route."""
    resource = request.match_info.route.resource
    return request.path if resource is None else resource.canonical


def _only(request: web.Request, field: str) -> str:
    """Return the value of a field; "" if there is none. Several values are joined by commas."""
    return ", ".join(request.headers.getall(field, ()))


def _without_token() -> web.Response:
    text = "this request needs the admin token (admin.token) as `Authorization: Bearer`"
    response = refused(401, "unauthorized", text)
    response.headers["WWW-Authenticate"] = 'Bearer realm="hedgerow admin"'
    return response


async def _read_body(request: web.Request) -> None:
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            await request.read()
    except TimeoutError:
        raise web.HTTPRequestTimeout from None
    except ConnectionError:
        raise web.HTTPBadRequest from None  # The client has left, and gets no answer.


def answered(value: object, status: int = 200) -> web.Response:
    body = msgspec.json.encode(value) + b"\n"
    return web.Response(body=body, status=status, content_type="application/json")


def wants_text(request: web.Request) -> bool:
    """Whether a page of JSON is to be text: `?format=text`, or an Accept header that prefers it.

    Raises Refused for another format.
    """
    style = request.query.get("format")
    if style is None:
        first = request.headers.get("Accept", "").partition(",")[0].partition(";")[0]
        return first.strip().lower() in ("text/plain", "text/html")
    if style not in ("json", "text"):
        why = f"format must be one of json, text, not {style!r}"
        raise Refused(HTTPStatus.BAD_REQUEST, "bad_query", why)
    return style == "text"


def refused(
    status: int, code: str, message: str, problems: Sequence[str] | None = None
) -> web.Response:
    """Return an error: {"error": {"code", "message"}}, and its `problems` if there are any."""
    error: dict[str, object] = {"code": code, "message": message}
    if problems is not None:
        error["problems"] = problems
    return answered({"error": error}, status)


def _add_members(router: web.UrlDispatcher, actions: AdminActions) -> None:
    """Adds the routes that show and change one replica.

    An ID may take several segments of a path: the default ID of a replica whose URL has a path
    prefix contains slashes. A handler raises Refused if the router refuses the request.
    """

    async def show(request: web.Request) -> web.Response:
        with _action_paths(request):
            return answered(await actions.members.show(request.match_info["id"]))

    async def add(request: web.Request) -> web.Response:
        return answered(await actions.members.add(await _entry(request)), HTTPStatus.CREATED)

    async def remove(request: web.Request) -> web.Response:
        with _action_paths(request):
            return answered(
                await actions.members.remove(request.match_info["id"]), HTTPStatus.ACCEPTED
            )

    async def set_duty(request: web.Request) -> web.Response:
        found = request.match_info
        return answered(await actions.members.set_duty(found["id"], found["action"]))

    async def reclaim(request: web.Request) -> web.Response:
        found = await actions.members.reclaim(request.match_info["id"], await _seconds(request))
        return answered(found, HTTPStatus.ACCEPTED)

    router.add_post("/replicas", add)
    router.add_post("/replicas/{id:.+}/reclaim", reclaim)
    router.add_post(f"/replicas/{{id:.+}}/{{action:{'|'.join(ACTIONS)}}}", set_duty)
    router.add_get("/replicas/{id:.+}", show)
    router.add_delete("/replicas/{id:.+}", remove)


@contextmanager
def _action_paths(request: web.Request) -> Iterator[None]:
    """Turns 404 into 405 if the path is that of an action, whose last part was read as an ID's."""
    try:
        yield
    except Refused as no:
        last = request.match_info["id"].rpartition("/")[2]
        if no.status == HTTPStatus.NOT_FOUND and last in (*ACTIONS, "reclaim"):
            raise web.HTTPMethodNotAllowed(request.method, ["POST"]) from None
        raise


class _Reclaim(msgspec.Struct, forbid_unknown_fields=True):
    seconds: Annotated[float, msgspec.Meta(ge=0, le=1e7)] | None = None


async def _entry(request: web.Request) -> object:
    raw = await request.read()
    if len(raw) > _ENTRY_BYTES:
        status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        raise Refused(status, "entry_too_large", f"the body is over {_ENTRY_BYTES} bytes")
    try:
        return msgspec.json.decode(raw)
    except NOT_JSON as err:
        raise _bad_json(err) from None


async def _seconds(request: web.Request) -> float | None:
    raw = await request.read()
    try:
        return msgspec.json.decode(raw, type=_Reclaim).seconds if raw.strip() else None
    except msgspec.ValidationError as err:
        status = HTTPStatus.UNPROCESSABLE_ENTITY
        raise Refused(status, "bad_reclaim", "the body is invalid", [str(err)]) from None
    except NOT_JSON as err:
        raise _bad_json(err) from None


def _bad_json(err: Exception) -> Refused:
    return Refused(HTTPStatus.BAD_REQUEST, "bad_json", f"the body is not JSON: {err}")
