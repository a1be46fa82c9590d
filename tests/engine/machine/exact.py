"""A router in this process that follows the KV events of real engines, with a readable index."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx

from router.addons.kv_events.chains import TokenChains, pack
from router.app import App
from router.config.model import AccessLog, Admin, Config, Prefix, Replica as ReplicaConfig
from router.fleet.replica import Replica
from tests.engine.loads import bodies
from tests.engine.machine.fleet import BLOCK_TOKENS, MODEL, Engine

WITHIN_S = 30.0


@asynccontextmanager
async def knowing(*engines: Engine) -> AsyncIterator[App]:
    """An app that receives the KV events of `engines`; replica IDs are the engines' names."""
    config = Config(
        listen="127.0.0.1:0",
        admin=Admin(listen="127.0.0.1:0"),
        replicas=tuple(ReplicaConfig(url=engine.url, id=engine.name) for engine in engines),
        access_log=AccessLog(path=""),
        prefix=Prefix(exact=True),
    )
    app = App(config)
    await app.start()
    try:
        watcher = app.parts.addons["kv_events"].watcher
        assert watcher is not None
        publishers = sum(engine.ranks for engine in engines)
        fleet = app.parts.fleet
        await eventually(lambda: len(fleet.replicas) == publishers, "every rank is found")
        await eventually(lambda: watcher.connected == publishers, "every publisher is heard")
        yield app
    finally:
        await app.stop()


async def eventually(condition: Callable[[], bool], what: str) -> None:
    try:
        async with asyncio.timeout(WITHIN_S):
            while not condition():
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"never happened: {what}") from None


def replica(app: App, engine: Engine, rank: int = 0) -> Replica:
    return app.parts.fleet.replicas[engine.name].ranks[rank]


async def expected_hits(app: App, engine: Engine, prompt: str, rank: int = 0) -> int:
    """Prompt tokens in the cache of an engine's rank according to the router's index."""
    watcher = app.parts.addons["kv_events"].watcher
    assert watcher is not None
    async with httpx.AsyncClient(base_url=engine.url, timeout=WITHIN_S) as http:
        answer = await http.post("/tokenize", json={"model": MODEL, "prompt": prompt})
    chains = TokenChains(pack(answer.json()["tokens"]))
    return watcher.index.match(chains).get(replica(app, engine, rank), 0) * BLOCK_TOKENS


async def hits_of(engine: Engine, prompt: str, rank: int = 0) -> int:
    """Prompt tokens that a rank of the engine itself finds in its cache, by its own counter."""
    before = engine.state().cache_hits
    chosen = {"x-data-parallel-rank": str(rank)}
    async with httpx.AsyncClient(base_url=engine.url, timeout=WITHIN_S, headers=chosen) as http:
        answer = await http.post("/v1/completions", json=bodies.completion(prompt, 1))
        assert answer.status_code == 200, answer.text
    return engine.state().cache_hits - before
