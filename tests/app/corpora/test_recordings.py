"""Recorded socket output of a vLLM server, replayed: the client must get the same content.

For every size of the pieces, the body is unchanged and the stream counts as a success.
"""

import pytest

from tests.app.corpora.corpus import DATA
from tests.app.corpora.forwarding import problems_of_relay
from tests.harness.messages import chat, post_json, request
from tests.harness.reading import read_response
from tests.harness.replica import ReplicaConnection
from tests.harness.running import running, scenario

FOLDER = DATA / "vllm-0.32"
STREAM = {"model": "m", "input": "hello", "stream": True}
ASKED = {
    "chat": chat(),
    "chat_stream": chat(stream=True),
    "chat_stream_usage": chat(stream=True, stream_options={"include_usage": True}),
    "completion_stream": post_json("/v1/completions", {"model": "m", "stream": True}),
    "responses_stream": post_json("/v1/responses", STREAM),
    "messages_stream": post_json("/v1/messages", STREAM),
    "models": request("/other"),
    "error_bad_json": chat(),
    "error_too_long": chat(),
    "error_unknown_model": chat(),
}


@pytest.mark.parametrize("size", [1, 7, 100_000])
@pytest.mark.parametrize("name", ASKED)
@scenario
async def test_it_is_relayed_unchanged(name: str, size: int) -> None:
    data = (FOLDER / f"{name}.http").read_bytes()
    whole = read_response(data)
    assert whole is not None
    assert whole.complete

    async def behave(connection: ReplicaConnection) -> None:
        await connection.recv_request()
        await connection.send_pieces(data[at : at + size] for at in range(0, len(data), size))
        connection.close()

    async with running(behave) as router:
        answer = await router.ask(ASKED[name])
        assert answer.complete
        assert problems_of_relay(whole, answer) == []
        (line,) = await router.log()
        assert line["status"] == whole.status
        assert line["attempts"] == 1
        if whole.status == 200:
            assert line["reason"] == "ok"
