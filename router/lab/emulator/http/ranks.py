"""Several data-parallel ranks behind one port, as vLLM's and SGLang's API servers have them.

Each rank is an engine of its own. The request header `x-data-parallel-rank` chooses the rank; a
request without it goes to the rank with the fewest requests. The answers about the whole server
(metrics, loads, publishers of KV events) show each rank.
"""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import web

from router.lab.emulator.engine import Engine
from router.lab.emulator.http.generate import Generation, Handler
from router.lab.emulator.http.personas.base import Killer

HEADER = "x-data-parallel-rank"


class AllRanks(Killer):
    """Ends running answers of any rank."""

    def __init__(self, ranks: Sequence[Generation]) -> None:
        self._ranks = ranks

    def kill(self, id: str, is_prefix: bool = False) -> int:
        return sum(rank.delivery.kill(id, is_prefix) for rank in self._ranks)


def add_routes(router: web.UrlDispatcher, ranks: Sequence[Generation]) -> None:
    """Add the routes on which the ranks generate. `ranks`: at least one."""
    if len(ranks) == 1:
        ranks[0].add_routes(router)
        return
    for path in ranks[0].handlers:
        router.add_post(path, _route(ranks, path))


def made(first: Engine) -> list[Engine]:
    """All ranks of an engine: itself, and further engines with the same settings."""
    ranks = [first]
    for rank in range(1, first.settings.data_parallel_size):
        engine = Engine(first.settings)
        engine.rank = rank
        ranks.append(engine)
    return ranks


def _route(ranks: Sequence[Generation], path: str) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        return await _chosen(ranks, request.headers.get(HEADER, "")).handlers[path](request)

    return answer


def _chosen(ranks: Sequence[Generation], header: str) -> Generation:
    # vLLM ignores a header that is not a number.
    if header.isdecimal() and int(header) < len(ranks):
        return ranks[int(header)]
    return min(ranks, key=lambda one: one.engine.core.running + one.engine.core.waiting)
