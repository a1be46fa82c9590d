"""A watcher over real replicas: finding publishers, subscribing, removing."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from router.addons.kv_events import extra
from router.addons.kv_events.watcher import KvWatcher
from router.config.in_force import InForce
from router.config.model import Config, KvEvents
from router.core.errors import ConfigError
from router.fleet.replica import Replica
from router.wire.pool import Address
from tests.addons.kv_events.app.hearing import until
from tests.addons.kv_events.app.publisher import Publisher
from tests.addons.kv_events.events import prompt, stored
from tests.fleet.helpers import Table
from tests.harness.listeners import dead_url
from tests.harness.messages import response
from tests.harness.replica import HostileReplica, ReplicaConnection
from tests.harness.running import scenario

A = [1, 2, 3, 4]


def vllm_says(publisher: Publisher) -> dict[str, Any]:
    def own(endpoint: str | None) -> str | None:
        return endpoint and endpoint.replace("127.0.0.1", "*")

    entry = {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": own(publisher.endpoint),
        "replay_endpoint": own(publisher.replay_endpoint),
        "topic": "",
    }
    return {"/kv_event_sources": {"0": entry}}


def sglang_says(publisher: Publisher) -> dict[str, Any]:
    entry = {
        "publisher": "zmq",
        "endpoint_host": "*",
        "endpoint_port_base": int(publisher.endpoint.rpartition(":")[2]),
        "topic": "",
    }
    return {"/server_info": {"kv_events": entry}}


class Engine:
    """The HTTP side of an engine: changeable answers, and a record of requests."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.fields: list[dict[str, str]] = []
        self.server = HostileReplica(self.behave, asked_apart=False)

    async def behave(self, connection: ReplicaConnection) -> None:
        while request := await connection.recv_request():
            self.asked.append(request.target)
            self.fields.append(dict(request.headers))
            answer = self.answers.get(request.target)
            if answer is None:
                await connection.send(response(404, "Connection: close"))
            else:
                body = json.dumps(answer).encode()
                await connection.send(response(200, "Connection: close", body=body))


@asynccontextmanager
async def serving(engine: Engine, *publishers: Publisher) -> AsyncIterator[None]:
    """Run the engine's HTTP side; at the end the publishers are closed as well."""
    engine.server.start()
    try:
        yield
    finally:
        await engine.server.stop()
        for publisher in publishers:
            publisher.close()


@asynccontextmanager
async def watching(*urls: str, **options: Any) -> AsyncIterator[tuple[KvWatcher, list[Replica]]]:
    """A watcher over replicas at these URLs; at the end nothing of the watcher may remain."""
    config = options.pop("config", {})
    table = Table()
    errors: list[BaseException] = []
    before = asyncio.all_tasks()
    watcher = KvWatcher(
        *(InForce(Config(), "secret"), Random(1), errors.append),
        settled_s=options.get("settled_s", 0.05),
        unsettled_s=0.02,
    )
    watcher.start()
    replicas = [table.add(f"r{n}", None, url=url, **config) for n, url in enumerate(urls)]
    try:
        for replica in replicas:
            replica.engine = options.get("engine")
            if "resolve" in options:
                host = replica.endpoint.address.host
                replica.pool.address = Address(host, 9, resolve=options["resolve"])
            watcher.watch(replica)
        yield watcher, replicas
    finally:
        await watcher.stop()
        await asyncio.sleep(0)
        table.close()
    assert watcher.running == 0
    assert watcher._context.closed
    assert asyncio.all_tasks() <= before
    assert not errors


@pytest.mark.parametrize("engine", ["vllm", None])
@scenario
async def test_vllm_is_asked(engine: str | None) -> None:
    publisher = Publisher()
    publisher.publish(stored([1], A))
    http = Engine(vllm_says(publisher))
    async with (
        serving(http, publisher),
        watching(http.server.url, engine=engine) as (watcher, (replica,)),
    ):
        await until(lambda: watcher.index.match(prompt(*A)) == {replica: 1})
        assert watcher.connected == 1
        assert http.asked[0] == "/kv_event_sources"
        assert http.fields[0]["authorization"] == "Bearer secret"


@pytest.mark.parametrize("engine", ["sglang", None])
@scenario
async def test_sglang_is_asked(engine: str | None) -> None:
    publisher = Publisher(replay=False)
    http = Engine(sglang_says(publisher))
    async with (
        serving(http, publisher),
        watching(http.server.url, engine=engine) as (watcher, (replica,)),
    ):
        await publisher.subscribed.wait()
        publisher.publish(stored([1], A))
        await until(lambda: watcher.index.match(prompt(*A)) == {replica: 1})


class Resolver:
    """The data plane's resolver of a name that no name server knows."""

    def __init__(self) -> None:
        self.asked = 0
        self.knows = True

    async def __call__(self) -> list[str]:
        self.asked += 1
        if not self.knows:
            raise OSError("the name has no address")
        return ["127.0.0.1"]


@pytest.mark.parametrize("is_configured", [False, True], ids=["asked for", "configured"])
@scenario
async def test_names_are_resolved_as_for_requests(is_configured: bool) -> None:
    """The router's resolver is used for HTTP requests and for ZMQ, which would otherwise query a
    name server itself.
    """
    publisher = Publisher()
    publisher.publish(stored([1], A))
    endpoint = publisher.endpoint.replace("127.0.0.1", "replica.test")
    config = {"kv_events": KvEvents(endpoint=endpoint)} if is_configured else {}
    http = Engine(vllm_says(publisher))
    resolver = Resolver()
    async with serving(http, publisher):
        url = f"http://replica.test:{http.server.port}"
        async with watching(url, resolve=resolver, config=config) as (watcher, (replica,)):
            await until(lambda: watcher.connected == 1)
            # A name without an address changes nothing; a restarted publisher is connected again.
            resolver.knows = False
            asked = resolver.asked
            await until(lambda: resolver.asked > asked + 3)
            assert watcher.subscribers == watcher.connected == 1
            await publisher.restart()
            await publisher.subscribed.wait()
            publisher.publish(stored([2], A))
            await until(lambda: watcher.index.match(prompt(*A)) == {replica: 1})


@scenario
async def test_a_source_whose_name_has_no_address_yet_is_tried_again() -> None:
    publisher = Publisher()
    resolver = Resolver()
    resolver.knows = False
    events = KvEvents(endpoint=publisher.endpoint.replace("127.0.0.1", "replica.test"))
    publisher.publish(stored([1], A))
    async with (
        serving(Engine({}), publisher),
        watching(
            "http://replica.test:9",
            config={"kv_events": events},
            resolve=resolver,
            settled_s=3600.0,
        ) as (watcher, _),
    ):
        await until(lambda: resolver.asked > 3)
        assert watcher.subscribers == 0
        resolver.knows = True
        await until(lambda: watcher.connected == 1)


@scenario
async def test_an_engine_without_events_is_asked_again() -> None:
    publisher, other = Publisher(), Publisher()
    http = Engine({})
    async with (
        serving(http, publisher, other),
        watching(http.server.url) as (watcher, (replica,)),
    ):
        await until(lambda: len(http.asked) >= 4)
        assert watcher.subscribers == 0 and replica not in watcher.index
        http.answers = vllm_says(publisher)
        await until(lambda: watcher.connected == 1)
        # The engine restarts with other ports.
        http.answers = vllm_says(other)
        await other.subscribed.wait()
        await until(lambda: not publisher.subscribed.is_set())
        assert watcher.subscribers == 1
        # Known publishers stay while the engine does not answer. They are removed when it answers
        # without KV events.
        http.answers = {}
        await until(lambda: watcher.subscribers == 0)
        assert replica not in watcher.index


@scenario
async def test_a_replica_that_does_not_answer_keeps_its_subscriber() -> None:
    publisher = Publisher()
    publisher.publish(stored([1], A))
    http = Engine(vllm_says(publisher))
    async with watching(dead_url()) as (watcher, (replica,)):
        async with serving(http, publisher):
            replica.config = type(replica.config)(url=http.server.url)
            await until(lambda: watcher.index.entries(replica) == 1)
        replica.config = type(replica.config)(url=dead_url())
        for _ in range(3):
            await watcher._sources(replica)
        assert watcher.subscribers == 1 and watcher.index.entries(replica) == 1


def test_a_missing_package_is_named() -> None:
    with pytest.raises(ConfigError) as caught:
        extra.load("no_such_module_at_all", "pyzmq", "prefix.exact")
    (line,) = caught.value.problems
    assert line.startswith("prefix.exact: needs the package pyzmq")
    assert "pip install '.[kv-events]'" in line
