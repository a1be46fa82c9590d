"""An HTTP/1.0 client gets no chunks and no 1xx, and its connection ends with the answer."""

import pytest

from tests.harness.behaviours import echo, json_ok, sse_tokens
from tests.harness.messages import chat, request
from tests.harness.running import Router, routed


@routed(sse_tokens(3))
async def test_a_stream_ends_with_its_connection(router: Router) -> None:
    client = await router.send(chat(stream=True, version="1.0"))
    answer = await client.recv_response()
    assert client.ended == "fin"
    assert answer.header("transfer-encoding") is None
    assert answer.header("content-length") is None
    assert answer.events()[-1] == "[DONE]"
    assert await router.reason() == "ok"


@routed(json_ok)
async def test_a_whole_answer_keeps_its_length_and_closes(router: Router) -> None:
    client = await router.send(chat(version="1.0"))
    answer = await client.recv_response()
    assert answer.complete
    assert answer.header("content-length")
    await client.expect_silence_then_close()


@routed(echo)
async def test_keep_alive_where_it_asks_for_it(router: Router) -> None:
    """Keep-alive is optional, but the answer must state whether the connection stays open."""
    client = await router.send(request("/a", "Connection: keep-alive", version="1.0"))
    answer = await client.recv_response()
    if (answer.header("connection") or "").lower() == "keep-alive":
        await client.send(request("/b", version="1.0"))
        assert (await client.recv_response()).json()["target"] == "/b"
    await client.expect_silence_then_close()


@pytest.mark.parametrize("host", [None, "router.test"])
@routed(echo)
async def test_host_may_be_missing(router: Router, host: str | None) -> None:
    answer = await router.ask(request("/a", version="1.0", host=host))
    assert answer.status == 200
    (seen,) = router.replica.requests
    assert seen.version == "1.1"
    assert seen.header("host")
