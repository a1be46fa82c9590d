"""The request for token IDs: which prompts are sent to an engine, and in which form."""

import json
from typing import Any

import pytest
from jinja2 import TemplateError
from jinja2.sandbox import SecurityError

from router.addons.kv_events.tokens.facts import Facts
from router.addons.kv_events.tokens.remote import request_body
from router.addons.kv_events.tokens.template import ChatTemplate
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


def render(source: str, messages: Any = (), tools: Any = None, **kwargs: Any) -> str:
    return ChatTemplate(source, {"bos_token": "<s>"}).render(list(messages), tools, kwargs)


def test_blocks_leave_no_lines() -> None:
    source = (
        "{{ bos_token }}\n{% for m in messages %}\n"
        "  {% if true %}\n{{ m.content }}\n  {% endif %}\n{% endfor %}"
    )
    assert render(source, chat("a", "b")) == "<s>\na\nb\n"


def test_what_templates_call() -> None:
    assert render("{{ {'b': 'ä<', 'a': [1]} | tojson }}") == '{"b": "ä<", "a": [1]}'
    assert render("{{ [1] | tojson(indent=1) }}") == "[\n 1\n]"
    assert render("{% for x in [1,2,3] %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}")
    assert len(render("{{ strftime_now('%Y-%m-%d') }}")) == 10
    with pytest.raises(TemplateError, match="roles must alternate"):
        render("{{ raise_exception('roles must alternate') }}")


def test_a_template_is_kept_in_its_box() -> None:
    with pytest.raises(SecurityError):
        render("{{ messages.__class__.__mro__[1].__subclasses__() }}")
    with pytest.raises(SecurityError):
        render("{{ messages.append(1) }}")


def test_templates_that_take_parts_get_parts() -> None:
    source = (
        "{% for m in messages %}"
        "{% for part in m.content %}[{{ part.text }}]{% endfor %}"
        "{% endfor %}"
    )
    parts = [{"role": "user", "content": [{"type": "text", "text": t} for t in "ab"]}]
    assert render(source, parts) == "[a][b]"
    assert render(source, chat("a")) == "[a]"
    assert render(source, [{"role": "assistant", "content": None}]) == ""


def test_arguments_of_calls_are_mappings() -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    message = {"role": "assistant", "tool_calls": [call]}
    source = "{{ messages[0].tool_calls[0].function.arguments.x }}{{ messages[0].content }}"
    assert render(source, [message]) == "1"
    assert call["function"]["arguments"] == '{"x": 1}'  # type: ignore[index]


def test_variables() -> None:
    source = "{{ add_generation_prompt }} {{ enable_thinking }} {{ tools is none }}"
    assert render(source, enable_thinking=False) == "True False True"
    assert render(source, add_generation_prompt=False) == "False  True"
    assert render("{{ tools[0].name }}", tools=[{"name": "f"}]) == "f"
    assert render("{{ tools is none }}", tools=[]) == "True"
