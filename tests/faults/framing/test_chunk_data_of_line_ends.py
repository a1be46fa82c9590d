"""Chunk data that look like the end of a body or like a request are data.

The bytes after the body are the next request.
"""

import pytest

from tests.harness.behaviours import echo
from tests.harness.messages import LAST_CHUNK, chunk, request
from tests.harness.running import running, scenario

POST = request("/first", "Transfer-Encoding: chunked", "Content-Type: text/plain", method="POST")
DATA = {
    "line ends": b"\r\n\r\n" * 20_000,
    "last chunks": LAST_CHUNK * 20_000,
    "requests": (LAST_CHUNK + request("/smuggled")) * 2_000,
}


@pytest.mark.parametrize("value", DATA.values(), ids=DATA)
@pytest.mark.parametrize("cut", [0, 1, 2, 3, 100])
@scenario
async def test_it_arrives_whole(value: bytes, cut: int) -> None:
    chunks = chunk(value) * 2 + chunk(value[:7])
    async with running(echo) as router:
        client = await router.client()
        sent = POST + chunks + LAST_CHUNK + request("/second")
        begin = len(POST) + cut
        await client.send_pieces([sent[:begin], sent[begin:]])
        for target, body in (("/first", value * 2 + value[:7]), ("/second", b"")):
            answer = (await client.recv_response()).json()
            assert (answer["target"], answer["body"].encode()) == (target, body)
        assert len(router.replica.requests) == 2
