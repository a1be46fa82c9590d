"""An engine that continues a stream without a reader (SGLang) gets an abort before the close."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from router.app.emulated_fleet import EmulatedFleet
from router.config.model import Aborts, Hedging, Keys
from router.dispatch.attempts.abort import MOST
from tests.app.test_keys_at_the_door import BEARER, acme, file_of
from tests.harness import kit

SGLANG = {"engine": "sglang", "priority": "none"}  # the router adds no other member to a body
LONG = {"max_tokens": 1500, "ignore_eos": True}


@asynccontextmanager
async def sglang(*options: str) -> AsyncIterator[str]:
    """One emulated SGLang that continues after a client's disconnect."""
    child = EmulatedFleet(1, model="m", options=["--persona=sglang", "--forget-leavers", *options])
    (url,) = await child.start()
    try:
        yield url
    finally:
        await child.stop()


async def state(url: str) -> dict[str, Any]:
    async with aiohttp.ClientSession() as session, session.get(url + "/emulator/state") as answer:
        told: dict[str, Any] = await answer.json()
        return told


async def until_state(url: str, what: str, **due: int) -> dict[str, Any]:
    async with asyncio.timeout(10):
        while True:
            told = await state(url)
            if all(told[name] == value for name, value in due.items()):
                return told
            await asyncio.sleep(0.005)
    raise AssertionError(what)


async def begin(router: kit.Router, **extra: Any) -> Any:
    """A client with a long stream of which it has received some content."""
    client = await router.send(kit.chat(stream=True, **{**LONG, **extra}))
    await client.recv_until(b"content")
    return client


# -- an emulated engine -----------------------------------------------------------------------


@kit.scenario
async def test_the_engine_stops_when_its_client_leaves() -> None:
    async with sglang() as url, kit.running(url, replica=SGLANG) as router:
        client = await begin(router)
        assert (await state(url))["running"] == 1
        client.rst()
        told = await until_state(url, "the engine works for nobody", running=0, waiting=0)
        assert (told["aborted"], told["served"]) == (1, 0)
        assert told["generation_tokens"] < LONG["max_tokens"]
        assert router.app.parts.aborter.accepted == 1
        await kit.eventually(lambda: not router.app.census()["replica_busy"], "closed")


@kit.scenario
async def test_the_loser_of_a_race_is_stopped_at_its_engine() -> None:
    """Without an abort, the loser would run on, even after its engine recovers."""
    soon = Hedging(policy="fixed", options={"delay_s": 0.05}, budget=1.0)
    options = ["--persona=sglang", "--forget-leavers", "--fault", "slow=1000; replica=emulated-0"]
    child = EmulatedFleet(2, model="m", options=options)
    urls = await child.start()
    try:
        async with kit.running(*urls, replica=SGLANG, hedging=soon) as router:
            asked = 0
            # Until the slow engine got an attempt.
            while not (await state(urls[0]))["submitted"]:
                asked += 1
                got = await router.ask(kit.chat("x-priority: high", stream=True, max_tokens=3))
                assert (got.status, got.events()[-1]) == (200, "[DONE]")
            told = await until_state(urls[0], "it works for nobody", running=0, waiting=0)
            assert (told["submitted"], told["aborted"], told["served"]) == (1, 1, 0)
            winner = await state(urls[1])
            assert (winner["aborted"], winner["running"]) == (0, 0)
            *_, line = await router.log(asked)
            # The slow engine has the copy if the other one was slow to answer.
            ends = {replica: reason for replica, _, reason, *_ in line["tried"]}
            assert ends == {"r0": "hedge_lost", "r1": "ok"}
    finally:
        await child.stop()


@kit.scenario
async def test_a_stop_of_the_router_stops_the_engine() -> None:
    async with sglang() as url, kit.running(url, replica=SGLANG) as router:
        await begin(router)
        await router.app.stop()
        await until_state(url, "the engine works for nobody", running=0, aborted=1)


# -- a scripted one ---------------------------------------------------------------------------


class Scripted:
    """A replica that streams a token and continues for ever, and records its aborts."""

    def __init__(self, on_abort: kit.Behaviour | None = None) -> None:
        self.on_abort = on_abort
        self.asked: list[kit.Request] = []
        self.aborts: list[kit.Request] = []
        self.open = 0  # number of running streams when each abort arrived

    async def __call__(self, connection: kit.ReplicaConnection) -> None:
        while request := await connection.recv_request():
            if request.target == "/abort_request":
                self.aborts.append(request)
                if self.on_abort is not None:
                    await self.on_abort(connection)
                else:
                    await connection.send(kit.json_response({}))
                continue
            if request.method == "GET":  # health and engine queries
                await connection.send(kit.json_response({}))
                continue
            self.asked.append(request)
            await connection.send(kit.SSE_HEAD, kit.chunk(kit.role()), kit.chunk(kit.token("t")))
            self.open += 1
            await kit.until_closed(connection)
            self.open -= 1

    def rids(self) -> list[str]:
        return [json.loads(request.body)["rid"] for request in self.asked]


async def hang(connection: kit.ReplicaConnection) -> None:
    await kit.until_closed(connection)


@kit.scenario
async def test_the_abort_comes_first_and_names_the_attempt() -> None:
    seen: list[int] = []

    async def look(connection: kit.ReplicaConnection) -> None:
        seen.append(scripted.open)
        await connection.send(kit.json_response({}))

    scripted = Scripted(look)
    async with kit.running(scripted, replica=SGLANG) as router:
        clients = [await begin(router) for _ in range(3)]
        for client in clients:
            client.rst()
        await kit.eventually(lambda: not scripted.open, "all closed")
        rids = scripted.rids()
        assert len({len(rid) for rid in rids}) == 1
        assert len(set(rids)) == 3
        assert sorted(json.loads(request.body)["rid"] for request in scripted.aborts) == sorted(
            rids
        )
        assert seen and all(seen), "a connection was closed before the engine was told"


@kit.scenario
async def test_an_engine_that_does_not_answer_delays_nothing() -> None:
    scripted = Scripted(hang)
    async with kit.running(scripted, replica=SGLANG, aborts=Aborts(timeout_s=0.3)) as router:
        client = await begin(router)
        client.rst()
        await kit.eventually(lambda: bool(scripted.aborts), "it is told")
        census = router.app.census()
        assert (census["leases"], census["exchanges"], census["aborts"]) == (0, 0, 1)
        await kit.eventually(lambda: not scripted.open, "closed all the same")
        assert router.app.parts.aborter.failed == 1


@kit.scenario
async def test_too_many_at_once_are_closed_and_no_more() -> None:
    scripted = Scripted(hang)
    async with kit.running(
        scripted, replica=SGLANG, aborts=Aborts(timeout_s=0.5), limits={"connecting": 512}
    ) as router:
        clients = [await begin(router) for _ in range(MOST + 5)]
        for client in clients:
            client.rst()
        await kit.eventually(lambda: router.app.parts.aborter.skipped == 5, "the last five")
        await kit.eventually(lambda: not scripted.open, "all closed")
        assert router.app.parts.aborter.failed == MOST


@kit.scenario
async def test_the_clients_own_key_opens_the_endpoint() -> None:
    scripted = Scripted()
    async with kit.running(scripted, replica=SGLANG) as router:
        client = await router.send(kit.chat("Authorization: Bearer sk-1", stream=True))
        await client.recv_until(b"content")
        client.rst()
        await kit.eventually(lambda: bool(scripted.aborts), "it is told")
        assert dict(scripted.aborts[0].headers)["authorization"] == "Bearer sk-1"


@pytest.mark.parametrize("forward", [True, False])
@kit.scenario
async def test_a_key_that_is_ours_goes_with_the_abort_only_where_it_goes_with_requests(
    tmp_path: Path, forward: bool
) -> None:
    scripted = Scripted()
    keys = Keys(file=file_of(tmp_path, acme()), forward=forward)
    async with kit.running(scripted, replica=SGLANG, keys=keys) as router:
        client = await router.send(kit.chat(BEARER, stream=True))
        await client.recv_until(b"content")
        client.rst()
        await kit.eventually(lambda: bool(scripted.aborts), "it is told")
        for told in (*scripted.asked, *scripted.aborts):
            assert ("authorization" in dict(told.headers)) == forward


@kit.scenario
async def test_a_reload_switches_it_off() -> None:
    scripted = Scripted()
    async with kit.running(scripted, replica=SGLANG) as router:
        (await begin(router)).rst()
        await kit.eventually(lambda: bool(scripted.aborts), "it is told")
        router.change(aborts=Aborts(enabled=False))
        await router.app.reload()
        (await begin(router)).rst()
        await kit.eventually(lambda: not scripted.open, "closed")
        assert ["rid" in json.loads(request.body) for request in scripted.asked] == [True, False]
        assert len(scripted.aborts) == 1


@kit.scenario
async def test_a_whole_answer_is_not_aborted() -> None:
    replica = kit.HostileReplica(kit.chat_either)
    async with kit.running(replica, replica=SGLANG) as router:
        for stream in (True, False):
            assert (await router.ask(kit.chat(stream=stream))).status == 200
        await router.quiet()
        posted = {request.target for request in replica.requests if request.method == "POST"}
        assert posted == {"/v1/chat/completions"}
        assert router.app.parts.aborter.accepted == 0


UNNAMED = {
    "several choices": ("/v1/chat/completions", {"messages": [], "n": 2}),
    "several prompts": ("/v1/completions", {"prompt": ["a", "b"]}),
    "another route": ("/v1/embeddings", {"input": "a"}),
}
NAMED = {
    "a chat": ("/v1/chat/completions", {"messages": []}),
    "a prompt": ("/v1/completions", {"prompt": "a", "n": 1}),
    "its client named it": ("/v1/chat/completions", {"messages": [], "rid": ""}),
    "no name": ("/v1/completions", {"prompt": "a", "rid": None}),
    "a stream": ("/v1/completions", {"prompt": "a", "stream": True}),
}


async def sent(path: str, body: dict[str, Any], **replica: Any) -> dict[str, Any]:
    async def behave(connection: kit.ReplicaConnection) -> None:
        while request := await connection.recv_request():
            if request.method == "GET":
                await connection.send(kit.json_response({}))
                continue
            asked.append(json.loads(request.body))
            streams = (kit.SSE_HEAD, kit.chunk(kit.token("t")), kit.chunk(kit.DONE), kit.LAST_CHUNK)
            await connection.send(*(streams if asked[-1].get("stream") else (kit.completion(),)))

    asked: list[dict[str, Any]] = []
    async with kit.running(behave, replica=replica) as router:
        assert (await router.ask(kit.post_json(path, {"model": "m", **body}))).status == 200
    (one,) = asked
    return one


@pytest.mark.parametrize("rid", ["", "mine", ["a", "b"]])
@pytest.mark.parametrize("name", UNNAMED)
@kit.scenario
async def test_a_clients_own_name_stays_outside(name: str, rid: object) -> None:
    """SGLang aborts every ID with the given prefix when its connection closes: "" means all."""
    path, body = UNNAMED[name]
    assert await sent(path, body | {"rid": rid}, **SGLANG) == {"model": "m", **body, "rid": None}


@pytest.mark.parametrize("name", NAMED)
@kit.scenario
async def test_what_gets_one(name: str) -> None:
    path, body = NAMED[name]
    got = await sent(path, body, **SGLANG)
    rid = got.pop("rid")
    assert re.fullmatch("[0-9a-f]{24}-00", rid)
    got.pop("stream_options", None)
    body = {key: value for key, value in body.items() if key != "rid"}
    assert got == {"model": "m", **body}


@pytest.mark.parametrize("engine", ["vllm", "trtllm", "tgi", "llamacpp", "other"])
@kit.scenario
async def test_other_engines_get_none(engine: str) -> None:
    path, body = NAMED["a prompt"]
    found = await sent(path, body, engine=engine)
    assert ("priority" in found) == (engine == "vllm"), "the router's own number"
    found.pop("priority", None)
    assert found == {"model": "m", **body}
