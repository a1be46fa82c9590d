"""Renders a model's chat template like transformers and the engines render it.

Templates come with the model, so they run in jinja2's immutable sandbox, with the few functions
that transformers gives them (utils/chat_template_utils.py: trim_blocks, lstrip_blocks, loop
controls, `tojson` without HTML escapes, `raise_exception`, `strftime_now`, `{% generation %}`).

Must never: run a template from a request.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any

from router.addons.kv_events.extra import load

# A template that iterates over the parts of a message's content gets parts; any other template gets
# text (as vLLM's --chat-template-content-format auto).
_PARTS = re.compile(
    r"for\s+\w+\s+in\s+(?:\w+\.content|\w+\[['\"]content['\"]\]|content)\b", re.ASCII
)
_GENERATION = re.compile(r"\{%-?\s*(?:end)?generation\s*-?%\}")


class ChatTemplate:
    """A chat template that is ready to be rendered.

    Raises ConfigError if jinja2 is missing, and ValueError for an invalid template.
    """

    def __init__(self, source: str, variables: dict[str, Any]) -> None:
        """`variables`: values that every rendering uses, such as `bos_token`."""
        load("jinja2", "jinja2", "prefix.tokenizers")
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = _strftime_now
        self._variables = variables
        self._takes_parts = _PARTS.search(source) is not None
        try:
            # The generation tags matter only for training: the text between them is rendered.
            self._template = environment.from_string(_GENERATION.sub(_unmarked, source))
        except TemplateError as err:
            raise ValueError(f"the chat template cannot be read: {err}") from None

    def render(
        self,
        messages: list[dict[str, Any]],
        tools: Any = None,
        kwargs: dict[str, Any] | None = None,
    ) -> str:
        """Return the prompt text of a chat. Raises the template's exceptions."""
        variables = {
            **self._variables,
            "add_generation_prompt": True,
            **(kwargs or {}),
            "messages": [self._prepared(message) for message in messages],
            "tools": tools or None,
            "documents": None,
        }
        return self._template.render(variables)

    def _prepared(self, message: dict[str, Any]) -> dict[str, Any]:
        # As in vLLM, text becomes a list of parts. Templates that do not iterate over parts get
        # their joined text.
        content = message.get("content")
        if isinstance(content, str):
            parts = [{"type": "text", "text": content}]
        else:
            parts = content or []
        prepared = dict(message)
        prepared["content"] = (
            parts if self._takes_parts else "\n".join(part["text"] for part in parts)
        )
        calls = message.get("tool_calls")
        if isinstance(calls, list):
            prepared["tool_calls"] = [_with_arguments(call) for call in calls]
        return prepared


def _with_arguments(call: Any) -> Any:
    """Return a tool call with decoded arguments: clients send JSON text, templates need objects."""
    function = call.get("function") if isinstance(call, dict) else None
    arguments = function.get("arguments") if isinstance(function, dict) else None
    if not isinstance(arguments, str):
        return call
    assert isinstance(function, dict)
    parsed = json.loads(arguments) if arguments else {}
    return {**call, "function": {**function, "arguments": parsed}}


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: str) -> None:
    from jinja2 import TemplateError

    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _unmarked(match: re.Match[str]) -> str:
    """Return a template comment with the same whitespace trimming as the generation tag."""
    mark = match.group()
    left = "{#-" if mark.startswith("{%-") else "{#"
    return left + (" -#}" if mark.endswith("-%}") else " #}")
