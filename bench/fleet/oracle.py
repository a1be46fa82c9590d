"""The oracle: a server that sends each request to the engine where its first token comes earliest.

All engines of a fleet share one process, so the oracle reads their queues, batches and prefix
caches. It computes a request's prompt and block hashes as the engines do, forecasts the time to
first token at each engine (`forecast`), and calls the handler of the best engine. There is
no second HTTP hop. The choice does not consider later requests, so a router that considers them can
be better.

`python -m bench.fleet.oracle` is `hedgerow emulate` with one more port, that of the oracle, after
the ports of the engines. The oracle serves only the paths of `generate.BODIES` that the engines
serve. Must never be offered as a router, because a real router cannot read the engines' state.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextvars import ContextVar
from time import monotonic
from typing import Final

from aiohttp import web

from bench.fleet.forecast import first_token_s
from router.lab.emulator import command
from router.lab.emulator.http import text
from router.lab.emulator.http.bodies import Body, Refusal, ResponsesBody, decode
from router.lab.emulator.http.generate import BODIES, Generation, Handler
from router.lab.emulator.http.server import GENERATION, REPLICA, empty_app

# The name of the engine that answers the current request; empty if the path is unknown. Each
# request has its own value, because aiohttp handles each request in its own task.
_REPLICA: Final = ContextVar("replica", default="")


def make_oracle(apps: Sequence[web.Application]) -> web.Application:
    """The application of the oracle. Run it with `handler_cancellation=True`.

    `apps`: those of the engines, at least one. They may differ only in their names and faults.
    """
    engines = [app[GENERATION] for app in apps]
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
        # No other task runs until the request is in the engine's queue, unless a fault delays it.
        return await best.handlers[path](request)

    return answer


def _best(engines: Sequence[Generation], request: web.Request, body: Body) -> Generation:
    """The engine with the earliest first token; if several are equal, the one with fewer requests.

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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.fleet.oracle")
    command.add_arguments(parser)
    sys.exit(command.main(parser.parse_args(), make_oracle))
