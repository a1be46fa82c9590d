"""An invalid HTTP/1.1 response becomes a 502, and none of its bytes reach the client."""

from __future__ import annotations

import pytest

from router.core.errors import Reason
from tests.harness.behaviours import answer_then_fin
from tests.harness.messages import chat, request
from tests.harness.running import assert_error, running, scenario

GARBAGE = {
    "words": b"what is this\r\n\r\n",
    "tls alert": b"\x15\x03\x01\x00\x02\x02\x46",
    "tls hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "http2 settings": b"\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x80",
    "http2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "ssh": b"SSH-2.0-OpenSSH_9.6\r\n",
    "a request": b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "five digits": b"HTTP/1.1 99999 Odd\r\nContent-Length: 0\r\n\r\n",
    "status 0": b"HTTP/1.1 0 Odd\r\nContent-Length: 0\r\n\r\n",
    "status 000": b"HTTP/1.1 000 Odd\r\nContent-Length: 0\r\n\r\n",
    "status 099": b"HTTP/1.1 099 Odd\r\nContent-Length: 0\r\n\r\n",
    "status 600": b"HTTP/1.1 1000 Odd\r\nContent-Length: 0\r\n\r\n",
    "negative": b"HTTP/1.1 -200 OK\r\nContent-Length: 0\r\n\r\n",
    "version 2": b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
    "version 9": b"HTTP/9.9 200 OK\r\nContent-Length: 0\r\n\r\n",
    "rtsp": b"RTSP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
    "icy": b"ICY 200 OK\r\nContent-Length: 0\r\n\r\n",
    "nul": b"\x00" * 64,
}


@pytest.mark.parametrize("name", GARBAGE)
@pytest.mark.parametrize("asked", [chat(), chat(stream=True), request("/plain")])
@scenario
async def test_it_is_a_502(name: str, asked: bytes) -> None:
    async with running(answer_then_fin(GARBAGE[name])) as router:
        assert_error(await router.ask(asked), Reason.BAD_RESPONSE)
        (line,) = await router.log()
        assert (line["reason"], line["attempts"]) == ("bad_response", 1)


@scenario
async def test_a_provisional_answer_without_a_final_one() -> None:
    data = b"HTTP/1.1 199 Wait\r\n\r\n"
    async with running(answer_then_fin(data), retry={"attempts": 1}) as router:
        answer = await router.ask(chat())
        assert answer.status == 502
        assert answer.error()["code"] in ("bad_response", "replica_reset")
