"""A port that sends each request to the engine with the earliest first token, by true state.

All engines of a fleet share one process, so this server reads their queues, batches and prefix
caches. It computes a request's prompt and block hashes as the engines do, forecasts the first token
at each engine (`core/forecast.py`), and calls the handler of the best engine: no second HTTP hop.
The choice is greedy, so it is no bound: a router that leaves room for later requests can be better.

Serves the paths of `generate.BODIES` that the engines serve, and no other path. Must never be
offered as a router: no router can know what it knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from time import monotonic
from typing import Final

from aiohttp import web

from router.emulator.core.forecast import first_token_s
from router.emulator.http import text
from router.emulator.http.bodies import Body, Refusal, ResponsesBody, decode
from router.emulator.http.generate import BODIES, Generation, Handler
from router.emulator.http.server import REPLICA, empty_app

# The engine that answers the current request; empty: none, because the path is unknown. aiohttp
# handles each request in a task of its own.
_REPLICA: Final = ContextVar("replica", default="")


def make_oracle(engines: Sequence[Generation]) -> web.Application:
    """The application of the oracle. Run it with `handler_cancellation=True`.

    `engines`: at least one; they differ in nothing but their names and faults.
    """
    app = empty_app(engines[0].persona)
    for path in engines[0].handlers:
        app.router.add_post(path, _route(engines, path))

    async def sign(_: web.Request, response: web.StreamResponse) -> None:
        if name := _REPLICA.get():
            response.headers[REPLICA] = name

    app.on_response_prepare.append(sign)
    return app


def _route(engines: Sequence[Generation], path: str) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        try:
            best = _best(engines, request, decode(raw, BODIES[path]))
        except Refusal:
            best = engines[0]  # its handler refuses the request in the engine's own way
        _REPLICA.set(best.engine.settings.name)
        # Nothing runs between the choice and the engine's queue, unless a fault delays the request.
        return await best.handlers[path](request)

    return answer


def _best(engines: Sequence[Generation], request: web.Request, body: Body) -> Generation:
    """The engine with the earliest first token; ties by load, then the first in order.

    Raises Refusal for a request that no engine can generate.
    """
    if isinstance(body, ResponsesBody) and body.previous_response_id is not None:
        id = body.previous_response_id
        engines = [one for one in engines if one.has_stored(id)] or engines
    first = engines[0]
    prompt = first.prompt(body)
    hashes = first.prepare.block_hashes(first.prepare.check_model(body.model), body, prompt)
    tokens = len(prompt) // text.TOKEN_BYTES
    rank = first.persona.rank(request.headers, body.priority)
    now = monotonic()

    def order(one: Generation) -> tuple[float, int]:
        core = one.engine.core
        return first_token_s(core, tokens, hashes, now, rank), core.running + core.waiting

    return min(engines, key=order)
