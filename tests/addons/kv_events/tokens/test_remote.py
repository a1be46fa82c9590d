"""The request for token IDs: which prompts are sent to an engine, and in which form."""

from __future__ import annotations

import json

import pytest

from router.addons.kv_events.tokens.facts import Facts
from router.addons.kv_events.tokens.remote import request_body
from tests.addons.kv_events.tokens.models import chat, raw


def test_the_question_of_a_chat() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    facts = Facts(
        *("chat", 'a "model"'),
        messages=raw(chat("a", "b")),
        tools=raw(tools),
        template_kwargs=b'{"enable_thinking": false}',
    )
    body = request_body(facts)
    assert body is not None
    assert json.loads(body) == {
        "model": 'a "model"',
        "messages": chat("a", "b"),
        "add_generation_prompt": True,
        "tools": tools,
        "chat_template_kwargs": {"enable_thinking": False},
    }


def test_the_only_prompt_of_a_list_is_sent_as_a_text() -> None:
    body = request_body(Facts("completions", "m", prompt=b'[ "a"]'))
    assert body is not None and json.loads(body) == {"model": "m", "prompt": "a"}


@pytest.mark.parametrize(
    "facts",
    [
        Facts("embeddings", "m", prompt=raw("a")),
        Facts("chat", "m"),
        Facts("chat", "m", messages=raw([{"content": [{"type": "image_url", "image_url": {}}]}])),
        Facts("chat", "m", messages=raw([{"content": [{"type": "input_audio"}]}])),
        Facts("completions", "m", prompt=raw([1, 2])),
        Facts("completions", "m", prompt=raw([[1, 2]])),
        Facts("completions", "m", prompt=raw(["a", "b"])),
    ],
)
def test_what_is_not_asked(facts: Facts) -> None:
    assert request_body(facts) is None
