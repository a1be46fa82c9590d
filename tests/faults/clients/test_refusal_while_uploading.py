"""A refusal during an upload: the client can read the status, and the router stops reading."""

import asyncio
from pathlib import Path

import pytest

from router.config.model import Batches, Keys, Tls
from router.core.errors import Reason
from tests.addons.needed import needs
from tests.app.test_keys_at_the_door import BEARER, acme, file_of
from tests.harness.behaviours import echo
from tests.harness.client import RawClient
from tests.harness.messages import head
from tests.harness.over_tls import TlsClient
from tests.harness.replica import eventually
from tests.harness.running import Router, routed, running, scenario
from tests.places import CERT, KEY

MB = 1024 * 1024
PIECE = bytes(256 * 1024)
# A refused body is read for at most 3 s, and at most 0.5 s after its last bytes.
FAST = {"refused_body_s": 3.0}


def upload(path: str, *fields: str, size: int) -> bytes:
    return head(f"POST {path} HTTP/1.1", ["Host: a", f"Content-Length: {size}", *fields])


def chunked(path: str, *fields: str) -> bytes:
    return head(f"POST {path} HTTP/1.1", ["Host: a", "Transfer-Encoding: chunked", *fields])


async def connect(router: Router, *, tls: bool) -> RawClient | TlsClient:
    if not tls:
        return await router.client()
    client = await TlsClient.connect(router.port)
    router.clients.append(client)
    return client


@needs("batches")
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize(
    ("begin", "status"),
    [
        (upload("/upload", BEARER, size=100 * MB), 413),
        (upload("/metrics", BEARER, size=20 * MB), 404),
        (upload("/a#b", BEARER, size=20 * MB), 400),
        (upload("/v1/chat/completions", size=20 * MB), 401),
        (upload("/v1/files", size=20 * MB), 401),
        (upload("/v1/files/x/content", BEARER, size=20 * MB), 405),
        (chunked("/v1/chat/completions") + b"1400000\r\n", 401),
        (chunked("/upload", BEARER) + b"6400000\r\n", 413),
        (upload("/upload", BEARER, "Bad Name: x", size=20 * MB), 400),
    ],
)
@scenario
async def test_the_client_reads_the_status(
    begin: bytes, status: int, tls: bool, tmp_path: Path
) -> None:
    """The client writes its whole body before it reads: no reset may destroy the answer."""
    settings = {
        "keys": Keys(file=file_of(tmp_path, acme()), required=True),
        "batches": Batches(enabled=True, folder=str(tmp_path / "batches")),
        "tls": Tls(cert=CERT, key=KEY) if tls else None,
    }
    async with running(echo, limits={"body": 50 * MB}, timeouts=FAST, **settings) as router:
        client = await connect(router, tls=tls)
        await client.send(begin)
        for _ in range((100 if status == 413 else 20) * MB // len(PIECE)):
            await client.send(PIECE)
        answer = await client.recv_response()
        assert answer.status == status
        assert answer.header("connection") == "close" or status == 405
        await client.expect_close()
        assert not router.replica.requests


@routed(echo, timeouts={"refused_body_s": 6.0})
async def test_a_slow_upload_is_read_to_its_end(router: Router) -> None:
    """It takes longer than the time without bytes that would end it."""
    client = await router.send(upload("/metrics", size=20 * len(PIECE)))
    for _ in range(20):
        await client.send(PIECE)
        await asyncio.sleep(0.08)
    assert (await client.recv_response()).status == 404
    assert await client.expect_close() == "fin"


@routed(echo, limits={"body": 1000}, timeouts={"refused_body_s": 0.5})
async def test_an_endless_upload_is_cut_off(router: Router) -> None:
    client = await router.send(chunked("/upload"))
    piece = b"10000\r\n" + bytes(65536) + b"\r\n"
    with pytest.raises(OSError):
        while True:
            await client.send(piece)
            await asyncio.sleep(0)
    await router.quiet()
    assert not router.replica.requests


@routed(echo, timeouts=FAST)
async def test_a_refused_client_that_sends_nothing_more_is_disconnected(router: Router) -> None:
    client = await router.send(upload("/metrics", size=MB))
    await client.recv_response()
    await client.expect_close()
    await eventually(lambda: not router.app.parts.front.clients, "closed")


@needs("batches")
@pytest.mark.parametrize("sends", [False, True], ids=["sends nothing more", "never ends"])
@scenario
async def test_a_refusal_of_the_batch_server_has_the_same_deadlines(
    sends: bool, tmp_path: Path
) -> None:
    """The refusal comes through a tunnel, which then reads and drops the rest of the upload."""
    batches = Batches(enabled=True, folder=str(tmp_path / "batches"))
    async with running(echo, batches=batches, timeouts=FAST) as router:
        client = await router.client()
        # The batch server closes its connection at once, because the body is no chunk.
        await client.send(chunked("/v1/files") + b"no chunk\r\n")
        assert (await client.recv_response()).status == 400
        front, tunnels = router.app.parts.front, router.app.parts.dispatcher.tunnels
        await eventually(lambda: len(front.lingering) == 1, "the tunnel lingers")
        assert len(tunnels) == 1
        if sends:
            piece = b"10000\r\n" + bytes(65536) + b"\r\n"
            with pytest.raises(OSError):
                while True:
                    await client.send(piece)
                    await asyncio.sleep(0)
        else:
            await client.expect_close()
        await eventually(lambda: not (tunnels or front.clients or front.lingering), "closed")


@routed(echo, limits={"connections": 16})
async def test_few_connections_linger_and_a_new_one_ends_them(router: Router) -> None:
    front = router.app.parts.front
    refused = []
    for _ in range(6):
        client = await router.send(upload("/metrics", size=MB))
        assert (await client.recv_response()).status == 404
        refused.append(client)
    assert len(front.lingering) == front.most_lingering == 4
    for _ in range(10):
        client = await router.send(upload("/upload", size=10))
        await client.send(b"0123456789")
        assert (await client.recv_response()).status == 200
    assert len(front.lingering) < 4


@routed(echo, drain={"grace_s": 30.0})
async def test_a_drain_does_not_wait_for_them(router: Router) -> None:
    client = await router.send(upload("/metrics", size=MB))
    await client.recv_response()
    router.app.drain()
    await asyncio.wait_for(router.app.draining.done.wait(), 15.0)
    assert not router.app.parts.front.clients
    assert await router.reason() == Reason.NOT_FOUND.value
