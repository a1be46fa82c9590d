"""A body above the limit: 413 as soon as its size is known, and the client can read the answer."""

from __future__ import annotations

import pytest

from router.core.errors import Reason
from tests.harness.behaviours import echo
from tests.harness.messages import head
from tests.harness.running import assert_error, running, scenario


@pytest.mark.parametrize("size", [1001, 10_000_000_000, 2**40])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/upload"])
@scenario
async def test_a_length_is_refused_at_the_head(size: int, path: str) -> None:
    async with running(echo, limits={"body": 1000}) as router:
        client = await router.send(
            head(f"POST {path} HTTP/1.1", ["Host: a", f"Content-Length: {size}"])
        )
        answer = await client.recv_response()
        assert_error(answer, Reason.BODY_TOO_LARGE)
        assert answer.header("connection") == "close"
        await client.expect_close()
        assert not router.replica.requests
        assert await router.reason() == "body_too_large"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/upload"])
@scenario
async def test_chunks_are_refused_as_they_pass_it(path: str) -> None:
    async with running(echo, limits={"body": 1000}) as router:
        client = await router.send(
            head(f"POST {path} HTTP/1.1", ["Host: a", "Transfer-Encoding: chunked"])
        )
        await client.send_pieces([b"64\r\n" + b"x" * 100 + b"\r\n"] * 11)
        assert_error(await client.recv_response(), Reason.BODY_TOO_LARGE)
        await client.expect_close()
        assert not router.replica.requests


@scenario
async def test_just_within() -> None:
    async with running(echo, limits={"body": 1000}) as router:
        client = await router.send(
            head("POST /upload HTTP/1.1", ["Host: a", "Content-Length: 1000"]), b"x" * 1000
        )
        assert len((await client.recv_response()).json()["body"]) == 1000
