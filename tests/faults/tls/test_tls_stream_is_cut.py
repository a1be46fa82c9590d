"""A stream over TLS arrives complete or visibly truncated, at the client's and the replica's
side.
"""

import asyncio

import pytest

from router.config.model import Tls, Upstream
from router.core.errors import Reason
from tests.harness.behaviours import sse_tokens, stream_then_fin, stream_then_rst, until_closed
from tests.harness.messages import DONE, LAST_CHUNK, SSE_HEAD, chat, chunk, request, role, token
from tests.harness.over_tls import NAME, TlsClient, TlsReplica, TlsReplicaConnection
from tests.harness.replica import Behaviour, HostileReplica, ReplicaConnection
from tests.harness.running import Router, assert_cut_stream, running, scenario
from tests.places import CERT, KEY

LISTENING = Tls(cert=CERT, key=KEY)
TRUSTING = Upstream(ca_file=CERT, server_name=NAME)
SIDES = pytest.mark.parametrize("side", ["client", "replica", "both"])


def fleet(side: str, behave: Behaviour) -> HostileReplica:
    return HostileReplica(behave) if side == "client" else TlsReplica(behave)


async def connect(router: Router, side: str) -> TlsClient:
    client = await (router.client() if side == "replica" else TlsClient.connect(router.port))
    router.clients.append(client)
    return client  # type: ignore[return-value]


@SIDES
@scenario
async def test_whole(side: str) -> None:
    tls = None if side == "replica" else LISTENING
    async with running(fleet(side, sse_tokens(50)), tls=tls, upstream=TRUSTING) as router:
        client = await connect(router, side)
        for _ in range(3):
            await client.send(chat(stream=True))
            answer = await client.recv_response()
            assert answer.complete
            assert len(answer.events()) == 52
            assert answer.events()[-1] == "[DONE]"
        assert len(router.replica.sessions) == 1
        scheme = "http" if side == "replica" else "https"
        asked = router.replica.requests[0]
        assert asked.header("x-forwarded-proto") == scheme
        assert {line["reason"] for line in await router.log(3)} == {"ok"}


@SIDES
@pytest.mark.parametrize("end", [stream_then_rst, stream_then_fin], ids=["rst", "fin"])
@scenario
async def test_cut_after_a_token(end, side: str) -> None:  # type: ignore[no-untyped-def]
    go = asyncio.Event()
    tls = None if side == "replica" else LISTENING
    behave = end(go, role(), token("a"))
    async with running(fleet(side, behave), tls=tls, upstream=TRUSTING) as router:
        client = await connect(router, side)
        await client.send(chat(stream=True))
        while b'"a"' not in client.unread:
            assert await client.fill()
        go.set()
        answer = await client.recv_response()
        assert_cut_stream(answer, Reason.REPLICA_RESET)
        assert await router.reason() == "replica_reset"


@scenario
async def test_a_goodbye_in_the_middle_is_a_cut_as_well() -> None:
    """The replica closes its TLS connection properly, but the last chunk is missing."""

    async def behave(connection: ReplicaConnection) -> None:
        assert isinstance(connection, TlsReplicaConnection)
        await connection.recv_request()
        await connection.send(SSE_HEAD, chunk(role()), chunk(token("a")))
        await connection.goodbye()

    async with running(TlsReplica(behave), upstream=TRUSTING) as router:
        answer = await router.ask(chat(stream=True))
        assert_cut_stream(answer, Reason.REPLICA_RESET)
        assert await router.reason() == "replica_reset"


@pytest.mark.parametrize("goodbye", [True, False])
@scenario
async def test_without_a_length_only_a_goodbye_ends_a_response(goodbye: bool) -> None:
    """RFC 9112 section 9.8: a bare FIN may be forged, so a response that it ends is incomplete."""

    async def behave(connection: ReplicaConnection) -> None:
        assert isinstance(connection, TlsReplicaConnection)
        await connection.recv_request()
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nhalf of it")
        if goodbye:
            await connection.goodbye()
        else:
            connection.close()

    async with running(TlsReplica(behave), upstream=TRUSTING) as router:
        answer = await router.ask(request("/plain"))
        assert answer.body == b"half of it"
        assert answer.complete is goodbye
        assert await router.reason() == ("ok" if goodbye else "replica_reset")


@scenario
async def test_a_large_one_is_not_torn_between_records() -> None:
    """TLS records may end anywhere; the client reads the bytes that the replica wrote."""
    text = "".join(f"{n:06d}" for n in range(30_000))

    async def behave(connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            await connection.send(SSE_HEAD, chunk(token(text)))
            for index in range(0, len(text), 1000):
                await connection.send(chunk(token(text[index : index + 1000])))
            await connection.send(chunk(DONE), LAST_CHUNK)
        await until_closed(connection)

    async with running(TlsReplica(behave), tls=LISTENING, upstream=TRUSTING) as router:
        client = await connect(router, "both")
        await client.send(chat(stream=True))
        answer = await client.recv_response()
        assert answer.complete
        sent = token(text) + b"".join(
            token(text[index : index + 1000]) for index in range(0, len(text), 1000)
        )
        assert answer.body == sent + DONE
