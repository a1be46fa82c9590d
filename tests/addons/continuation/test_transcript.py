"""The transcript is equal whether each event is parsed or only compared with the previous one."""

import json
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from router.addons.continuation.store import Outcome
from router.addons.continuation.transcript import Transcript
from tests.harness.messages import role

TEXTS = st.text(max_size=8) | st.sampled_from(["", '"', "\\", '"content":"x"', "\n\n", "data: "])


def compact(value: Any) -> bytes:
    """JSON in the engines' format: without spaces."""
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


def said(text: str, **more: Any) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "logprobs": None, "finish_reason": None}
    return compact({"id": "a", "choices": [choice | more]})


def facts(made: Transcript) -> tuple[Any, ...]:
    return bytes(made.text), made.tokens, made.prompt_tokens, made.obstacle


@settings(deadline=None)
@given(
    texts=st.lists(TEXTS, max_size=12),
    usages=st.lists(st.integers(0, 11), max_size=3),
    kind=st.sampled_from(["chat", "completions"]),
)
def test_by_likeness_or_one_by_one(texts: list[str], usages: list[int], kind: str) -> None:
    events: list[bytes] = []
    for made, text in enumerate(texts):
        choice: dict[str, Any] = {"index": 0, "finish_reason": None}
        choice |= {"text": text} if kind == "completions" else {"delta": {"content": text}}
        value: dict[str, Any] = {"id": "a", "choices": [choice]}
        if made in usages:
            value["usage"] = {"prompt_tokens": 5, "completion_tokens": made + 1}
        events.append(compact(value))
    together, apart = Transcript(), Transcript()
    together.add(b"".join(events))
    for one in events:
        apart.add(one.replace(b'"id":"a"', b'"id": "a%d"' % len(apart.text)))
    assert facts(together) == facts(apart)
    assert together.text.decode() == "".join(texts)
    last = max((n for n, text in enumerate(texts) if text), default=-1)
    assert together.tokens == last + 1


@pytest.mark.parametrize(
    "more",
    [
        {"delta": {"content": "b", "tool_calls": [{"index": 0}]}},
        {"delta": {"content": "b", "reasoning": "hm"}},
        {"delta": {"content": "b"}, "logprobs": {"content": []}},
        {"index": 1},
        {"finish_reason": "stop"},
    ],
    ids=str,
)
def test_a_special_event_is_found_among_usual_ones(more: dict[str, Any]) -> None:
    made = Transcript()
    made.add(role() + said("a") * 3 + said("b", **more) + said("c"))
    finished = "finish_reason" in more
    assert made.obstacle is (Outcome.FINISHED if finished else Outcome.STREAM)


def test_two_strings_are_not_one_text() -> None:
    """Only the text of two events may differ: here a second member follows where the closing
    quote is expected.
    """
    made = Transcript()
    sly = said("a").replace(b'"content":"a"', b'"content":"b","tool_calls":"c"')
    made.add(said("a") + said("a") + sly)
    assert made.obstacle is Outcome.STREAM


def test_a_repeated_text_field_is_parsed_completely() -> None:
    made = Transcript()
    value = {"choices": [{"index": 0, "delta": {"content": "a"}, "message": {"content": "z"}}]}
    made.add(compact(value) * 2 + compact(value).replace(b'"a"', b'"b"'))
    assert made.text == b"aab"
