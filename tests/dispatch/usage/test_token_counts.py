"""UsageTap: the output is the input without the usage that only the router requested.

The counts are correct. The reference is the stream without the usage event, built separately.
"""

from __future__ import annotations

import json
from time import process_time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.dispatch.usage.token_counts import UNKNOWN, BodyEnd, Usage, native_of, usage_of
from router.dispatch.usage.usage_numbers import Numbers
from router.dispatch.usage.usage_tap import UsageTap
from router.fleet.engines.common.registry import ENGINES
from tests.harness.messages import DONE, event, role, token
from tests.harness.reading import read_response
from tests.harness.splits import name_of, ways
from tests.places import DATA

RECORDINGS = DATA / "vllm-0.32"
TOLD = {"prompt_tokens": 28, "total_tokens": 32, "completion_tokens": 4}
HELD = 32 * 1024  # maximum bytes that a tap may hold back


def usage_event(usage: Any = TOLD, **more: Any) -> bytes:
    return event(
        {"id": "c", "object": "chat.completion.chunk", "choices": [], "usage": usage, **more}
    )


def with_usage(text: str, usage: Any, finish: str | None = None) -> bytes:
    """A content event with a `usage`."""
    value = json.loads(token(text, finish)[6:])
    value["usage"] = usage
    return event(value)


def tapped(pieces: list[bytes], **settings: Any) -> tuple[bytes, Usage]:
    tap = UsageTap(**settings)
    out = b"".join([tap.feed(piece) for piece in pieces]) + tap.flush()
    return out, tap.result(True)


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    pieces: list[bytes] = []
    at = 0
    while at < len(data):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(data[at : at + size])
        at += size
    return pieces


# -- byte-exactness -----------------------------------------------------------------------------

TOOL = event(
    {
        "choices": [
            {
                "index": 0,
                "delta": {
                    "tool_calls": [
                        {"index": 0, "function": {"arguments": '{"usage": {"x_tokens": 1}}\n\n'}}
                    ]
                },
                "finish_reason": None,
            }
        ]
    }
)
STAYS: list[bytes] = [
    role(),
    token("a"),
    token('"usage":{"prompt_tokens":1},"choices":[]'),  # only text that mentions usage
    token("a\r\n\r\nb\n\ndata: x"),
    token("x" * (HELD + 100)),
    with_usage("b", None),
    event({"choices": []}),
    event({"choices": [], "usage": None}),
    event({"choices": [], "usage": []}),
    event({"choices": [], "usage": "_tokens"}),
    event({"choices": [], "prompt_filter_results": [{"max_tokens": 1}]}),
    event({"usage": {"prompt_tokens": 1}}),
    event({"choices": None, "usage": {"prompt_tokens": 1}}),
    event({"choices": [{"index": 1, "delta": {"content": "n"}}, {"index": 0, "delta": {}}]}),
    TOOL,
    event({"error": {"message": 'boom _tokens" ', "code": 500}}),
    event({"type": "error", "error": {"code": 503}, "max_tokens": 1}),
    b"event: error\ndata: {}\n\n",
    b": keep-alive\n\n",
    b":\n\n",
    b"\n",
    b"\n\n",
    b"data:\n\n",
    b'data: {"choices":[],"usage":{"prompt_tokens":\n\n',
    b'data: no JSON _tokens"\n\n',
    b"id: 1\nretry: 10\n\n",
    DONE,
]
GOES: list[bytes] = [
    usage_event(),
    usage_event({**TOLD, "prompt_tokens_details": {"cached_tokens": 16}}),
    usage_event(system_fingerprint="vllm-0.32.0-7166a170"),
    b"data:" + usage_event()[6:],
    b"id: 7\nevent: message\n" + usage_event(),
    b'data: {"choices":[],\ndata:"usage":{"prompt_tokens":1,"completion_tokens":3}}\n\n',
]


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("goes", GOES, ids=lambda value: repr(value)[:60])
def test_an_unrequested_usage_event_is_removed_in_any_pieces(goes: bytes, newline: bytes) -> None:
    before, after = token("a") + token("b", "stop"), DONE
    stream, expected = (
        data.replace(b"\n", newline) for data in (before + goes + after, before + after)
    )
    for pieces in ways(stream):
        out, usage = tapped(pieces, takes_out=True)
        assert out == expected, name_of(pieces)
        assert usage.exact, name_of(pieces)


@pytest.mark.parametrize("takes_out", [True, False])
@pytest.mark.parametrize("stays", STAYS, ids=lambda value: repr(value)[:60])
def test_any_other_event_is_kept_in_any_pieces(stays: bytes, takes_out: bool) -> None:
    stream = token("a") + stays + DONE
    splits = ways(stream) if len(stream) < 2000 else iter([cut(stream, [7]), [stream]])
    for pieces in splits:
        assert tapped(pieces, takes_out=takes_out)[0] == stream, name_of(pieces)


@settings(deadline=None, max_examples=400)
@given(
    parts=st.lists(st.sampled_from(STAYS + GOES), max_size=8),
    sizes=st.lists(st.integers(1, 300), min_size=1, max_size=12),
    newline=st.sampled_from([b"\n", b"\r\n"]),
)
def test_what_comes_out_is_what_was_not_asked_for(
    parts: list[bytes], sizes: list[int], newline: bytes
) -> None:
    stream = b"".join(parts).replace(b"\n", newline)
    expected = b"".join(part for part in parts if part not in GOES).replace(b"\n", newline)
    assert tapped(cut(stream, sizes), takes_out=True)[0] == expected
    assert tapped(cut(stream, sizes), takes_out=False)[0] == stream


@settings(deadline=None, max_examples=200)
@given(st.lists(st.binary(max_size=60), max_size=8))
def test_any_bytes_pass(pieces: list[bytes]) -> None:
    for takes_out in (True, False):
        wrapped = [b"data: ", *pieces, b'"_tokens":1\n', b"\n"]
        assert tapped(wrapped, takes_out=takes_out)[0] == b"".join(wrapped)


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(1, 300), min_size=1, max_size=12),
    parts=st.lists(st.sampled_from(STAYS), max_size=5),
)
def test_nothing_is_held_but_an_unfinished_event(sizes: list[int], parts: list[bytes]) -> None:
    stream = b"".join(parts)
    tap = UsageTap(takes_out=True)
    fed = got = 0
    for piece in cut(stream, sizes):
        fed += len(piece)
        got += len(tap.feed(piece))
        held = fed - got
        assert held <= HELD
        assert b"\n\n" not in stream[got : got + held], "a whole event is held"


# -- the fingerprint ----------------------------------------------------------------------------


def compact(data: bytes) -> bytes:
    value = json.loads(data[6:])
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


FINISH = compact(token("z", "stop"))
PRINT = usage_event(system_fingerprint='v"1')
STAMPED = FINISH[:-3] + b',"system_fingerprint":"v\\"1"}\n\n'


def test_the_last_event_takes_over_the_fingerprint_wherever_it_is_cut() -> None:
    stream = compact(token("a")) + FINISH + PRINT + DONE
    expected = compact(token("a")) + STAMPED + DONE
    for pieces in ways(stream):
        assert tapped(pieces, takes_out=True)[0] == expected, name_of(pieces)
        assert tapped(pieces)[0] == stream, name_of(pieces)


def test_of_several_choices_the_last_takes_it_over() -> None:
    more = compact(token("b"))
    stream = FINISH + more + FINISH + PRINT + DONE
    for pieces in ways(stream):
        out = tapped(pieces, takes_out=True)[0]
        assert out == FINISH + more + STAMPED + DONE, name_of(pieces)


def test_a_fingerprint_is_not_sent_twice() -> None:
    stream = STAMPED + PRINT + DONE
    for pieces in ways(stream):
        assert tapped(pieces, takes_out=True)[0] == STAMPED + DONE, name_of(pieces)


def test_an_event_with_a_reason_waits_for_the_next_one_only() -> None:
    tap = UsageTap(takes_out=True)
    assert tap.feed(FINISH) == b""
    assert tap.ends_between_events
    assert tap.release() == FINISH
    assert tap.feed(FINISH) == b""
    assert tap.feed(DONE) == FINISH + DONE
    assert tap.feed(FINISH) == b""
    assert tap.flush() == FINISH
    assert UsageTap(takes_out=True, whole=True).feed(FINISH) == FINISH


def test_a_recorded_stream_ends_as_one_that_was_asked_for_no_usage() -> None:
    """Real vLLM: the event with the finish reason has the same members, in the same order."""
    asked, unasked = (
        bytes(read_response((RECORDINGS / name).read_bytes()).body)
        for name in ("chat_stream_usage.http", "chat_stream.http")
    )
    given = tapped([asked], takes_out=True)[0]
    last, expected = (
        json.loads(next(line for line in reversed(body.split(b"\n\n")) if b'"choices"' in line)[6:])
        for body in (given, unasked)
    )
    assert list(last) == list(expected)
    assert last["system_fingerprint"] == expected["system_fingerprint"]


def test_without_taking_out_nothing_is_ever_held() -> None:
    tap = UsageTap()
    for at in range(len(usage_event())):
        byte = usage_event()[at : at + 1]
        assert tap.feed(byte) == byte


def test_an_event_that_never_ends_is_relayed_in_pieces() -> None:
    tap = UsageTap(takes_out=True)
    begun = b"data: " + b"x" * (HELD - 6)
    assert tap.feed(begun) == b""
    assert tap.feed(b"y") == begun + b"y"
    assert tap.feed(b"z" * 100) == b"z" * 100
    assert not tap.ends_between_events
    assert tap.feed(b"\n") + tap.feed(b"\n") == b"\n\n"
    assert tap.feed(usage_event()[:20]) == b""
    assert tap.ends_between_events
    assert tap.feed(usage_event()[20:] + DONE) == DONE


@pytest.mark.parametrize("last", [usage_event().rstrip(b"\n"), usage_event()[:-1]])
def test_an_end_without_a_blank_line(last: bytes) -> None:
    assert tapped([token("a"), last], takes_out=True)[0] == token("a")
    assert (
        tapped([token("a"), b"data: [DONE]\n"], takes_out=True)[0] == token("a") + b"data: [DONE]\n"
    )
    assert tapped([token("a"), last])[1].prompt_tokens == 28


@pytest.mark.parametrize("size", [1, 50, 100_000])
def test_an_engine_that_always_reports_usage_is_not_changed(size: int) -> None:
    """Usage on content events was not requested by the router: the client gets it in any case."""
    always = with_usage("a", TOLD) + with_usage("b", TOLD, "stop") + usage_event() + DONE
    at_last = token("a") + with_usage("b", TOLD, "stop") + DONE
    for stream in (always, at_last):
        out, usage = tapped(cut(stream, [size]), takes_out=True)
        assert out == stream
        assert usage == Usage(28, 4, None, True)


def test_a_long_stream_is_not_looked_through_again_and_again() -> None:
    """An event of 3 MB arrives byte by byte: the stored part and the work are bounded."""
    tap = UsageTap(takes_out=True)
    for _ in range(3000):
        tap.feed(b"x" * 1000)
        assert len(tap._event) <= HELD + 1000


# -- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize("takes_out", [True, False])
@pytest.mark.parametrize(
    "report",
    [
        event({"error": {"message": "m", "code": 500}}),
        b'data:{"error":"in words"}\n\n',
        b"event: error\n" + event({"type": "error", "error": {}}),
        b"id: 1\n" + event({"error": {"message": "m", "code": 500}}),
    ],
)
def test_an_error_is_seen_on_its_way(report: bytes, takes_out: bool) -> None:
    """Each event in a separate read, as engines send them."""
    tap = UsageTap(takes_out=takes_out)
    for calm in (role(), token("a"), b"event: x\n" + token('data: {"error"'), STAYS[2]):
        assert tap.feed(calm) == calm
        assert not tap.errors.has_seen
    assert tap.feed(report) == report
    assert tap.errors.has_seen


# -- counts -------------------------------------------------------------------------------------


def body_of(name: str) -> bytes:
    recorded = read_response((RECORDINGS / f"{name}.http").read_bytes())
    assert recorded is not None
    assert recorded.complete
    return bytes(recorded.body)


RECORDED = {
    "chat_stream_usage": Usage(28, 4, None, True),
    "messages_stream": Usage(28, 4, None, True),
    "responses_stream": Usage(8, 4, 0, True),
    "completion_stream": Usage(None, 4, None, False),
}


@pytest.mark.parametrize("size", [1, 7, 100, 100_000])
@pytest.mark.parametrize("name", RECORDED)
def test_recorded_streams(name: str, size: int) -> None:
    body = body_of(name)
    out, usage = tapped(cut(body, [size]))
    assert out == body
    assert usage == RECORDED[name]


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_streams_an_event_a_read(name: str) -> None:
    pieces = [piece + b"\n\n" for piece in body_of(name).split(b"\n\n")[:-1]]
    assert tapped(pieces) == (body_of(name), RECORDED[name])


def test_a_recorded_answer() -> None:
    assert usage_of(body_of("chat")) == Usage(28, 6, None, True)


@pytest.mark.parametrize("size", [1, 100, 100_000])
def test_events_are_counted_if_usage_is_not_reported(size: int) -> None:
    """One token per event; the part before the content and the [DONE] are not counted."""
    stream = b": ping\n\n" + role() + b"".join(token(f"t{n}") for n in range(9)) + DONE
    for takes_out in (True, False):
        out, usage = tapped(cut(stream, [size]), takes_out=takes_out, quiet=2)
        assert out == stream
        assert usage == Usage(None, 9, None, False)


def test_events_so_far() -> None:
    tap = UsageTap(quiet=1)
    for piece in (role(), token("a"), token("b"), token("c")[:40]):
        tap.feed(piece)
    assert tap.result(False) == Usage(None, 2, None, False)


def test_counts_so_far() -> None:
    """Anthropic reports the prompt first and the output last: in between, tokens are counted."""
    start = event(
        {"type": "message_start", "message": {"usage": {"input_tokens": 9, "output_tokens": 1}}}
    )
    delta = b"event: content_block_delta\n" + event({"type": "content_block_delta", "delta": {}})
    end = event({"type": "message_delta", "usage": {"output_tokens": 7}})
    tap = UsageTap(quiet=1)
    tap.feed(start)
    for _ in range(5):
        tap.feed(delta)
    assert tap.result(False) == Usage(9, 5, None, False)
    tap.feed(end)
    tap.feed(event({"type": "message_stop"}))
    assert tap.result(False) == Usage(9, 7, None, False)
    assert tap.result(True) == Usage(9, 7, None, True)


def test_the_beginning_and_the_end_in_one_read() -> None:
    start = event({"type": "message_start", "message": {"usage": {"input_tokens": 9}}})
    end = event({"type": "message_delta", "usage": {"output_tokens": 7}})
    assert tapped([start + end])[1] == Usage(9, 7, None, True)


def test_a_count_before_more_content_is_not_final() -> None:
    tap = UsageTap()
    tap.feed(with_usage("a", {"prompt_tokens": 5, "completion_tokens": 1}))
    for _ in range(4):
        tap.feed(token("b"))
    assert tap.result(True) == Usage(5, 4, None, False)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (TOLD, (28, 4, None)),
        ({**TOLD, "prompt_tokens_details": None}, (28, 4, None)),
        ({**TOLD, "prompt_tokens_details": {"cached_tokens": 16}}, (28, 4, 16)),
        ({**TOLD, "prompt_tokens_details": {"cached_tokens": 99}}, (28, 4, None)),
        ({**TOLD, "completion_tokens_details": {"reasoning_tokens": 3}}, (28, 4, None)),
        ({"prompt_tokens": 6, "total_tokens": 6}, (6, None, None)),  # embeddings
        ({"prompt_tokens": 6, "completion_tokens": None}, (6, None, None)),
        ({"input_tokens": 8, "output_tokens": 4}, (8, 4, None)),
        (
            {"input_tokens": 8, "input_tokens_details": {"cached_tokens": 2}, "output_tokens": 4},
            (8, 4, 2),
        ),
        (
            {
                "input_tokens": 8,
                "cache_read_input_tokens": 90,
                "cache_creation_input_tokens": 2,
                "output_tokens": 4,
            },
            (100, 4, 90),
        ),
    ],
    ids=str,
)
def test_shapes_of_usage(usage: dict[str, Any], expected: tuple[Any, ...]) -> None:
    answer = json.dumps({"a": [1], "usage": usage, "b": {"c": None}}).encode()
    assert usage_of(answer) == Usage(*expected, True)


@pytest.mark.parametrize(
    "usage",
    [
        None,
        3,
        [],
        {},
        {"total_tokens": 3},
        {"prompt_tokens": -1, "completion_tokens": 2},
        {"prompt_tokens": 1.5},
        {"prompt_tokens": "7"},
        {"prompt_tokens": 1 << 60},
        {"prompt_tokens": True},
    ],
    ids=str,
)
def test_values_that_are_not_a_usage(usage: Any) -> None:
    assert usage_of(json.dumps({"usage": usage}).encode()) is None
    assert tapped([token("a"), usage_event(usage), DONE])[1].prompt_tokens is None


def test_llamacpp_reports_counts_in_its_timings() -> None:
    """Counts come unrequested on the last content event; old versions omit cached tokens."""
    timings = {"cache_n": 30, "prompt_n": 10, "prompt_ms": 1.5, "predicted_n": 3}
    last = event({"choices": [{"delta": {}, "finish_reason": "stop"}], "timings": timings})
    stream = token("a") + token("b") + last + DONE
    for size in (1, 60, 100_000):
        out, usage = tapped(cut(stream, [size]), mark=ENGINES["llamacpp"].counts_mark)
        assert out == stream
        assert usage == Usage(40, 3, 30, True)
    del timings["cache_n"]
    assert usage_of(json.dumps({"timings": timings}).encode()) == Usage(None, 3, None, False)


def test_the_answer_of_one_engine_is_not_read_as_anothers() -> None:
    both = {"usage": {"prompt_tokens": 1, "completion_tokens": 2}, "timings": {"predicted_n": 9}}
    assert usage_of(json.dumps(both).encode()) == Usage(1, 2, None, True)


def test_the_end_of_an_answer_comes_first_then_all_of_it() -> None:
    usage = b'"usage":{"prompt_tokens":1,"completion_tokens":2}'
    assert usage_of(b'{"text":"' + b"x" * 5000 + b'",' + usage + b"}") == Usage(1, 2, None, True)
    assert usage_of(b"{" + usage + b',"text":"' + b"x" * 5000 + b'"}') == Usage(1, 2, None, True)
    assert usage_of(b'{"text":"\\"usage\\":{\\"prompt_tokens\\":1}"}') is None
    assert usage_of(b'"usage":{"prompt_tokens":1') is None
    assert usage_of(b"") is None


@settings(deadline=None)
@given(st.lists(st.integers(1, 4000), min_size=1, max_size=6))
def test_an_answer_in_pieces(sizes: list[int]) -> None:
    body = b'{"text":"' + b"x" * 6000 + b'","usage":{"prompt_tokens":1,"completion_tokens":2}}'
    end = BodyEnd()
    assert b"".join(end.feed(piece) for piece in cut(body, sizes)) == body
    assert end.result(True) == Usage(1, 2, None, True)
    assert end.result(False) == UNKNOWN


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=80), st.sampled_from([b"", b'"usage":{', b'{"usage": {"prompt_tokens":']))
def test_nothing_is_raised(data: bytes, before: bytes) -> None:
    usage_of(before + data)
    usage_of(data + before)


@settings(deadline=None, max_examples=300)
@given(
    st.sampled_from(["prompt_tokens", "completion_tokens", "input_tokens", "eval_count"]),
    st.one_of(st.integers(-(10**20), 10**20), st.floats(), st.text(max_size=3), st.none()),
    st.booleans(),
)
def test_a_count_is_never_negative(name: str, value: object, is_usage: bool) -> None:
    counts = {"prompt_tokens": 1, name: value} if is_usage else {name: value}
    answer = {"usage": counts} if is_usage else counts
    found = usage_of(json.dumps(answer).encode())
    if isinstance(value, int) and 0 <= value < 10**14:
        assert found is not None
    for count in () if found is None else (found.prompt_tokens, found.output_tokens):
        assert count is None or count >= 0


@pytest.mark.parametrize("takes_out", [False, True])
@pytest.mark.parametrize(
    "unit", [b"\r", b"\r\n", b"\n\n", b":\n\n", b"\r\r\n", b'_tokens"\n\n', b'"usage"', b"\n\r"]
)
def test_a_hostile_mebibyte_is_parsed_quickly(unit: bytes, takes_out: bool) -> None:
    """The time of one read on the event loop must be proportional to its size."""
    tap = UsageTap(takes_out=takes_out)
    read = b'data: {"choices":[],"a_tokens":1}\n\n' + unit * (256 * 1024 // len(unit))
    began = process_time()
    for _ in range(4):
        tap.feed(read)
    assert process_time() - began < 0.4


# -- counts in other places ---------------------------------------------------------------------

LARGE = list(range(100_000, 101_000))
ELSEWHERE: list[tuple[Any, Usage]] = [
    ({"usage": TOLD, "prompt_token_ids": LARGE}, Usage(28, 4, None, True)),
    (
        {
            "text": "y",
            "meta_info": {
                "finish_reason": {"type": "stop", "matched": "}"},
                "prompt_tokens": 28,
                "input_token_logprobs": LARGE,
                "completion_tokens": 4,
                "cached_tokens": 16,
                "hidden_states": LARGE,
            },
        },
        Usage(28, 4, 16, True),
    ),
    ({"context": LARGE, "prompt_eval_count": 28, "eval_count": 4}, Usage(28, 4, None, True)),
    (
        {"generated_text": "y", "details": {"generated_tokens": 4, "tokens": LARGE}},
        Usage(None, 4, None, False),
    ),
    (
        {"timings": {"prompt_n": 12, "cache_n": 16, "predicted_n": 4}, "probs": LARGE},
        Usage(28, 4, 16, True),
    ),
    ([{"meta_info": {"prompt_tokens": 14, "completion_tokens": 2}}] * 2, Usage(28, 4, None, False)),
    (
        {"predictions": [{"meta_info": {"prompt_tokens": 14, "completion_tokens": 2}}] * 2},
        Usage(28, 4, None, False),
    ),
    ({"predictions": {"prompt_tokens": 28, "completion_tokens": 4}}, Usage(28, 4, None, True)),
]


@pytest.mark.parametrize("dumps", [json.dumps, lambda v: json.dumps(v, separators=(",", ":"))])
@pytest.mark.parametrize(("value", "expected"), ELSEWHERE)
def test_counts_that_stand_elsewhere(value: Any, expected: Usage, dumps: Any) -> None:
    body = dumps(value).encode()
    assert usage_of(body) == expected
    for size in (1, 7, 1000, 100_000):
        end = BodyEnd()
        assert b"".join(end.feed(piece) for piece in cut(body, [size])) == body
        assert end.result(True) == expected, size


def test_no_text_and_no_object_of_the_model_lowers_a_count() -> None:
    fake = {"usage": {"prompt_tokens": 0, "completion_tokens": 0}, "eval_count": 0}
    call = {"function": {"name": "f", "arguments": fake}}
    message = {"content": json.dumps({"eval_count": 1, **fake}), "tool_calls": [call]}
    body = json.dumps({"message": message, "prompt_eval_count": 28, "eval_count": 4}).encode()
    assert native_of(body) == Usage(28, 4, None, True)
    end = BodyEnd(is_native=True)
    end.feed(body)
    assert end.result(True) == Usage(28, 4, None, True)


@pytest.mark.parametrize("size", [100, 5000, 1_000_000])
def test_the_counts_of_an_event_too_long_to_hold_are_read(size: int) -> None:
    """vLLM's event `response.completed` has its messages after the usage."""
    usage = {"input_tokens": 28, "output_tokens": 40}
    value = {"response": {"output": "a" * HELD, "usage": usage, "output_messages": "b" * HELD}}
    for takes_out in (False, True):
        stream = role() + event(value) + DONE
        out, told = tapped(cut(stream, [size]), takes_out=takes_out)
        assert out == stream
        assert (told.prompt_tokens, told.output_tokens) == (28, 40)


def test_a_stream_in_an_engines_native_format() -> None:
    """SGLang reports the counts so far in every event; an event has more than one token."""
    events = [
        event({"text": "x" * n, "meta_info": {"prompt_tokens": 28, "completion_tokens": 8 * n}})
        for n in (1, 2, 3)
    ]
    assert tapped([*events, DONE])[1] == Usage(28, 24, None, False)


@pytest.mark.parametrize(
    "unit", [b'"eval_count" : ', b'"prompt_tokens":1', b'"_tokens"', b'"usage":{', b'{"a_n":[']
)
def test_searching_counts_takes_time_proportional_to_the_bytes(unit: bytes) -> None:
    """The number of bytes searched again with the next piece is bounded."""
    numbers = Numbers()
    for _ in range(200):
        numbers.feed(unit * 100)
        assert len(numbers._carry) <= 64


def test_lines_are_counted_in_pieces_of_any_size() -> None:
    end = BodyEnd()
    for piece in (b'{"a": 1}\n' * 1000, b"x" * 9000, b'{"a": 1}\n{}\n'):
        assert end.feed(piece) == piece
    assert end.lines == 1002


@pytest.mark.parametrize("text", [b"0.0123456," * 26_000, b"x_y," * 64_000, b"_n" * 128_000])
def test_no_answer_costs_more_than_a_few_searches(text: bytes) -> None:
    def took_s() -> float:
        end = BodyEnd()
        began = process_time()
        for _ in range(4):
            end.feed(text)
        return process_time() - began

    def searches_s() -> float:
        began = process_time()
        for _ in range(4):
            for needle in (b'_tokens"', b'eval_count"', b'_n"', b"}\n"):
                assert needle not in text
        return process_time() - began

    least = min(took_s() for _ in range(5))
    assert least < 3 * min(searches_s() for _ in range(5)) + 0.001
