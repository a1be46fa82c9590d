"""A cached valid head must not make a similar head pass.

The same head with another Content-Length is checked again.
"""

import pytest

from router.core.errors import Reason
from tests.harness.behaviours import answer_by, echo
from tests.harness.messages import request
from tests.harness.running import Router, assert_error, routed, running, scenario

LENGTHS = ["", " ", "+5", "-5", "0x5", "5_0", "5 5", "5,5", "5;", "٥", "5\r", "5\n", "9" * 20]
SPELLINGS = ["Content-Length", "content-length", "CONTENT-LENGTH"]


def post(length: str, spelling: str) -> bytes:
    return (
        f"POST /upload HTTP/1.1\r\nHost: a\r\n{spelling}: {length}\r\nX-After: 1\r\n\r\n".encode()
    )


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("spelling", SPELLINGS)
@routed(echo)
async def test_a_request_like_a_good_one(router: Router, length: str, spelling: str) -> None:
    client = await router.client()
    for body in (b"hello", b"", b"hello world"):  # the head was seen before, and more than once
        await client.send(post(str(len(body)), spelling), body)
        assert (await client.recv_response()).json()["body"] == body.decode()
    await client.send(post(length, spelling), request("/smuggled"))
    assert (await client.recv_response()).status in (400, 413)
    await client.expect_close()
    assert [seen.target for seen in router.replica.requests] == ["/upload"] * 3


@pytest.mark.parametrize("second", ["Content-Length: 5", "Transfer-Encoding: chunked"])
@routed(echo)
async def test_a_second_framing_beside_a_good_one(router: Router, second: str) -> None:
    client = await router.client()
    good = post("5", "Content-Length") + b"hello"
    for _ in range(2):
        await client.send(good)
        assert (await client.recv_response()).status == 200
    await client.send(good.replace(b"X-After: 1", second.encode()), request("/smuggled"))
    assert (await client.recv_response()).status == 400
    await client.expect_close()
    assert len(router.replica.requests) == 2


@routed(echo, limits={"body": 1000})
async def test_a_limit_holds_for_a_head_seen_before(router: Router) -> None:
    client = await router.client()
    for _ in range(2):
        await client.send(post("5", "Content-Length"), b"hello")
        assert (await client.recv_response()).status == 200
    await client.send(post("1001", "Content-Length"))
    assert_error(await client.recv_response(), Reason.BODY_TOO_LARGE)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("spelling", SPELLINGS)
@scenario
async def test_a_response_like_a_good_one(length: str, spelling: str) -> None:
    def head(value: str) -> bytes:
        return f"HTTP/1.1 200 OK\r\n{spelling}: {value}\r\nX-After: 1\r\n\r\n".encode()

    behave = answer_by(lambda asked: head("5" if asked.target == "/good" else length) + b"hello")
    async with running(behave) as router:
        client = await router.client()
        for _ in range(3):
            await client.send(request("/good"))
            assert (await client.recv_response()).body == b"hello"
        await client.send(request("/bad"))
        assert_error(await client.recv_response(), Reason.BAD_RESPONSE)
