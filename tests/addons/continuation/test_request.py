"""Which requests may be continued, and the request that the other replica gets."""

import json
from typing import Any

import pytest

from router.addons.continuation.request import continued
from router.addons.continuation.store import Outcome

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
COMPLETION: dict[str, Any] = {"model": "m", "prompt": "Once", "max_tokens": 9}


def ask(kind: str, body: dict[str, Any], text: str = " upon", tokens: int = 2) -> Any:
    made = continued(kind, json.dumps(body).encode(), text, tokens)
    return made if isinstance(made, Outcome) else json.loads(made)


def test_a_chat() -> None:
    body = {**CHAT, "stream": True, "temperature": 0, "seed": 7, "max_completion_tokens": 30}
    assert ask("chat", body, "Hello", 10) == {
        **body,
        "messages": [*CHAT["messages"], {"role": "assistant", "content": "Hello"}],
        "add_generation_prompt": False,
        "continue_final_message": True,
        "max_completion_tokens": 20,
    }


def test_a_chat_whose_last_message_its_client_left_open() -> None:
    last = {"role": "assistant", "content": "Once", "name": "bard"}
    body = {
        **CHAT,
        "messages": [*CHAT["messages"], last],
        "continue_final_message": True,
        "add_generation_prompt": False,
    }
    made = ask("chat", body)
    assert made == {
        **body,
        "messages": [*CHAT["messages"], {**last, "content": "Once upon"}],
    }


@pytest.mark.parametrize("prompt", ["Once", ["Once"]])
def test_a_completion(prompt: Any) -> None:
    body = {**COMPLETION, "prompt": prompt, "min_tokens": 3}
    expected = "Once upon" if isinstance(prompt, str) else ["Once upon"]
    assert ask("completions", body) == {
        **body,
        "prompt": expected,
        "max_tokens": 7,
        "min_tokens": 1,
    }


def test_a_completions_unspoken_limit() -> None:
    body = {"model": "m", "prompt": "Once"}
    assert ask("completions", body, tokens=4)["max_tokens"] == 12
    assert ask("completions", body, tokens=16) is Outcome.LENGTH
    assert "max_tokens" not in {
        name for name, value in ask("completions", {**body, "max_tokens": None}).items() if value
    }


@pytest.mark.parametrize("limit", [10, "10", 10.0])
def test_a_limit_in_whichever_way_engines_take_it(limit: Any) -> None:
    assert ask("chat", {**CHAT, "max_tokens": limit}, tokens=4)["max_tokens"] == 6
    assert ask("chat", {**CHAT, "max_tokens": limit}, tokens=10) is Outcome.LENGTH


def test_the_least_is_never_below_nothing() -> None:
    assert ask("chat", {**CHAT, "min_tokens": 5}, tokens=9)["min_tokens"] == 0


def test_everything_else_stays_as_the_client_wrote_it() -> None:
    body = (
        b' {"messages" : [ {"role":"user","content":"\\u00e9 \xc3\xa9", "n": 1.50} ],\n'
        b'"model":"\\u006d","temperature": 1.0e0,"max_tokens":5, "user":"a\\/b"}'
    )
    assert continued("chat", body, "x", 1) == (
        b'{"messages":[{"role":"user","content":"\\u00e9 \xc3\xa9", "n": 1.50},'
        b'{"role":"assistant","content":"x"}],'
        b'"model":"\\u006d","temperature":1.0e0,"max_tokens":4,"user":"a\\/b",'
        b'"add_generation_prompt":false,"continue_final_message":true}'
    )


@pytest.mark.parametrize(
    "more",
    [
        {"tools": [{"type": "function"}]},
        {"tool_choice": "auto"},
        {"tool_choice": {"type": "function"}},
        {"response_format": {"type": "json_object"}},
        {"guided_json": {}},
        {"guided_regex": "a*"},
        {"structured_outputs": {"json": {}}},
        {"include_reasoning": True},
        {"include_reasoning": False},
        {"reasoning_effort": "low"},
        {"chat_template_kwargs": {"enable_thinking": True}},
        {"stop": "\n"},
        {"stop": ["a", "b"]},
        {"logprobs": True},
        {"logprobs": 0},
        {"top_logprobs": 0},
        {"prompt_logprobs": 1},
        {"n": 2},
        {"n": True},
        {"best_of": 2},
        {"echo": True},
        {"suffix": "the end"},
        {"return_token_ids": True},
        {"bad_words": ["x"]},
        {"truncate_prompt_tokens": 10},
        {"some_new_thing": True},
        {"max_tokens": True},
        {"max_tokens": 1.5},
        {"max_tokens": "many"},
        {"max_tokens": "1_0"},
        {"max_tokens": "\uff11\uff10"},
        {"max_tokens": "9" * 5000},
        {"min_tokens": []},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["chat", "completions"])
def test_requests_that_a_seam_could_break_are_not_continued(
    kind: str, more: dict[str, Any]
) -> None:
    assert ask(kind, {**(CHAT if kind == "chat" else COMPLETION), **more}) is Outcome.REQUEST


@pytest.mark.parametrize(
    "more",
    [
        {"n": 1},
        {"tools": []},
        {"tools": None, "tool_choice": "none", "parallel_tool_calls": True},
        {"response_format": {"type": "text"}},
        {"stop": None},
        {"stop": []},
        {"logprobs": False},
        {"echo": False},
        {"reasoning_effort": None},
        {"some_new_thing": None},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"stop_token_ids": [7], "ignore_eos": True, "logit_bias": {"7": 1}},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["chat", "completions"])
def test_what_changes_nothing(kind: str, more: dict[str, Any]) -> None:
    made = ask(kind, {**(CHAT if kind == "chat" else COMPLETION), **more})
    assert {name: made[name] for name in more} == more


@pytest.mark.parametrize(
    "more",
    [
        {"messages": None},
        {"messages": "hi"},
        {"add_generation_prompt": False},
        {"add_generation_prompt": "no"},
        {"messages": [], "continue_final_message": True},
        {"continue_final_message": True},  # the last message is from the user
        {
            "messages": [{"role": "assistant", "content": [{"type": "text", "text": "a"}]}],
            "continue_final_message": True,
        },
        {"messages": [7], "continue_final_message": True},
    ],
    ids=str,
)
def test_odd_chats(more: dict[str, Any]) -> None:
    assert ask("chat", {**CHAT, **more}) is Outcome.REQUEST


@pytest.mark.parametrize("prompt", [None, [1, 2], ["a", "b"], [[1]], 7, "absent"])
def test_prompts_that_are_not_one_text(prompt: Any) -> None:
    body = {**COMPLETION, "prompt": prompt}
    if prompt == "absent":
        del body["prompt"]
    assert ask("completions", body) is Outcome.REQUEST


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b'{"user":"\\ud83d"}'])
def test_bodies_that_are_not_understood(body: bytes) -> None:
    assert continued("chat", body, "a", 1) is Outcome.REQUEST
