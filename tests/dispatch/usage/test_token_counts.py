"""Token counts in whole answers, in every engine's format."""

import json
from time import process_time
from typing import Any

import pytest
from hypothesis import given, strategies as st

from router.dispatch.usage.token_counts import (
    UNKNOWN,
    BodyEnd,
    Usage,
    native_of,
    usage_elsewhere,
    usage_of,
)
from router.dispatch.usage.usage_numbers import Numbers
from router.dispatch.usage.usage_tap import UsageTap
from router.fleet.engines.common.registry import ENGINES
from tests.dispatch.usage.test_usage_tap import HELD, TOLD, body_of, cut, tapped, usage_event
from tests.examples import examples
from tests.harness.messages import DONE, event, role, token


def test_a_recorded_answer() -> None:
    assert usage_of(body_of("chat")) == Usage(28, 6, None, True)


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
        # One invalid member does not hide the others.
        ({**TOLD, "prompt_tokens": 28.0, "completion_tokens": "4"}, (28, 4, None)),
        ({**TOLD, "prompt_tokens_details": []}, (28, 4, None)),
        ({**TOLD, "prompt_tokens_details": {"cached_tokens": "16.0"}}, (28, 4, 16)),
        ({**TOLD, "completion_tokens_details": [], "cache_read_input_tokens": {}}, (28, 4, None)),
        ({**TOLD, "completion_tokens": []}, (28, 4, None)),  # the total minus the prompt
        ({**TOLD, "prompt_tokens": -1}, (28, 4, None)),
        # The total is a lower limit: some providers count reasoning only there.
        ({**TOLD, "total_tokens": 132}, (28, 104, None)),
        ({"input_tokens": 8, "output_tokens": 4, "total_tokens": "20"}, (8, 12, None)),
        ({**TOLD, "total_tokens": 3}, (28, 4, None)),
        ({"total_tokens": 3}, (3, None, None)),
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
        {"total_tokens": "x"},
        {"prompt_tokens": -1},
        {"prompt_tokens": "-7"},
        {"prompt_tokens": "nan"},
        {"prompt_tokens": "1e99"},
        {"prompt_tokens": "9" * 30},
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


@given(st.lists(st.integers(1, 4000), min_size=1, max_size=6))
def test_an_answer_in_pieces(sizes: list[int]) -> None:
    body = b'{"text":"' + b"x" * 6000 + b'","usage":{"prompt_tokens":1,"completion_tokens":2}}'
    end = BodyEnd()
    assert b"".join(end.feed(piece) for piece in cut(body, sizes)) == body
    assert end.result(True) == Usage(1, 2, None, True)
    assert end.result(False) == UNKNOWN


@examples(300)
@given(st.binary(max_size=80), st.sampled_from([b"", b'"usage":{', b'{"usage": {"prompt_tokens":']))
def test_nothing_is_raised(data: bytes, before: bytes) -> None:
    usage_of(before + data)
    usage_of(data + before)


@examples(300)
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
    end = BodyEnd(b"/generate")
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
        assert len(numbers._carry) <= 80


def test_lines_are_counted_in_pieces_of_any_size() -> None:
    end = BodyEnd()
    for piece in (b'{"a": 1}\n' * 1000, b"x" * 9000, b'{"a": 1}\n{}\n'):
        assert end.feed(piece) == piece
    assert end.lines == 1002


def test_of_a_response_only_its_own_usage_counts() -> None:
    """The text of `metadata` is the client's."""
    forged = {"usage": {"prompt_tokens": 0, "completion_tokens": 0}, "eval_count": 9}
    own = {"input_tokens": 28, "output_tokens": 4}
    for usage, expected in ((own, Usage(28, 4, None, True)), (None, None), (7, None)):
        answer = {"output": ["x" * 5000], "usage": usage, "metadata": forged, "tools": [forged]}
        body = json.dumps(answer).encode()
        assert usage_elsewhere(b"/v1/responses", body) == expected
        for size in (1, 1000, 100_000):
            end = BodyEnd(b"/v1/responses")
            assert b"".join(end.feed(piece) for piece in cut(body, [size])) == body
            assert end.result(True) == (expected or UNKNOWN)
            assert end.result(False) == UNKNOWN
    for broken in (b"", b"[]", b"{", b'{"usage":', b'{"response":1}', b'"\xff"'):
        assert usage_elsewhere(b"/v1/responses", broken) is None
