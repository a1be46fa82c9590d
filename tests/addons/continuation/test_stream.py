"""A stream that breaks anywhere and is continued: the client gets one complete, counted stream."""

import json
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from router.addons.continuation.store import Outcome, Store
from router.addons.continuation.stream import Continuation
from router.config.model import Continuation as Rules
from router.dispatch.usage.token_counts import Usage
from router.dispatch.usage.usage_tap import UsageTap
from tests.addons.continuation.engine import PROMPT_TOKENS, TEXT, WORDS, made_of, read, stream
from tests.harness.messages import DONE, event, role, token
from tests.harness.reading import read_response
from tests.places import DATA

RECORDINGS = DATA / "vllm-0.32"
CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
PROMPT: dict[str, Any] = {"model": "m", "prompt": "hi", "max_tokens": 100}
BODIES = {"chat": CHAT, "completions": PROMPT}


def store(**rules: int) -> Store:
    return Store(Rules(enabled=True, **rules))


def open_stream(kind: str = "chat", kept: Store | None = None, **tap: Any) -> Continuation:
    return Continuation(kind, kept or store(), UsageTap(**tap))


def body_of(kind: str) -> bytes:
    return json.dumps(BODIES[kind]).encode()


def text_in(kind: str, asked: list[bytes]) -> str:
    """The text that the other replica is asked to continue."""
    body = json.loads(b"".join(asked))
    if kind == "chat":
        return str(body["messages"][-1]["content"])
    return str(body["prompt"]).removeprefix("hi")


def pieces(data: bytes, sizes: list[int]) -> list[bytes]:
    out: list[bytes] = []
    at = 0
    while at < len(data):
        size = sizes[len(out) % len(sizes)]
        out.append(data[at : at + size])
        at += size
    return out


SIZES = st.lists(st.integers(1, 400), min_size=1, max_size=6)


@settings(deadline=None, max_examples=300)
@given(
    kind=st.sampled_from(["chat", "completions"]),
    breaks=st.lists(st.integers(0, 3000), min_size=1, max_size=3),
    sizes=SIZES,
    asked_by=st.sampled_from(["client", "router", "client, continuously"]),
)
def test_one_unbroken_stream(kind: str, breaks: list[int], sizes: list[int], asked_by: str) -> None:
    takes_out = asked_by == "router"
    continuous = asked_by.endswith("continuously")
    kept = store()
    tap = UsageTap(takes_out=takes_out)
    one = Continuation(kind, kept, tap)
    seen = b""
    after = 0
    for number, at in enumerate(breaks):
        data = b"".join(stream(kind, f"r{number}", after, continuous=continuous))
        for piece in pieces(data[:at], sizes):
            seen += one.feed(piece)
        asked = one.asked(body_of(kind))
        if isinstance(asked, Outcome):
            told = read(seen) if seen else None
            text = "" if told is None else told.text
            assert (asked is Outcome.FINISHED) == (told is not None and bool(told.finish))
            assert (asked is Outcome.STREAM) == (not text)
            return
        assert text_in(kind, asked) == read(seen).text
        after = made_of(read(seen).text)
        one.resumes(UsageTap(takes_out=takes_out))
    for piece in pieces(b"".join(stream(kind, "last", after, continuous=continuous)), sizes):
        seen += one.feed(piece)
    seen += one.flush()
    told = read(seen)
    assert told.text == TEXT
    assert told.roles == (kind == "chat")
    assert told.names == {("r0", 1000, "m-r0")}
    assert told.finish == ["stop"]
    assert told.done == 1
    if takes_out:
        assert told.usage is None
    else:
        assert told.usage == {
            "prompt_tokens": PROMPT_TOKENS,
            "completion_tokens": len(WORDS),
            "total_tokens": PROMPT_TOKENS + len(WORDS),
            "prompt_tokens_details": {"cached_tokens": PROMPT_TOKENS},
        }
    assert one.usage(True) == Usage(PROMPT_TOKENS, len(WORDS), None, False)
    one.close()
    assert kept.held == 0


@settings(deadline=None, max_examples=100)
@given(sizes=SIZES, kind=st.sampled_from(["chat", "completions"]))
def test_what_does_not_break_is_relayed_byte_for_byte(sizes: list[int], kind: str) -> None:
    data = b"".join(stream(kind, "r0"))
    one = open_stream(kind)
    assert b"".join([one.feed(piece) for piece in pieces(data, sizes)]) + one.flush() == data
    assert one.usage(True) == Usage(PROMPT_TOKENS, len(WORDS), PROMPT_TOKENS, True)
    assert one.asked(body_of(kind)) is Outcome.FINISHED


@pytest.mark.parametrize("recording", ["chat_stream_usage", "chat_stream", "completion_stream"])
def test_recorded_streams_are_understood(recording: str) -> None:
    """Up to the finish reason, which marks the end, every recorded vLLM stream can be continued."""
    found = read_response((RECORDINGS / f"{recording}.http").read_bytes())
    assert found is not None
    body = bytes(found.body)
    kind = "chat" if recording.startswith("chat") else "completions"
    parts = [part + b"\n\n" for part in body.split(b"\n\n")[:-1]]
    for count in range(1, len(parts) + 1):
        one = open_stream(kind)
        assert one.feed(b"".join(parts[:count])) == b"".join(parts[:count])
        asked = one.asked(body_of(kind))
        told = read(b"".join(parts[:count]))
        if isinstance(asked, list):
            assert text_in(kind, asked) == told.text != ""
        else:
            assert asked is (Outcome.FINISHED if told.finish else Outcome.STREAM)


@pytest.mark.parametrize(
    "said",
    [
        event({"id": "a", "choices": [{"index": 0, "delta": {"reasoning_content": "hm"}}]}),
        event({"id": "a", "choices": [{"index": 0, "delta": {"reasoning": "hm"}}]}),
        event({"id": "a", "choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0}]}}]}),
        event({"id": "a", "choices": [{"index": 0, "delta": {"content": "x"}, "logprobs": {}}]}),
        event({"id": "a", "choices": [{"index": 1, "delta": {"content": "x"}}]}),
        event({"id": "a", "choices": [{"index": 0}, {"index": 1}]}),
        event({"id": "a", "choices": "none"}),
        event({"error": {"message": "boom", "code": 400}}),
        token("<think>"),
        token("well</think>"),
        b"data: no JSON\n\n",
        b"event: message\n" + token("a"),
        token("a").replace(b"\n", b"\r\n"),
        b"retry: 10\n\n",
        b"data: " + b"x" * (33 * 1024),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_streams_that_are_not_continued(said: bytes) -> None:
    one = open_stream()
    data = role() + token("a") + said
    assert data.startswith(one.feed(data))
    assert one.asked(body_of("chat")) is Outcome.STREAM


def test_an_error_of_the_second_stream_is_relayed_if_no_replica_continues() -> None:
    one = open_stream()
    one.feed(role() + token("a"))
    assert isinstance(one.asked(body_of("chat")), list)
    one.resumes(UsageTap())
    error = event({"error": {"message": "boom", "code": 500}})
    assert one.feed(role() + error + DONE) == b""
    assert one.is_broken
    assert isinstance(one.asked(body_of("chat")), list)
    assert one.take_withheld() == error + DONE
    assert not one.is_broken


# -- stored text --------------------------------------------------------------------------------


def test_events_are_not_kept_for_longer_than_text() -> None:
    kept = store()
    one = open_stream(kept=kept)
    reserve = kept.held
    one.feed(role())
    for _ in range(5000):
        one.feed(token("word"))
    assert reserve < kept.held < reserve + 5000 * 4 + 1
    asked = one.asked(body_of("chat"))
    assert isinstance(asked, list)
    assert text_in("chat", asked) == "word" * 5000
    assert kept.held == reserve + 5000 * 4
    one.close()
    one.close()
    assert kept.held == 0


def test_a_text_that_is_too_long_is_dropped() -> None:
    kept = store(text=1000)
    one, other = open_stream(kept=kept), open_stream(kept=kept)
    reserve = kept.held // 2
    for _ in range(2000):
        event_ = token("é")
        assert one.feed(event_) == event_
    assert one.asked(body_of("chat")) is Outcome.SIZE
    assert kept.held == reserve
    other.close()
    one.close()
    assert kept.held == 0


def test_all_texts_together_are_bounded() -> None:
    kept = store(text_total=3 * 8192 + 1000)
    streams = [open_stream(kept=kept) for _ in range(4)]
    for one in streams:
        one.feed(token("x" * 300))
    found = [one.asked(body_of("chat")) for one in streams]
    assert [isinstance(asked, list) for asked in found] == [True, True, True, False]
    assert kept.held <= 3 * 8192 + 1000
    for one in streams:
        one.close()
    assert kept.held == 0


def test_a_reload_changes_the_caps_of_what_comes() -> None:
    kept = store()
    one = open_stream(kept=kept)
    kept.adopt(Rules(enabled=True, text=1, text_total=1))
    one.feed(token("ab"))
    assert one.asked(body_of("chat")) is Outcome.SIZE
    assert kept.held == 0


def test_a_recorded_stream_goes_on_in_another() -> None:
    found = read_response((RECORDINGS / "chat_stream_usage.http").read_bytes())
    assert found is not None
    first = b"".join(stream("chat", "r0")[:4])
    one = open_stream()
    seen = one.feed(first)
    assert one.usage(False).output_tokens == 4
    assert isinstance(one.asked(body_of("chat")), list)
    one.resumes(UsageTap())
    seen += one.feed(bytes(found.body)) + one.flush()
    told = read(seen)
    assert told.text == "The fox met" + read(bytes(found.body)).text
    assert (told.roles, told.done, told.finish) == (1, 1, ["length"])
    assert told.usage == {"prompt_tokens": 25, "completion_tokens": 7, "total_tokens": 32}
