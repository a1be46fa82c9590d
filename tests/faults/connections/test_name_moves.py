"""A replica's name gets another address: streams stay where they are, new requests follow."""

import asyncio
import socket
from typing import Any

import pytest

import router.fleet.monitor.resolve as resolve
from router.config.model import Prefix
from tests.addons.needed import needs
from tests.harness import kit

HOST = "replica.test"  # RFC 6761: no name server knows it


class Named(kit.HostileReplica):
    """A replica at an address of its own, known to the router by its name only."""

    def __init__(self, address: str, behave: kit.Behaviour) -> None:
        super().__init__(behave)
        self.address = address

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def start(self, port: int = 0) -> None:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((self.address, port))
        except OSError:
            listener.close()
            raise
        listener.listen(64)
        listener.setblocking(False)
        self.port = listener.getsockname()[1]
        self._listener = listener
        self._accepting = asyncio.create_task(self._accept(listener))


async def start_on_one_port(first: Named, second: Named) -> None:
    """Start both at the same port, which another process may use at one of the addresses."""
    for _ in range(20):
        first.start()
        try:
            return second.start(first.port)
        except OSError:
            await first.stop()
    raise AssertionError("no port is free at both addresses")


class Names:
    """A name server for one name; it fails while `addresses` is None."""

    def __init__(self, *addresses: str) -> None:
        self.addresses: tuple[str, ...] | None = addresses
        self.asked = 0
        loop: Any = asyncio.get_running_loop()
        self._others = loop.getaddrinfo
        loop.getaddrinfo = self  # replaced for this event loop only

    async def __call__(self, host: Any, port: Any, **hints: Any) -> list[Any]:
        if host not in (HOST, HOST.encode()):
            return list(await self._others(host, port, **hints))
        self.asked += 1
        if self.addresses is None:
            raise socket.gaierror(socket.EAI_AGAIN, "the name server does not answer")
        return [
            (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port or 0))
            for address in self.addresses
        ]


@kit.scenario
async def test_during_a_stream() -> None:
    go = asyncio.Event()

    async def ends(connection: kit.ReplicaConnection) -> None:
        await connection.recv_request()
        await connection.send(kit.SSE_HEAD, kit.chunk(kit.role()), kit.chunk(kit.token("a")))
        await go.wait()
        await connection.send(kit.chunk(kit.DONE), kit.LAST_CHUNK)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resolve, "TTL_S", 0.0)
        names = Names("127.0.0.1")
        old, new = Named("127.0.0.1", ends), Named("127.0.0.2", kit.json_ok)
        await start_on_one_port(old, new)
        try:
            async with kit.running(old) as router:
                stream = await router.send(kit.chat(stream=True))
                while b'"a"' not in stream.unread:
                    assert await stream.fill()
                names.addresses = ("127.0.0.2",)
                for _ in range(3):
                    assert (await router.ask(kit.chat())).status == 200
                assert len(new.requests) == 3
                assert len(old.requests) == 1
                assert stream.ended is None
                assert old.sessions[0].ended is None
                names.addresses = None  # the name server fails: the last answer stays in use
                for _ in range(3):
                    assert (await router.ask(kit.chat())).status == 200
                assert len(new.requests) == 6
                go.set()
                answer = await stream.recv_response()
                assert answer.complete
                assert answer.events()[-1] == "[DONE]"
                assert {line["reason"] for line in await router.log(7)} == {"ok"}
        finally:
            await new.stop()
        assert not new.failures


@kit.scenario
async def test_the_first_address_is_dead() -> None:
    """Among several addresses, the router uses one that answers, and counts no failure."""
    Names("127.0.0.3", "127.0.0.1")
    async with kit.running(
        started(Named("127.0.0.1", kit.json_ok)), kit.json_ok, policy="round_robin"
    ) as router:
        for _ in range(4):
            assert (await router.ask(kit.chat())).status == 200
        assert [line["attempts"] for line in await router.log(4)] == [1, 1, 1, 1]
        assert [shown["state"] for shown in router.app.replicas()] == ["ready", "ready"]


@pytest.mark.parametrize("answer", [None, ()], ids=["fails", "no address"])
@kit.scenario
async def test_no_answer_keeps_the_last_one(answer: tuple[str, ...] | None) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resolve, "TTL_S", 0.0)
        names = Names("127.0.0.1")
        behave = Named("127.0.0.1", json_once)
        async with kit.running(started(behave)) as router:
            assert (await router.ask(kit.chat())).status == 200
            names.addresses = answer
            asked = names.asked
            for _ in range(3):
                assert (await router.ask(kit.chat())).status == 200
            assert names.asked > asked
            assert {line["reason"] for line in await router.log(4)} == {"ok"}


async def json_once(connection: kit.ReplicaConnection) -> None:
    """Serve one request per connection, so that each request needs a name lookup."""
    if await connection.recv_request():
        await connection.send(kit.completion("Connection: close"))
        connection.close()


def started(made: Named) -> Named:
    made.start()
    return made


async def tokenizes_once(connection: kit.ReplicaConnection) -> None:
    """Serve one request per connection, including the requests for token IDs and KV events."""
    if asked := await connection.recv_request():
        if asked.target == "/tokenize":
            await connection.send(
                kit.json_response({"tokens": [1, 2, 3]}, 200, "Connection: close")
            )
        elif asked.method == "GET":
            await connection.send(kit.response(404, "Connection: close"))
        else:
            await connection.send(kit.completion("Connection: close"))
        connection.close()


@needs("kv_events")
@kit.scenario
async def test_the_tokenizer_keeps_the_last_answer_too() -> None:
    """In a DNS outage requests get their token IDs, so exact prefix routing continues."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resolve, "TTL_S", 0.0)
        names = Names("127.0.0.1")
        exact = Prefix(exact=True, tokens_wait_s=5.0)
        async with kit.running(started(Named("127.0.0.1", tokenizes_once)), prefix=exact) as router:
            tokens = router.app.parts.addons["kv_events"].tokens
            assert tokens is not None
            for n in range(3):
                messages = [{"role": "user", "content": f"{n}: {'a long prompt ' * 200}"}]
                assert (await router.ask(kit.chat(messages=messages))).status == 200
                assert (tokens.counters.remote, tokens.counters.failed) == (n + 1, 0)
                names.addresses = None


@kit.scenario
async def test_probes_keep_the_last_answer_too() -> None:
    """In a DNS outage a serving replica must not be marked down by its probes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resolve, "TTL_S", 0.0)
        names = Names("127.0.0.1")
        replica = started(Named("127.0.0.1", json_once))
        async with kit.running(replica, health={"interval_s": 0.02, "fall": 1}) as router:
            health = router.app.parts.fleet.replicas["r0"].health
            names.addresses = None
            streak = health.probe_streak
            await kit.eventually(
                lambda: health.probe_streak < 0 or health.probe_streak > streak + 5, "more probes"
            )
            assert health.up
            assert (await router.ask(kit.chat())).status == 200
