"""One emulated engine behind an OpenAI-compatible HTTP server.

A handler is cancelled when its client disconnects. Its request, running or waiting, is then removed
from the engine at the time at which the emulated engine would notice the disconnect. The header
`x-emulated-replica` of every answer names the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import time
from typing import Any, Final

from aiohttp import web

from router.lab.emulator.engine import Engine
from router.lab.emulator.http import faults as fault, text
from router.lab.emulator.http.bodies import Refusal, TokenizeBody, decode
from router.lab.emulator.http.generate import Generation, Handler
from router.lab.emulator.http.personas import persona_of
from router.lab.emulator.http.personas.base import Persona
from router.lab.emulator.http.pooling import Embeddings, Pooling
from router.lab.emulator.http.ranks import AllRanks, add_routes
from router.lab.emulator.http.shapes.base import encode
from router.lab.emulator.http.sse import Answered, json_response, json_value

_BODY_BYTES = 256 * 1024 * 1024
KEEP_ALIVE_S = 5.0  # uvicorn's default: the server closes a connection that is idle for longer

# The key under which an engine's application stores its `Generation`.
GENERATION: Final = web.AppKey("generation", Generation)
REPLICA: Final = "x-emulated-replica"


def make_app(engine: Engine, further: Sequence[Engine] = ()) -> web.Application:
    """The application of one engine. Run it with `handler_cancellation=True`.

    `further`: the other data-parallel ranks behind the same port.
    """
    persona = persona_of(engine)
    app = empty_app(persona)
    generation = app[GENERATION] = Generation(engine, persona)
    ranks = [generation, *(Generation(one, persona_of(one)) for one in further)]
    persona.ranks = (engine, *further)
    add_routes(app.router, ranks)
    pooling = Pooling(engine, generation)
    pooling.add_routes(app.router)
    Embeddings(generation, pooling).add_routes(app.router)
    _Plain(engine, generation).add_routes(app.router)
    persona.add_routes(app.router, AllRanks(ranks))
    name = engine.settings.name

    async def sign(_: web.Request, response: web.StreamResponse) -> None:
        response.headers[REPLICA] = name

    app.on_response_prepare.append(sign)
    return app


def empty_app(persona: Persona) -> web.Application:
    """An application without routes, whose errors have the persona's format."""

    @web.middleware
    async def refusals(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except Refusal as refusal:
            return persona.refusal(refusal)
        except Answered as answered:
            return answered.response
        except web.RequestPayloadError:
            # Such as a body without the compression that Content-Encoding names. Without the end of
            # the body, aiohttp would read it again and log the error.
            request.content.feed_eof()
            words = "the body cannot be decoded"
            response = persona.refusal(Refusal(400, words, "BadRequestError"))
            response.force_close()
            return response
        except web.HTTPException as err:
            headers = {"allow": err.headers["allow"]} if "allow" in err.headers else {}
            return json_response(encode({"detail": err.reason}), err.status, **headers)

    return web.Application(client_max_size=_BODY_BYTES, middlewares=[refusals])


class _Plain:
    """The routes that all personas share and that generate no text."""

    def __init__(self, engine: Engine, generation: Generation) -> None:
        self._engine = engine
        self._generation = generation
        self._persona = generation.persona
        self._started = int(time())

    def add_routes(self, router: web.UrlDispatcher) -> None:
        router.add_get("/v1/models", self.models)
        for path in self._persona.tokenize_paths:
            router.add_post(path, self.tokenize)
        router.add_get("/emulator/state", self.state)
        router.add_post("/emulator/restart", self.restart)
        router.add_get("/emulator/faults", self.faults)
        router.add_post("/emulator/faults", self.set_faults)
        router.add_delete("/emulator/faults", self.clear_faults)

    async def models(self, _: web.Request) -> web.Response:
        settings, row = self._engine.settings, self._persona.model_row
        rows = [row(model, self._started) for model in settings.models]
        own = {"parent": settings.models[0], "max_model_len": None}
        rows += [
            {**row(name, self._started), "root": f"/adapters/{name}", **own}
            for name in settings.adapters
        ]
        return json_value({"object": "list", "data": rows})

    async def tokenize(self, request: web.Request) -> web.Response:
        body = decode(await request.read(), TokenizeBody)
        self._generation.prepare.check_model(body.model)
        prompt = body.prompt_bytes()
        width = text.TOKEN_BYTES
        pieces = [
            prompt[at : at + width].decode("utf-8", "replace")
            for at in range(0, len(prompt), width)
        ]
        return json_value(self._persona.tokenized(text.token_ids(prompt), pieces))

    async def state(self, _: web.Request) -> web.Response:
        """Return the core's counters, for tests and benchmarks. No real engine has this endpoint.

        The counters begin at the start or at the last restart. `served` counts requests that ended
        normally, `submitted` those that entered the queue, `asked` those that were received.
        `prefilled_tokens` includes tokens of aborted requests and tokens that were computed again.
        `priorities` has the priorities of the last requests, as received.
        """
        core, settings, stats = self._engine.core, self._engine.settings, self._engine.stats
        answer: dict[str, Any] = {
            "replica": settings.name,
            "persona": settings.persona,
            "running": core.running,
            "waiting": core.waiting,
            "peak_waiting": core.peak_waiting,
            "asked": stats.asked,
            "asked_tokens": stats.asked_tokens,
            "submitted": core.submitted,
            "served": core.finished,
            "finished": core.finished,
            "aborted": core.aborted,
            "preemptions": core.preemptions,
            "steps": core.steps,
            "prefix_cache_queries": core.prefix_queries,
            "prefix_cache_hits": core.prefix_hits,
            "prompt_tokens": core.prompt_tokens,
            "prefilled_tokens": core.prefilled_tokens,
            "generation_tokens": core.generation_tokens,
            "kv_blocks": settings.num_blocks,
            "kv_block_size": settings.block_size,
            "kv_blocks_used": core.kv.used,
            "kv_blocks_peak": core.kv.peak,
            "kv_blocks_cached": core.kv.cached,
            "kv_evictions": core.kv.evictions,
            "max_num_seqs": settings.max_num_seqs,
            "adapter_loads": self._engine.adapters.loads,
            "asked_by_rank": [engine.stats.asked for engine in self._persona.ranks],
            "priorities": list(self._engine.priorities),
        }
        return json_value(answer)

    async def restart(self, _: web.Request) -> web.Response:
        """Simulate a restart: running and waiting requests are cut, and the cache is emptied."""
        return json_value({"lost": sum(len(rank.restart()) for rank in self._persona.ranks)})

    async def faults(self, _: web.Request) -> web.Response:
        return json_value(self._engine.faults.current)

    async def set_faults(self, request: web.Request) -> web.Response:
        try:
            chosen = fault.from_json(await request.read())
        except fault.FaultError as err:
            raise Refusal(400, str(err), "BadRequestError") from None
        for rank in self._persona.ranks:
            rank.set_faults(chosen)
        return json_value(self._engine.faults.current)

    async def clear_faults(self, _: web.Request) -> web.Response:
        for rank in self._persona.ranks:
            rank.set_faults(fault.NONE)
        return json_value(self._engine.faults.current)
