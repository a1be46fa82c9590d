"""KV events end to end: engines publish, the router subscribes, tokenizes and routes by blocks."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp

from router.app import App
from router.app.emulated_fleet import EmulatedFleet
from router.config.model import AccessLog, Admin, Config, Prefix, Replica
from tests.harness import clocks
from tests.harness.replica import eventually
from tests.harness.running import scenario

LONG = "The quick brown fox jumps over the lazy dog. " * 60


@asynccontextmanager
async def routing(*fleets: EmulatedFleet) -> AsyncIterator[App]:
    """An app in front of these engines, with a wait for token IDs that always suffices."""
    async with AsyncExitStack() as stack:
        urls: list[str] = []
        for fleet in fleets:
            stack.push_async_callback(fleet.stop)
            urls += await fleet.start()
        config = Config(
            listen="127.0.0.1:0",
            admin=Admin(listen="127.0.0.1:0"),
            replicas=tuple(Replica(url=url, id=f"r{n}") for n, url in enumerate(urls)),
            access_log=AccessLog(path=""),
            polling=clocks.polling(),
            health=clocks.health(),
            prefix=Prefix(exact=True, tokens_wait_s=10.0),
        )
        app = App(config, seed=1)
        await app.start()
        stack.push_async_callback(app.stop)
        yield app
    assert not any(app.census().values()), app.census()


async def ask(app: App, text: str, model: str = "emulated") -> None:
    body = {"model": model, "max_tokens": 4, "messages": [{"role": "user", "content": text}]}
    url = f"http://127.0.0.1:{app.port}/v1/chat/completions"
    async with aiohttp.ClientSession() as http, http.post(url, json=body) as answer:
        assert answer.status == 200, await answer.text()


async def heard_from(app: App, model: str) -> None:
    """Wait until KV events have reported blocks on a replica of the model."""
    ids = [r.id for r in app.parts.fleet.replicas.values() if model in (r.models or ())]
    await eventually(lambda: any(exact_blocks(app)[id] for id in ids), f"blocks of {model}")


def exact_blocks(app: App) -> dict[str, int]:
    return {r["id"]: r["exact_blocks"] or 0 for r in app.replicas()}


@scenario
async def test_a_prompt_goes_where_the_engine_says_its_blocks_are() -> None:
    async with routing(EmulatedFleet(2, "emulated", ["--kv-events"])) as app:
        watcher = app.parts.addons["kv_events"].watcher
        assert watcher is not None
        await eventually(lambda: watcher.connected == 2, "both publishers heard")
        await ask(app, LONG)
        await eventually(lambda: sum(exact_blocks(app).values()) > 0, "blocks are known")
        (home,) = (id for id, count in exact_blocks(app).items() if count)
        # The approximate index expires; blocks reported by the engine stay.
        for replica in app.parts.fleet.replicas.values():
            app.parts.fleet.knowledge.prefixes.clear(replica)
        known = exact_blocks(app)[home]
        for n in range(4):
            await ask(app, LONG + f"And then? {n}")
        served = {r["id"]: r["served"] for r in app.replicas()}
        assert served[home] == 5, served
        assert exact_blocks(app)[home] >= known
        tokens = app.parts.addons["kv_events"].tokens
        assert tokens is not None
        assert tokens.counters.remote >= 5


@scenario
async def test_each_model_has_its_tokens_counted_by_its_own_replicas() -> None:
    """Two models with two replicas each.

    An engine refuses to tokenize for a model it does not serve, and a request without token IDs is
    placed by the approximate index.
    """
    models = ("first", "second")
    fleets = [EmulatedFleet(2, model, ["--kv-events"]) for model in models]
    async with routing(*fleets) as app:
        addon = app.parts.addons["kv_events"]
        watcher, tokens = addon.watcher, addon.tokens
        await eventually(lambda: watcher.connected == 4, "all publishers heard")
        for n in range(4):
            for model in models:
                await ask(app, f"{model}: {LONG} And then? {n}", model)
                await heard_from(app, model)
                # The approximate index expires, so only token IDs find the blocks again.
                for replica in app.parts.fleet.replicas.values():
                    app.parts.fleet.knowledge.prefixes.clear(replica)
        assert (tokens.counters.remote, tokens.counters.failed) == (8, 0)
        served = [r["served"] for r in app.replicas()]
        assert [sorted(served[:2]), sorted(served[2:])] == [[0, 4], [0, 4]]


@scenario
async def test_a_client_that_leaves_while_its_tokens_are_asked_for_leaves_nothing() -> None:
    async with routing(EmulatedFleet(1, "emulated", ["--kv-events"])) as app:
        for _ in range(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", app.port)
            body = b'{"model":"emulated","messages":[{"role":"user","content":"%b"}]}' % (
                LONG.encode()
            )
            writer.write(
                b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\n"
                b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
                % (len(body), body)
            )
            await writer.drain()
            await asyncio.sleep(0)
            writer.transport.abort()
            del reader
        await eventually(
            lambda: not any(app.census()[k] for k in ("exchanges", "leases", "questions")),
            "nothing is under way",
        )


@scenario
async def test_each_data_parallel_rank_has_its_own_blocks() -> None:
    async with routing(
        EmulatedFleet(1, "emulated", ["--kv-events", "--data-parallel-size=2"])
    ) as app:
        watcher = app.parts.addons["kv_events"].watcher
        assert watcher is not None
        await eventually(lambda: list(app.parts.fleet.replicas) == ["r0", "r0@1"], "the ranks")
        await eventually(lambda: watcher.connected == 2, "both publishers heard")
        prompts = [f"{number} {LONG}" for number in range(2)]
        await asyncio.gather(*(ask(app, prompt) for prompt in prompts))
        await eventually(lambda: all(exact_blocks(app).values()), "blocks of both ranks")
        before = exact_blocks(app)
        assert before["r0"] == before["r0@1"]
