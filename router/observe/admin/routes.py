"""The routes of the admin port: metrics, health, the fleet, reload, drain.

Every error is JSON of the form {"error": {"code", "message"}}. Request bodies are read (at most 64
KiB, for at most 5 s) and ignored. A POST with an Origin header comes from a web page and returns
403. Otherwise a web page in a browser could drain a router on the same machine.

Import only through `listener.py`: this module imports aiohttp.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web

from router.core.errors import ConfigError
from router.observe.admin.actions import AdminActions
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
GET  /livez     200 while the process runs
GET  /readyz    200 if new requests are accepted, else 503 and the reason
GET  /replicas  the fleet, as JSON
GET  /hedging   when second copies are sent, and their gain, as JSON
GET  /queue     waiting requests by class and tenant, as JSON
GET  /usage     tokens, requests and cost by tenant and class, as JSON
POST /reload    read the configuration again
POST /drain     accept no new requests, finish those under way
"""

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def build(actions: AdminActions, collector: Collector) -> web.Application:
    """Returns the aiohttp application, which calls `actions` and `collector`."""

    async def index(request: web.Request) -> web.Response:
        return web.Response(text=_INDEX)

    async def metrics(request: web.Request) -> web.Response:
        body, content_type = await collector.render(request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def livez(request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(request: web.Request) -> web.Response:
        ready, why = actions.ready()
        return web.Response(status=200 if ready else 503, text=f"{why or 'ready'}\n")

    async def replicas(request: web.Request) -> web.Response:
        return _json(list(actions.replicas()))

    async def hedging(request: web.Request) -> web.Response:
        return _json(actions.hedging())

    async def queue(request: web.Request) -> web.Response:
        return _json(actions.queue())

    async def usage(request: web.Request) -> web.Response:
        return _json(await actions.usage())

    async def reload(request: web.Request) -> web.Response:
        try:
            config_hash = await actions.reload()
        except ConfigError as err:
            return _error(
                400,
                "bad_config",
                "the configuration is invalid; the previous one stays in use",
                problems=err.problems,
            )
        return _json({"ok": True, "hash": config_hash})

    async def drain(request: web.Request) -> web.Response:
        actions.drain()
        return _json({"ok": True}, status=202)

    app = web.Application(client_max_size=BODY_BYTES_MAX, middlewares=[_guard])
    app.router.add_get("/", index)
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/livez", livez)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/replicas", replicas)
    app.router.add_get("/hedging", hedging)
    app.router.add_get("/queue", queue)
    app.router.add_get("/usage", usage)
    app.router.add_post("/reload", reload)
    app.router.add_post("/drain", drain)
    return app


@web.middleware
async def _guard(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Reads the body within its limits, refuses web pages, and turns every error into JSON."""
    try:
        if request.method == "POST" and "Origin" in request.headers:
            return _error(403, "forbidden", "requests from web pages are refused")
        await _read_body(request)
        return await handler(request)
    except web.HTTPException as err:
        if err.status < 400:
            raise
        response = _error(err.status, err.reason.lower().replace(" ", "_"), err.reason)
        if isinstance(err, web.HTTPMethodNotAllowed):
            response.headers["Allow"] = err.headers["Allow"]
        if isinstance(err, web.HTTPRequestEntityTooLarge | web.HTTPRequestTimeout):
            response.force_close()  # the rest of the request's body is not read
        return response
    except Exception as err:
        log_event(logging.ERROR, "admin request failed", key=request.path, error=repr(err))
        return _error(500, "internal", "the router failed on this request; see its log")


async def _read_body(request: web.Request) -> None:
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            await request.read()
    except TimeoutError:
        raise web.HTTPRequestTimeout from None


def _json(value: object, status: int = 200) -> web.Response:
    body = msgspec.json.encode(value) + b"\n"
    return web.Response(body=body, status=status, content_type="application/json")


def _error(status: int, code: str, message: str, problems: list[str] | None = None) -> web.Response:
    error: dict[str, object] = {"code": code, "message": message}
    if problems is not None:
        error["problems"] = problems
    return _json({"error": error}, status)
