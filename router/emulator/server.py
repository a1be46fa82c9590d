"""One emulated engine behind an OpenAI-compatible HTTP server.

Handlers are cancelled when their client leaves, so that a request nobody waits for is out of the
engine at once, streaming or not, running or waiting. Every answer says who gave it
(`x-emulated-replica`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import time
from typing import Any

from aiohttp import web

from router.emulator import faults as fault
from router.emulator import metrics, text
from router.emulator.bodies import Refusal, TokenizeBody, decode
from router.emulator.embeddings import Embeddings
from router.emulator.engine import Engine
from router.emulator.generate import Answered, Generation, json_response
from router.emulator.shapes.base import encode

_BODY_BYTES = 256 * 1024 * 1024
KEEP_ALIVE_S = 5.0  # uvicorn's: a pooled connection that idles longer dies under its owner

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def make_app(engine: Engine) -> web.Application:
    """Run it with `handler_cancellation=True`."""
    app = web.Application(client_max_size=_BODY_BYTES, middlewares=[_refusals])
    generation = Generation(engine)
    generation.add_routes(app.router)
    Embeddings(generation).add_routes(app.router)
    _Plain(engine, generation).add_routes(app.router)
    name = engine.settings.name

    async def sign(_: web.Request, response: web.StreamResponse) -> None:
        response.headers["x-emulated-replica"] = name

    app.on_response_prepare.append(sign)
    return app


@web.middleware
async def _refusals(request: web.Request, handler: _Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except Refusal as refusal:
        return json_response(refusal.body(), refusal.status)
    except Answered as answered:
        return answered.response
    except web.HTTPException as err:
        headers = {"allow": err.headers["allow"]} if "allow" in err.headers else {}
        return json_response(encode({"detail": err.reason}), err.status, **headers)


class _Plain:
    """The routes that do not concern generation."""

    def __init__(self, engine: Engine, generation: Generation) -> None:
        self._engine = engine
        self._generation = generation
        self._started = int(time())

    def add_routes(self, router: web.UrlDispatcher) -> None:
        router.add_get("/v1/models", self.models)
        router.add_post("/tokenize", self.tokenize)
        router.add_get("/health", self.health)
        router.add_get("/ping", self.health)
        router.add_post("/ping", self.health)
        router.add_get("/version", self.version)
        router.add_get("/metrics", self.metrics)
        router.add_get("/emulator/state", self.state)
        router.add_get("/emulator/faults", self.faults)
        router.add_post("/emulator/faults", self.set_faults)
        router.add_delete("/emulator/faults", self.clear_faults)

    async def models(self, _: web.Request) -> web.Response:
        settings = self._engine.settings
        rows = [
            {
                "id": model,
                "object": "model",
                "created": self._started,
                "owned_by": "vllm",
                "root": model,
                "parent": None,
                "max_model_len": settings.max_model_len,
            }
            for model in settings.models
        ]
        return json_response(encode({"object": "list", "data": rows}))

    async def tokenize(self, request: web.Request) -> web.Response:
        body = decode(await request.read(), TokenizeBody)
        self._generation.check_model(body.model)
        tokens = text.token_ids(body.prompt_bytes())
        limit = self._engine.settings.max_model_len
        answer = {
            "count": len(tokens),
            "max_model_len": limit,
            "tokens": tokens,
            "token_strs": None,
        }
        return json_response(encode(answer))

    async def health(self, _: web.Request) -> web.Response:
        return web.Response(status=self._engine.faults.current.health)

    async def version(self, _: web.Request) -> web.Response:
        return json_response(encode({"version": "0.32.0+emulated"}))

    async def metrics(self, _: web.Request) -> web.Response:
        rendered = metrics.render(self._engine).encode()
        return web.Response(body=rendered, headers={"content-type": metrics.CONTENT_TYPE})

    async def state(self, _: web.Request) -> web.Response:
        """The core's own counters, for tests and the curious. No real engine has this."""
        core = self._engine.core
        answer: dict[str, Any] = {
            "replica": self._engine.settings.name,
            "running": core.running,
            "waiting": core.waiting,
            "finished": core.finished,
            "aborted": core.aborted,
            "steps": core.steps,
            "kv_blocks_used": core.kv.used,
            "kv_blocks_cached": core.kv.cached,
        }
        return json_response(encode(answer))

    async def faults(self, _: web.Request) -> web.Response:
        return json_response(encode(self._engine.faults.current))

    async def set_faults(self, request: web.Request) -> web.Response:
        try:
            chosen = fault.from_json(await request.read())
        except fault.FaultError as err:
            raise Refusal(400, str(err), "BadRequestError") from None
        self._engine.set_faults(chosen)
        return json_response(encode(self._engine.faults.current))

    async def clear_faults(self, _: web.Request) -> web.Response:
        self._engine.set_faults(fault.NONE)
        return json_response(encode(self._engine.faults.current))
