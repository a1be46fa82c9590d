"""The bytes of generated text in a stream, for any API and any way in which the stream is cut."""

import json
from typing import Any

import pytest

from router.dispatch.usage.usage_tap import UsageTap
from tests.dispatch.usage.test_usage_tap import cut
from tests.harness.messages import DONE, event, role, token

WORDS = "the old lighthouse, 16 tokens or so in one event of the stream"
EVENTS = 40


def named(name: str, **members: Any) -> bytes:
    return f"event: {name}\n".encode() + event({"type": name, **members})


def delta(**members: Any) -> bytes:
    return event({"id": "c", "choices": [{"index": 0, "delta": members, "logprobs": None}]})


def call(arguments: str) -> bytes:
    function = {"arguments": arguments}
    return delta(tool_calls=[{"index": 0, "function": function}])


STREAMS: dict[str, tuple[bytes, bytes, bytes]] = {
    "chat": (role(), token(WORDS), DONE),
    "reasoning": (role(), delta(reasoning_content=WORDS), DONE),
    "a tool call": (role(), call(WORDS), DONE),
    "a completion": (b"", event({"id": "c", "choices": [{"index": 0, "text": WORDS}]}), DONE),
    "escapes": (role(), token("größe\n" * 10), DONE),
    "plain letters": (
        role(),
        b"data: "
        + json.dumps({"choices": [{"text": "größe " * 10}]}, ensure_ascii=False).encode()
        + b"\n\n",
        DONE,
    ),
    "messages": (
        named("message_start", message={"usage": {"input_tokens": 9}, "content": ["x" * 900]}),
        named("content_block_delta", index=0, delta={"type": "text_delta", "text": WORDS}),
        named("content_block_stop", index=0),
    ),
    "responses": (
        named("response.created", response={"tools": ["x" * 9000]}),
        named("response.output_text.delta", item_id="m", delta=WORDS, sequence_number=4),
        named("response.output_text.done", text=WORDS * EVENTS),
    ),
}


@pytest.mark.parametrize("size", [50, 1_000, 10_000, "events"])
@pytest.mark.parametrize("name", STREAMS)
def test_the_text_of_a_stream_that_its_client_left(name: str, size: int | str) -> None:
    first, content, last = STREAMS[name]
    events = [first] * bool(first) + [content] * EVENTS + [last] * (name == "responses")
    tap = UsageTap(quiet=len(first) and 1)
    if name == "responses":
        tap.read_responses()
    for piece in events if isinstance(size, str) else cut(b"".join(events), [size]):
        tap.feed(piece)
    value = json.loads(content.partition(b"data: ")[2])
    choice = value.get("choices", [value])[0]
    text = choice.get("text") or choice["delta"]
    while not isinstance(text, str):
        text = text[0] if isinstance(text, list) else list(text.values())[-1]
    is_ascii = b"\\u" in content
    expected = EVENTS * (len(json.dumps(text, ensure_ascii=is_ascii).encode()) - 2)
    # The event that ends the text of a response is counted as one with a frame and without text.
    tolerance = 0.06 if name == "responses" else 0.03
    assert tap.text_bytes(False) == pytest.approx(expected, rel=tolerance)


def test_probabilities_are_no_text() -> None:
    """The frame of an event grows with the number of its tokens."""
    tap = UsageTap(quiet=1)
    tap.feed(role())
    for number in (1, *[8] * EVENTS, 3):
        probable = {"content": [{"token": "word", "logprob": -0.5, "bytes": [1, 2]}] * number}
        choice = {"index": 0, "delta": {"content": "word" * number}, "logprobs": probable}
        tap.feed(event({"choices": [choice]}))
    assert tap.text_bytes(False) == pytest.approx(4 * (1 + 8 * EVENTS + 3), rel=0.1)


@pytest.mark.parametrize(
    "odd",
    [b"data: {}\n\n", b"data: [1]\n\n", b"data: {\n\n", b'data: {"choices":[{"delta":3}]}\n\n'],
)
def test_events_without_text(odd: bytes) -> None:
    tap = UsageTap()
    for _ in range(EVENTS):
        tap.feed(odd)
    assert tap.text_bytes(True) == 0
