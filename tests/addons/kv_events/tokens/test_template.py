"""Chat templates in the forms that models have."""

from __future__ import annotations

from typing import Any

import pytest
from jinja2 import TemplateError
from jinja2.sandbox import SecurityError

from router.addons.kv_events.tokens.template import ChatTemplate
from tests.addons.kv_events.tokens.models import chat


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
