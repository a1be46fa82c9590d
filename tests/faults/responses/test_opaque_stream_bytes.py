"""Bytes that the router cannot read as text are relayed unchanged."""

import gzip

import pytest

from tests.harness.messages import LAST_CHUNK, SSE_HEAD, chat, chunk, token
from tests.harness.replica import Behaviour, ReplicaConnection
from tests.harness.running import running, scenario

EURO = "data: €\n\n".encode()


def stream(head: bytes, *pieces: bytes) -> Behaviour:
    async def behave(connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            await connection.send(head)
            await connection.send_pieces([*(chunk(piece) for piece in pieces), LAST_CHUNK])

    return behave


@pytest.mark.parametrize(
    "pieces",
    [
        (token("a"), b"data: \xff\xfe\xc0\n\n"),
        (token("a"), EURO[:7], EURO[7:8], EURO[8:]),
        (token("a"), b"data: \xed\xa0\x80\n\n"),
        (token("a"), b"\x00\x01\x02"),
        (b"data: \xff\xfe\n\n", token("a")),
    ],
    ids=["invalid", "split", "surrogate", "binary", "invalid first"],
)
@scenario
async def test_bytes_are_unchanged(pieces: tuple[bytes, ...]) -> None:
    async with running(stream(SSE_HEAD, *pieces)) as router:
        answer = await router.ask(chat(stream=True))
        assert answer.complete
        assert answer.body == b"".join(pieces)


@scenario
async def test_a_compressed_stream_is_opaque() -> None:
    squeezed = gzip.compress(token("a") + b"data: [DONE]\n\n")
    head = SSE_HEAD.replace(b"\r\n\r\n", b"\r\ncontent-encoding: gzip\r\n\r\n")
    async with running(stream(head, squeezed[:20], squeezed[20:])) as router:
        answer = await router.ask(chat(stream=True))
        assert answer.complete
        assert answer.header("content-encoding") == "gzip"
        assert answer.body == squeezed
        assert await router.reason() == "ok"
