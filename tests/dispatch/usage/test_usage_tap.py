"""UsageTap: the output is the input without the usage that only the router requested.

The counts are correct. The reference is the stream without the usage event, built separately.
"""

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from router.dispatch.usage.token_counts import Usage
from router.dispatch.usage.usage_tap import Closing, UsageTap
from router.fleet.cadence import Cadence
from tests.examples import examples
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


@examples(400)
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


@examples(200)
@given(st.lists(st.binary(max_size=60), max_size=8))
def test_any_bytes_pass(pieces: list[bytes]) -> None:
    for takes_out in (True, False):
        wrapped = [b"data: ", *pieces, b'"_tokens":1\n', b"\n"]
        assert tapped(wrapped, takes_out=takes_out)[0] == b"".join(wrapped)


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


def test_a_stream_that_may_break_holds_no_whole_event_and_has_an_unknown_length() -> None:
    for takes_out in (False, True):
        tap = UsageTap(takes_out=takes_out)
        assert tap.changes_length is takes_out
        tap.relay_whole_events()
        assert tap.changes_length
        assert tap.feed(FINISH) == FINISH
        assert tap.feed(FINISH[:9]) == b""


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


WORD = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
QUOTED = b'data: {"choices":[{"delta":{"content":"\\"finish_reason\\":\\"x"}}]}\n\n'
REASON = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
OTHER = b'data: {"choices":[{"index":1,"finish_reason":"length"}]}\n\n'
NULL = b'data: {"choices":[{"delta":{},"finish_reason":null}]}\n\n'
PRINTED = b'"fp_1"'


def stamped(event: bytes, fingerprint: bytes = PRINTED) -> bytes:
    return event[:-3] + b',"system_fingerprint":' + fingerprint + event[-3:]


@pytest.mark.parametrize("event", [WORD, QUOTED, NULL, DONE, b": comment\n\n"])
def test_other_events_are_not_held(event: bytes) -> None:
    closing = Closing()
    assert closing.pass_on(event) == event
    assert closing.held == b""


def test_an_event_that_has_a_fingerprint_keeps_its_own() -> None:
    own = stamped(REASON, b'"fp_0"')
    closing = Closing()
    closing.fingerprint = PRINTED
    assert closing.pass_on(own + DONE) == own + DONE
    # A fingerprint in an earlier event is not that of the event with the reason.
    earlier = stamped(WORD, b'"fp_0"')
    closing.fingerprint = PRINTED
    assert closing.pass_on(earlier + REASON) == earlier + stamped(REASON)


@pytest.mark.parametrize("data", [DONE, b"", WORD, REASON[:-3], b'"finish_reason":"'])
def test_without_a_whole_event_to_add_it_to_the_fingerprint_is_lost(data: bytes) -> None:
    closing = Closing()
    closing.fingerprint = PRINTED
    assert closing.pass_on(data) == data
    assert closing.fingerprint == b""


def test_a_fingerprint_of_any_json_is_copied_as_it_is() -> None:
    for fingerprint in (b"null", b'"a\\"b"', b'"%b %d"'):
        closing = Closing()
        closing.pass_on(REASON)
        closing.fingerprint = fingerprint
        assert closing.release(DONE) == stamped(REASON, fingerprint) + DONE


@given(st.lists(st.sampled_from([WORD, QUOTED, REASON, OTHER, NULL, DONE]), max_size=9), st.data())
def test_without_a_fingerprint_every_byte_passes_and_one_event_is_held_at_most(
    events: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(events)
    places = data.draw(st.lists(st.integers(0, len(stream)), max_size=6).map(sorted))
    closing, passed = Closing(), b""
    for start, end in zip([0, *places], [*places, len(stream)], strict=True):
        passed += closing.pass_on(stream[start:end])
        assert passed + closing.held == stream[:end]
        assert closing.held in (b"", REASON, OTHER) or stream[:end].endswith(closing.held)
        # One event, and the line end before it.
        assert len(closing.held) <= len(OTHER) + 1
    assert passed + closing.release(b"") == stream


# -- held bytes ----------------------------------------------------------------------------------


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
        assert not tap.has_seen_error
    assert tap.feed(report) == report
    assert tap.has_seen_error


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


@pytest.mark.parametrize("size", [0, 1, 7, 100, 100_000])
@pytest.mark.parametrize("name", RECORDED)
def test_recorded_streams(name: str, size: int) -> None:
    """`size`: bytes of a read; 0: each read is one event."""
    body = body_of(name)
    pieces = [piece + b"\n\n" for piece in body.split(b"\n\n")[:-1]]
    assert tapped(cut(body, [size]) if size else pieces) == (body, RECORDED[name])


@pytest.mark.parametrize("size", [1, 100, 100_000])
def test_events_are_counted_if_usage_is_not_reported(size: int) -> None:
    """One token per event; the part before the content and the [DONE] are not counted."""
    stream = b": ping\n\n" + role() + b"".join(token(f"t{n}") for n in range(9)) + DONE
    for takes_out in (True, False):
        out, usage = tapped(cut(stream, [size]), takes_out=takes_out, quiet=1)
        assert out == stream
        assert usage == Usage(None, 9, None, False)


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
def test_comments_are_not_counted(newline: bytes) -> None:
    """Some engines send `: ping` while no token comes."""
    ping, pings = b": ping\n\n", b": a\n:\n\n"
    commented = b": a\n" + token("a")  # the event has data
    parts = [role(), ping, token("a"), ping, pings, commented, ping, ping, usage_event(), ping]
    data = b"".join([*parts, pings, DONE]).replace(b"\n", newline)
    for pieces in [*ways(data), [part.replace(b"\n", newline) for part in (*parts, pings, DONE)]]:
        meter = Cadence()
        tap = UsageTap(quiet=1, meter=meter)
        assert b"".join([tap.feed(piece) for piece in pieces]) + tap.flush() == data
        assert (tap.events, tap.content_events, meter.events) == (5, 2, 5), name_of(pieces)
        assert tap.result(True) == Usage(28, 4, None, True)


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("settings", [{}, {"takes_out": True}], ids=str)
def test_the_end_of_a_stream_is_noticed_in_any_pieces(
    settings: dict[str, Any], newline: bytes
) -> None:
    """After `[DONE]` the client has everything, although the response has not ended."""
    begun = (role() + token("data: [DONE]") + usage_event()).replace(b"\n", newline)
    done = DONE.replace(b"\n", newline)
    for pieces in ways(begun + done):
        tap = UsageTap(**settings)
        fed = 0
        for piece in pieces:
            tap.feed(piece)
            fed += len(piece)
            # Without its last line end, the event is complete if the line end has two bytes.
            if fed <= len(begun) + len(done) - len(newline):
                assert not tap.has_done, name_of(pieces)
        assert tap.has_done, name_of(pieces)


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


CACHED = {"input_tokens": 9, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 1}


@pytest.mark.parametrize(
    ("told", "output", "exact"),
    [
        ({"output_tokens": 7}, 7, True),
        ({**dict.fromkeys(CACHED, 0), "output_tokens": 7}, 7, True),
        ({**dict.fromkeys(CACHED), "output_tokens": "7"}, 7, True),
        ({"input_tokens": [], "cache_read_input_tokens": [], "output_tokens": 7.0}, 7, True),
        ({"input_tokens": 9, "output_tokens": 7}, 7, True),
        ({"output_tokens": 0}, 4, False),
        ({"output_tokens": []}, 4, False),
        ({}, 4, False),
    ],
)
@pytest.mark.parametrize("size", [10, 100_000])
def test_no_count_is_lowered_by_a_member_that_is_missing_or_zero(
    told: dict[str, Any], output: int, exact: bool, size: int
) -> None:
    start = event({"type": "message_start", "message": {"usage": {**CACHED, "output_tokens": 1}}})
    delta = b"event: content_block_delta\n" + event({"type": "content_block_delta", "delta": {}})
    end = event({"type": "message_delta", "usage": told}) + event({"type": "message_stop"})
    _, usage = tapped(cut(start + 4 * delta + end, [size]), quiet=1)
    assert (usage.prompt_tokens, usage.cached_tokens) == (100, 90)
    assert usage.exact is exact
    assert usage.output_tokens is not None
    assert abs(usage.output_tokens - output) <= (0 if exact else 1)


def test_a_count_before_more_content_is_not_final() -> None:
    tap = UsageTap()
    tap.feed(with_usage("a", {"prompt_tokens": 5, "completion_tokens": 1}))
    for _ in range(4):
        tap.feed(token("b"))
    assert tap.result(True) == Usage(5, 4, None, False)


# -- /v1/responses ------------------------------------------------------------------------------

FORGED = {"usage": {"prompt_tokens": 0, "completion_tokens": 0}, "input_tokens": 0}
CREATED = {"response": {"usage": None, "metadata": FORGED, "max_output_tokens": 9}}
COMPLETED = {"response": {"usage": {"input_tokens": 28, "output_tokens": 40}, "metadata": FORGED}}


def of_responses(pieces: list[bytes], *, is_whole: bool = True) -> Usage:
    tap = UsageTap()
    tap.read_responses()
    stream = b"".join(pieces)
    assert b"".join([tap.feed(piece) for piece in pieces]) + tap.flush() == stream
    return tap.result(is_whole)


@pytest.mark.parametrize("size", [1, 64, 100_000])
@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
def test_only_the_answers_own_usage_counts(newline: bytes, size: int) -> None:
    events = b"".join(b"event: e\n" + event(value) for value in (CREATED, {"a": 1}, COMPLETED))
    stream = events.replace(b"\n", newline)
    assert of_responses(cut(stream, [size])) == Usage(28, 40, None, True)
    # An engine may leave out the last blank line.
    assert of_responses(cut(stream.rstrip(newline), [size])).prompt_tokens == 28


def test_without_the_answers_own_usage_nothing_is_believed() -> None:
    """The client leaves early, or the last event cannot be decoded."""
    created, cut_off = event(CREATED), event(COMPLETED)[:-9] + b"\n\n"
    assert of_responses([created, event({"a": 1})], is_whole=False) == Usage(None, 2, None, False)
    assert of_responses([created, cut_off]).prompt_tokens is None


@pytest.mark.parametrize("size", [HELD, 300_000])
def test_a_long_event_of_a_response_is_decoded(size: int) -> None:
    long = {"response": {**COMPLETED["response"], "tools": ["b" * 200_000, FORGED]}}
    assert of_responses(cut(event(long), [size])) == Usage(28, 40, None, True)


def test_of_an_event_too_long_to_keep_nothing_is_believed() -> None:
    long = {"response": {**COMPLETED["response"], "tools": ["b" * (1 << 21), FORGED]}}
    assert of_responses(cut(event(long), [HELD])).prompt_tokens is None
