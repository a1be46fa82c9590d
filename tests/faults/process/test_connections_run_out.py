"""One address uses all allowed connections: every other address is still served."""

import asyncio
import socket
from pathlib import Path

import pytest

from router.config.model import Queue, Tls
from router.core.errors import Reason
from router.core.urgency import NORMAL
from tests.faults.queue.test_flow_without_keys import PROXY, of
from tests.faults.queue.test_queue_tenants import bearer, keys_of
from tests.harness.behaviours import json_ok
from tests.harness.client import RawClient
from tests.harness.crowd import Crowd, reaches
from tests.harness.messages import chat
from tests.harness.over_tls import TlsClient
from tests.harness.queueing import ONE, Turnstile, counts, waiting
from tests.harness.replica import eventually
from tests.harness.running import Router, assert_error, long_scenario, routed, running, scenario
from tests.places import CERT, KEY

MOST = 32
LIMITS = {"connections": MOST}
GREEDY, MODEST = "127.0.0.2", "127.0.0.3"


async def client_at(router: Router, address: str) -> RawClient:
    sock = socket.socket()
    sock.setblocking(False)
    sock.bind((address, 0))
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", router.port))
    client = RawClient(sock)
    router.clients.append(client)
    return client


def clients(router: Router) -> int:
    return len(router.app.parts.front.clients)


@pytest.mark.parametrize("sends", [b"", b"POST /v1/chat/completions HTTP/1.1\r\nHost: "])
@routed(json_ok, limits=LIMITS)
async def test_connections_that_ask_for_nothing_make_room(router: Router, sends: bytes) -> None:
    for _ in range(MOST):
        greedy = await client_at(router, GREEDY)
        if sends:
            await greedy.send(sends)
    await eventually(lambda: clients(router) >= MOST - MOST // 16, "all are taken")
    for _ in range(3):
        modest = await client_at(router, MODEST)
        await modest.send(chat())
        assert (await modest.recv_response("POST")).status == 200
    assert clients(router) <= MOST


@routed(json_ok, limits=LIMITS, tls=Tls(cert=CERT, key=KEY))
async def test_handshakes_that_never_begin_make_room(router: Router) -> None:
    """Connections count from the moment they are accepted, not from the end of their handshake."""
    for _ in range(2 * MOST):
        await client_at(router, GREEDY)
    await eventually(lambda: clients(router) >= MOST - MOST // 16, "all are taken")
    for _ in range(3):
        modest = await TlsClient.connect(router.port)
        router.clients.append(modest)
        await modest.send(chat())
        assert (await modest.recv_response("POST")).status == 200
    assert clients(router) <= MOST


@routed(json_ok, limits=LIMITS)
async def test_idle_connections_make_room_when_they_have_rested(router: Router) -> None:
    most = MOST - MOST // 16
    greedy = [await client_at(router, GREEDY) for _ in range(most)]
    for client in greedy:
        await client.send(chat())
        assert (await client.recv_response("POST")).status == 200
    await asyncio.sleep(1.2)  # a recently used connection is not closed
    modest = await client_at(router, MODEST)
    await modest.send(chat())
    assert (await modest.recv_response("POST")).status == 200
    assert clients(router) <= most


@scenario
async def test_a_connection_with_a_request_is_never_closed_for_another() -> None:
    turnstile = Turnstile()
    async with running(turnstile, queue=Queue(enabled=False), limits=LIMITS) as router:
        most = MOST - MOST // 16
        busy = [await client_at(router, GREEDY) for _ in range(most)]
        for client in busy:
            await client.send(chat())
        await eventually(lambda: len(router.app.parts.dispatcher.exchanges) == most, "all are busy")
        turnstile.open(most + 1)
        modest = await client_at(router, MODEST)
        await modest.send(chat())
        for client in (*busy, modest):
            assert (await client.recv_response("POST")).status == 200


@long_scenario
async def test_a_flow_that_holds_the_connections_in_the_queue_gives_way(tmp_path: Path) -> None:
    """All connections come through one trusted proxy, so that the client is known only from the
    head.
    """
    turnstile = Turnstile()
    keys = keys_of(tmp_path, "acme")
    most = 160
    async with running(
        turnstile,
        replica=ONE,
        queue=Queue(),
        keys=keys,
        trusted_proxies=PROXY,
        limits={"connections": most},
    ) as router:
        soft = most - most // 16
        crowd = Crowd(router.port)
        await crowd.connect(soft)
        crowd.send(range(soft), lambda n: chat(*of("greedy"), tag="greedy"))
        await reaches(lambda: waiting(router), soft - 1, "wait")
        refused = await router.send(chat(*of("greedy")))
        assert_error(await refused.recv_response("POST"), Reason.NO_FILES)
        others = (of("modest"), of("other", "192.0.2.2"), [bearer("acme")])
        for gone, fields in enumerate(others, 1):
            client = await router.send(chat(*fields, tag="other"))
            await reaches(lambda: len(crowd.answered), gone, "gave way")
        assert set(crowd.statuses.values()) == {429}
        assert counts(router, Reason.QUEUE_EVICTED)[NORMAL] == 3
        turnstile.open(most)
        for client in router.clients[1:]:
            assert (await client.recv_response("POST")).status == 200
        await reaches(lambda: len(crowd.answered), soft, "answered")
        await crowd.close()


@scenario
async def test_bodies_in_memory_are_taken_back_from_the_flow_that_holds_most(
    tmp_path: Path,
) -> None:
    turnstile = Turnstile()
    async with running(
        turnstile,
        replica=ONE,
        queue=Queue(),
        trusted_proxies=PROXY,
        limits={"bodies_total": 40_000},
    ) as router:
        served = []
        for n in range(4):
            client = await router.send(chat(*of("greedy"), tag="x" * 9_000))
            await reaches(lambda: len(router.app.parts.dispatcher.exchanges), n + 1, "are here")
            served.append(client)
        newest = served.pop()
        refused = await router.ask(chat(*of("greedy"), tag="y" * 9_000), "POST")
        assert_error(refused, Reason.MEMORY_LIMIT)
        modest = await router.send(chat(*of("modest", "192.0.2.2"), tag="z" * 9_000))
        assert_error(await newest.recv_response("POST"), Reason.QUEUE_EVICTED)
        turnstile.open(4)
        for client in (*served, modest):
            assert (await client.recv_response("POST")).status == 200
