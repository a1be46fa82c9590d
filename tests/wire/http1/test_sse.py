"""FirstContent: finds the first event of a stream that has content.

The formats are those of vLLM, SGLang, TensorRT-LLM, TGI, llama.cpp and of the Anthropic and OpenAI
protocols; the recordings are whole answers of one vLLM 0.32.
"""

import json
import re
from typing import Any

import pytest
from hypothesis import given, strategies as st

from router.wire.http1.sse import EventKind, FirstContent
from tests.examples import examples
from tests.harness.reading import read_response
from tests.harness.splits import name_of, ways
from tests.places import DATA

CAP = 64 * 1024
RECORDINGS = DATA / "vllm-0.32"


def chat(delta: Any, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


def event(value: Any, name: str = "") -> bytes:
    text = value if isinstance(value, str) else json.dumps(value)
    return (f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode()


NOTHING: list[bytes] = [
    b": keep-alive\n\n",
    b":\n\n",
    b"\n\n",
    b"event: ping\n\n",
    b"id: 1\nretry: 10\n\n",
    b"data:\n\n",
    event("[DONE]"),
    event(chat({"role": "assistant", "content": ""})),
    event(chat({"role": "assistant", "content": None})),
    event(chat({})),
    event({"choices": []}),
    event({"choices": [], "usage": {"prompt_tokens": 1}}),
    event({"choices": [{"index": 0, "text": "", "finish_reason": None}]}),
    event(chat({"role": "assistant", "content": "", "tool_calls": [], "refusal": None})),
    event(chat({"content": ""}, error=None)),
    event({"type": "response.created", "response": {"id": "resp_1"}}, "response.created"),
    event({"type": "response.in_progress", "response": {}}),
    event({"type": "response.queued", "response": {}}),
    event({"type": "response.output_item.added", "item": {}}),
    event({"type": "response.content_part.added", "part": {"text": ""}}),
    event({"type": "message_start", "message": {"content": []}}, "message_start"),
    event({"type": "content_block_start", "content_block": {"type": "text", "text": ""}}),
    event({"type": "ping"}, "ping"),
]
CONTENT: list[bytes] = [
    event(chat({"content": "x"})),
    event(chat({"content": " "})),
    event(chat({"role": "assistant", "content": "x"})),
    event(chat({"reasoning_content": "x"})),
    event(chat({"reasoning": "x"})),
    event(chat({"refusal": "no"})),
    event(chat({"tool_calls": [{"index": 0, "function": {"name": "f"}}]})),
    event(chat({"content": ""}, "stop")),
    event(chat({}, "length")),
    event({"choices": [{"index": 0, "text": "x", "finish_reason": None}]}),
    event({"choices": [{"index": 0, "text": "", "finish_reason": "length"}]}),
    event({"choices": [{"delta": {"content": ""}}, {"delta": {"content": "second"}}]}),
    event({"type": "response.output_text.delta", "delta": "x"}),
    event({"type": "response.reasoning_text.delta", "delta": "x"}),
    event({"type": "response.function_call_arguments.delta", "delta": "{"}),
    event({"type": "response.completed", "response": {}}),
    event({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "x"}}),
    event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}),
    event({"text": "native", "meta_info": {}}),  # SGLang /generate
    event({"token": {"id": 1, "text": "x"}}),  # TGI /generate_stream
    event({"content": "x", "stop": False}),  # llama.cpp /completion
    # a client's mistake: another replica would answer the same, so this error is relayed
    event({"error": {"object": "error", "message": "m", "code": 400}}),
    event({"error": {"message": "bad", "http_status_code": 422}}),
    event("no JSON at all"),
    event("[1, 2]"),
    event("3"),
    event("[" * 100_000),
]
ERROR: list[bytes] = [
    event({"error": {"message": "m", "type": "InternalServerError", "param": None, "code": 500}}),
    event({"error": "in words", "error_type": "generation"}),
    event({"type": "error", "error": {"type": "api_error", "message": "m"}}, "error"),
    event({"type": "response.failed", "response": {}}),
    event({"type": "error", "message": "m"}),
]
BUSY: list[bytes] = [
    event({"error": {"message": "m", "type": "RetryableRequestError", "code": 503}}),
    event({"error": {"object": "error", "message": "m", "code": 429}}),
    event({"error": {"message": "Model is overloaded", "http_status_code": 422}}),
]
SHAPES = [
    *((data, EventKind.NOTHING) for data in NOTHING),
    *((data, EventKind.CONTENT) for data in CONTENT),
    *((data, EventKind.ERROR) for data in ERROR),
    *((data, EventKind.BUSY) for data in BUSY),
]


def verdicts(pieces: list[bytes], cap: int = CAP) -> list[EventKind]:
    scanner = FirstContent(cap)
    found = []
    for piece in pieces:
        found.append(scanner.feed(piece))
        if found[-1]:
            break
    return found


def verdict(pieces: list[bytes]) -> EventKind:
    return verdicts(pieces)[-1]


@pytest.mark.parametrize(("data", "expected"), SHAPES, ids=lambda value: repr(value)[:70])
@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
def test_a_shape_has_its_verdict(data: bytes, expected: EventKind, newline: bytes) -> None:
    data = data.replace(b"\n", newline)
    assert verdict([data]) == expected
    if len(data) < 2000:
        for pieces in ways(data):
            assert verdict(pieces) == expected, name_of(pieces)


@pytest.mark.parametrize("quiet", NOTHING, ids=lambda value: repr(value)[:60])
def test_quiet_events_hide_nothing_behind_them(quiet: bytes) -> None:
    for data, expected in SHAPES:
        if len(data) < 2000:
            assert verdict([quiet * 3 + data]) == expected
            assert verdict([quiet, data]) == expected


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
def test_an_event_may_have_several_data_lines(newline: bytes) -> None:
    """Data lines are joined by line feeds (WHATWG HTML section 9.2.6), for all cuts."""
    quiet = b'event: message\ndata: {"choices":\ndata: []}\n\n'.replace(b"\n", newline)
    for pieces in ways(quiet):
        assert verdict(pieces) == EventKind.NOTHING, name_of(pieces)
    loud = b'data: {"choices": [{"delta":\ndata: {"content": "x"}}]}\n\n'.replace(b"\n", newline)
    for pieces in ways(loud):
        assert verdict(pieces) == EventKind.CONTENT, name_of(pieces)


def test_the_first_verdict_stands() -> None:
    assert verdict([ERROR[0] + CONTENT[0]]) == EventKind.ERROR
    assert verdict([CONTENT[0] + ERROR[0]]) == EventKind.CONTENT


def test_an_unfinished_event_is_kept_up_to_the_cap() -> None:
    scanner = FirstContent(100)
    assert scanner.feed(b"data: " + b"x" * 94) == EventKind.NOTHING
    assert scanner.feed(b"x") == EventKind.CONTENT


def test_many_quiet_events_stay_below_the_cap() -> None:
    scanner = FirstContent(100)
    for _ in range(1000):
        assert scanner.feed(b": keep-alive\n\n") == EventKind.NOTHING


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
def test_comments_are_not_counted_as_quiet_events(newline: bytes) -> None:
    data = b": ping\n\n: a\n:\n\nevent: ping\ndata:\n\n: b\ndata:\n\n".replace(b"\n", newline)
    for pieces in ways(data):
        scanner = FirstContent(CAP)
        for piece in pieces:
            assert scanner.feed(piece) == EventKind.NOTHING
        assert scanner.quiet == 2, name_of(pieces)


# Text in the first event with content of each recording, found by hand.
MARKS = {
    "chat_stream": rb'"finish_reason":"length"',
    "chat_stream_usage": rb'"content":"[^"]',
    "completion_stream": rb'"text":"[^"]',
    "messages_stream": rb'"type":"content_block_delta"',
    "responses_stream": rb'"type":"response.output_text.delta"',
}


def body_of(name: str) -> bytes:
    recorded = read_response((RECORDINGS / f"{name}.http").read_bytes())
    assert recorded is not None
    assert recorded.complete
    return bytes(recorded.body)


@pytest.mark.parametrize("name", MARKS)
def test_a_recorded_stream_cut_at_every_byte(name: str) -> None:
    body = body_of(name)
    mark = re.search(MARKS[name], body)
    assert mark is not None
    begins = body.index(b"\n\n", mark.start()) + 2
    assert verdict([body]) == EventKind.CONTENT
    bytewise = verdicts([body[at : at + 1] for at in range(len(body))])
    assert len(bytewise) == begins
    assert bytewise[-1] == EventKind.CONTENT
    for at in range(1, begins + 20):
        first = FirstContent(CAP)
        assert bool(first.feed(body[:at])) == (at >= begins), at
        if at < begins:
            assert first.feed(body[at:]) == EventKind.CONTENT, at


@examples(100)
@given(
    st.lists(st.sampled_from([data for data, _ in SHAPES if len(data) < 2000]), max_size=6),
    st.lists(st.integers(1, 30), min_size=1, max_size=10),
)
def test_cutting_never_changes_a_verdict(events: list[bytes], sizes: list[int]) -> None:
    data = b"".join(events)
    pieces = []
    at = 0
    while at < len(data):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(data[at : at + size])
        at += size
    assert verdict(pieces or [b""]) == verdict([data])


@examples(150)
@given(st.lists(st.binary(max_size=50), min_size=1, max_size=8))
def test_nothing_is_raised(pieces: list[bytes]) -> None:
    verdicts(pieces)
    verdicts([b"data: ", *pieces, b"\n\n"])
