"""A cold replica gets copies of streams with reused prefixes; whatever ends a copy, nothing stays.

The replica that serves the clients is an emulated engine. The cold replica is an emulated engine,
or one that the test controls.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from router.config.model import Hedging
from router.dispatch.hedging.warm_up import LOOK_S
from router.fleet.replica import Replica
from tests.harness.behaviours import until_closed
from tests.harness.client import RawClient
from tests.harness.emulated import emulated
from tests.harness.messages import SSE_HEAD, chat, chunk, json_response, response, role
from tests.harness.replica import Behaviour, HostileReplica, ReplicaConnection, eventually
from tests.harness.running import Router, running, scenario

RULES = Hedging(warm_up_s=600.0, budget=1.0)
PREFIX = "The rules that every request repeats. " * 120
LONG = 100_000  # output tokens: the stream goes on until its client leaves
SIZES = {"max_model_len": LONG + 8192, "num_blocks": 16384}


def asks(number: int, *fields: str, tokens: int = 2, **more: Any) -> bytes:
    """A stream whose prompt is the common prefix and a question of its own."""
    messages = [{"role": "user", "content": f"{PREFIX} Question {number}: {str(number) * 600}"}]
    more |= {"messages": messages, "max_tokens": tokens, "ignore_eos": True}
    return chat(*fields, stream=True, **more)


@asynccontextmanager
async def cold_beside(
    url: str, rules: Hedging = RULES, **options: Any
) -> AsyncIterator[tuple[Router, Replica]]:
    """A router whose replica `r0` has served the prefix three times, and the new replica `r1`."""
    async with emulated("vllm", **{**SIZES, "speed": 50.0}) as warm:
        # Engines in one process have one start time, so they must be known to be different engines.
        first = {"node": "a"}
        async with running(warm.url, hedging=rules, replica=first, **options) as router:
            for number in range(3):
                assert (await router.ask(asks(number))).complete
            body = {"url": url, "id": "r1", "node": "b"}
            added = await router.admin("/replicas", "POST", body=body)
            assert added.status == 201
            fleet = router.app.parts.fleet
            await eventually(lambda: len(fleet.serving.ready) == 2, "both replicas are ready")
            await asyncio.sleep(2.0 * LOOK_S)
            # As after a longer time without hedges, of which each request paid for a part.
            router.app.parts.hedger._budget.spare = 1e5
            yield router, fleet.replicas["r1"]


def counts(router: Router) -> dict[str, int]:
    return {what: n for what, n in router.app.parts.hedger.metrics.warm_ups.items() if n}


async def begins(router: Router, data: bytes) -> RawClient:
    """Send a stream and read it up to its first token."""
    client = await router.client()
    await client.send(data)
    await client.recv_until(b'"content":')
    return client


async def ended(router: Router, outcome: str, count: int = 1) -> None:
    await eventually(lambda: counts(router) == {outcome: count}, f"{count} {outcome}")
    for client in router.clients:
        client.close()
    await router.quiet()
    assert counts(router) == {outcome: count}
    assert not any(r.inflight for r in router.app.parts.fleet.replicas.values())
    assert not router.app.parts.fleet.leaving


@scenario
async def test_a_copy_fills_the_cache_and_is_cancelled() -> None:
    async with emulated("vllm", **SIZES) as cold, cold_beside(cold.url) as (router, replica):
        client = await begins(router, asks(3, tokens=LONG))
        await eventually(lambda: counts(router) == {"filled": 1}, "a filled cache")
        core = cold.engine.core
        await eventually(lambda: core.aborted == 1 and not core.running, "the abort at the engine")
        assert not replica.inflight
        assert router.app.parts.fleet.replicas["r0"].inflight == 1, "the stream goes on"
        client.close()
        before = core.prefix_hits
        assert (await router.admin("/replicas/r0/cordon", "POST")).status < 300
        assert (await router.ask(asks(4))).complete
        assert core.prefix_hits - before > len(PREFIX) // 8, "the prefix is in the cache"
        page = bytes((await router.admin("/metrics")).body)
        assert b'hedgerow_warm_up_copies_total{outcome="filled"} 1.0' in page
        attempts = b'hedgerow_attempts_total{attempt="warm_up",reason="ok",replica="r1"} 1.0'
        assert attempts in page
        await ended(router, "filled")


@scenario
async def test_a_prefix_is_copied_once() -> None:
    async with emulated("vllm", **SIZES) as cold, cold_beside(cold.url) as (router, _):
        assert (await router.admin("/replicas/r1")).status == 200
        for number in range(3, 6):
            client = await begins(router, asks(number, tokens=LONG))
            await eventually(lambda: counts(router) == {"filled": 1}, "the only copy")
            client.close()
        await ended(router, "filled")


# Requests that are not copied, by reason.
UNCOPIED: dict[str, Callable[[], bytes]] = {
    "forbidden by its client": lambda: asks(3, "x-hedge: off", tokens=LONG),
    "several choices": lambda: asks(3, tokens=LONG, n=2),
    "another prefix": lambda: chat(
        stream=True,
        max_tokens=LONG,
        messages=[{"role": "user", "content": "Nobody has asked this before. " * 200}],
    ),
}


@pytest.mark.parametrize("why", UNCOPIED)
@scenario
async def test_other_requests_are_not_copied(why: str) -> None:
    async with emulated("vllm", **SIZES) as cold, cold_beside(cold.url) as (router, replica):
        assert router.app.parts.hedger.warm_up is not None
        # A request of another prefix may go to the new replica, which has no load.
        assert (await router.admin("/replicas/r1/cordon", "POST")).status < 300
        client = await begins(router, UNCOPIED[why]())
        assert (await router.admin("/replicas/r1/uncordon", "POST")).status < 300
        await asyncio.sleep(0.05)
        assert counts(router) == {} and not replica.inflight
        client.close()


@scenario
async def test_nothing_is_copied_unless_it_is_configured() -> None:
    plain = Hedging(budget=1.0)
    async with emulated("vllm", **SIZES) as cold, cold_beside(cold.url, plain) as (router, replica):
        client = await begins(router, asks(3, tokens=LONG))
        await asyncio.sleep(0.05)
        assert router.app.parts.hedger.warm_up is None and not replica.inflight
        client.close()


# -- copies that end before their first token -----------------------------------------------------


class Silent:
    """Reads one request, opens its stream, and sends no token."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.dies = asyncio.Event()

    async def __call__(self, connection: ReplicaConnection) -> None:
        if await connection.recv_request() is None:
            return
        await connection.send(SSE_HEAD, chunk(role()))
        self.asked.set()
        dies = asyncio.ensure_future(self.dies.wait())
        gone = asyncio.ensure_future(until_closed(connection))
        await asyncio.wait((dies, gone), return_when=asyncio.FIRST_COMPLETED)
        dies.cancel()
        if not gone.done():
            gone.cancel()
            await asyncio.wait((gone,))
            connection.rst()


async def leaves(router: Router, client: RawClient, silent: Silent) -> None:
    client.close()


async def dies(router: Router, client: RawClient, silent: Silent) -> None:
    silent.dies.set()


async def is_removed(router: Router, client: RawClient, silent: Silent) -> None:
    router.change(replicas=router.config.replicas)
    await router.app.reload()
    assert (await router.admin("/replicas/r1", "DELETE")).status in (202, 404)
    fleet = router.app.parts.fleet
    assert "r1" not in fleet.replicas and len(fleet.leaving) == 1
    client.close()


async def is_replaced(router: Router, client: RawClient, silent: Silent) -> None:
    """A reload gives the ID of the cold replica to another address."""
    other = msgspec.structs.replace(router.config.replicas[0], id="r1", url="http://127.0.0.1:9")
    assert (await router.admin("/replicas/r1", "DELETE")).status == 202
    router.change(replicas=(*router.config.replicas, other))
    await router.app.reload()
    client.close()


async def is_drained(router: Router, client: RawClient, silent: Silent) -> None:
    assert (await router.admin("/replicas/r1/drain", "POST")).status < 300
    client.close()


async def router_drains(router: Router, client: RawClient, silent: Silent) -> None:
    assert (await router.admin("/drain", "POST")).status == 202
    await router.app.drained.wait()
    await router.app.stop()


async def is_switched_off(router: Router, client: RawClient, silent: Silent) -> None:
    router.change(hedging=Hedging())
    await router.app.reload()
    client.close()


Ends = Callable[[Router, RawClient, Silent], Awaitable[None]]
ENDS: dict[str, tuple[Ends, str]] = {
    "the client leaves": (leaves, "cut"),
    "the replica dies": (dies, "failed"),
    "the replica is removed": (is_removed, "cut"),
    "the replica is replaced": (is_replaced, "cut"),
    "the replica is drained": (is_drained, "cut"),
    "the router drains": (router_drains, "cut"),
    "the setting is switched off": (is_switched_off, "cut"),
}


@pytest.mark.parametrize("what", ENDS)
@scenario
async def test_the_copy_ends_once(what: str) -> None:
    happens, outcome = ENDS[what]
    silent = Silent()
    cold = HostileReplica(silent)
    cold.start()
    async with cold_beside(cold.url, drain={"grace_s": 0.2}) as (router, replica):
        client = await begins(router, asks(3, tokens=LONG))
        await silent.asked.wait()
        assert (replica.inflight, replica.waiting) == (1, 1)
        await happens(router, client, silent)
        await eventually(lambda: not replica.inflight, "the lease")
        await ended(router, outcome)
        # A late poll may report the copy as the request of another client, and no poll follows it.
        own = (replica.waiting - replica.foreign_waiting, replica.load - replica.foreign_load)
        assert (*own, replica.pending_tokens) == (0, 0, 0)
    await cold.stop()


async def refuses(connection: ReplicaConnection) -> None:
    while await connection.recv_request():
        await connection.send(json_response({"error": {"message": "no"}}, 400))


async def is_busy(connection: ReplicaConnection) -> None:
    while await connection.recv_request():
        await connection.send(response(503))


async def is_whole(connection: ReplicaConnection) -> None:
    while await connection.recv_request():
        await connection.send(json_response({"choices": []}))


async def is_empty(connection: ReplicaConnection) -> None:
    while await connection.recv_request():
        await connection.send(SSE_HEAD, chunk(role()), b"0\r\n\r\n")


@pytest.mark.parametrize("behave", [refuses, is_busy, is_whole, is_empty])
@scenario
async def test_a_bad_answer_ends_the_copy_and_not_the_stream(behave: Behaviour) -> None:
    cold = HostileReplica(behave)
    cold.start()
    async with cold_beside(cold.url) as (router, replica):
        client = await begins(router, asks(3, tokens=LONG))
        await eventually(lambda: counts(router) == {"failed": 1}, "a failed copy")
        assert not replica.inflight
        await client.recv_until(b'"content":')
        await ended(router, "failed")
        assert (await router.log(4))[-1]["reason"] == "client_gone"
    await cold.stop()


@scenario
async def test_a_late_copy_is_cancelled() -> None:
    """A copy has the time limit of a first token, and its lateness does not end the stream."""
    silent = Silent()
    cold = HostileReplica(silent)
    cold.start()
    async with cold_beside(cold.url, timeouts={"first_token_s": 2.0}) as (router, replica):
        client = await begins(router, asks(3, tokens=LONG))
        await silent.asked.wait()
        await eventually(lambda: counts(router) == {"failed": 1}, "a late copy")
        assert not replica.inflight
        await client.recv_until(b'"content":')
        await ended(router, "failed")
    await cold.stop()


@scenario
async def test_a_copy_without_a_connection_returns_its_tokens() -> None:
    cold = HostileReplica(Silent())
    cold.start()
    why = "a probe would find the port closed"
    async with cold_beside(cold.url, quiet_control_plane=why) as (router, replica):
        replica.close_idle()
        await cold.stop_listening()
        metrics = router.app.parts.hedger.metrics
        client = await begins(router, asks(3, tokens=LONG))
        await eventually(lambda: counts(router) == {"failed": 1}, "a failed copy")
        assert metrics.warm_up_tokens == 0 < metrics.warm_up_returned_tokens
        client.close()
        await ended(router, "failed")
    await cold.stop()
