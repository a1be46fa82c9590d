"""Both ends of the bench agree on their bytes, and the bytes are valid HTTP."""

import json

import h11
import pytest

from router.lab.overhead import shapes


@pytest.mark.parametrize("size", [0, 16 * 1024, 128 * 1024])
def test_prompts_differ_at_their_end_and_never_in_length(size: int) -> None:
    prompt = shapes.Prompt("h:1", size)
    first, second = prompt.next(), prompt.next()
    assert len(first) == len(second) and first != second
    head, _, body = first.partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    assert len(body) == prompt.body_bytes
    text = json.loads(body)["messages"][1]["content"]
    assert len(text) >= size
    assert first[:-60] == second[:-60]


def test_an_ask_survives_its_request() -> None:
    ask = shapes.Ask(400, 50.0)
    assert shapes.read_ask(shapes.Prompt("h:1", ask=ask).next()) == ask
    assert shapes.read_ask(shapes.Prompt("h:1").next()) is None
    # A router that re-encodes the body may put a space after the colon.
    assert shapes.read_ask(b'{"stream": true, "x": "[bench tokens=7 pace=0]"}') == shapes.Ask(7, 0)


def test_a_stream_is_chunked_events_that_an_independent_parser_reads() -> None:
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method="GET", target="/", headers=[("host", "h")]))
    client.send(h11.EndOfMessage())
    client.receive_data(
        shapes.STREAM_HEAD
        + shapes.ROLE_CHUNK
        + b"".join(shapes.TOKEN_CHUNKS[:3])
        + shapes.LAST_CHUNKS
    )
    body = b""
    while not isinstance(event := client.next_event(), h11.EndOfMessage):
        if isinstance(event, h11.Data):
            body += bytes(event.data)
    events = [part.removeprefix(b"data: ") for part in body.split(b"\n\n") if part]
    assert events[-1] == b"[DONE]"
    assert all(json.loads(part)["object"] == "chat.completion.chunk" for part in events[:-1])
    assert body.count(shapes.TOKEN_MARK) == 3
    assert 200 <= len(shapes.TOKEN_CHUNKS[0]) <= 260
