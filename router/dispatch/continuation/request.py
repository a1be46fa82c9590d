"""May a request's stream be continued, and what is the other replica asked?

A completion is continued by its prompt with the text behind it. A chat is continued by its messages
with one more of the assistant's, which the engine leaves open (`continue_final_message`, of engines
with `Engine.continues`); if the client itself has left one open, the text goes behind that one's.

What may be in such a request is a list, not what may not: a member that we do not know may change
what is generated in a way that no text shows. The body's members stay as the client wrote them,
value by value; only the prompt, the limits and the two switches of the chat template are written
anew.

Pure: bytes in, bytes out. Must never be asked before a stream has broken: it decodes the body.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from router.core.unreadable import NOT_JSON
from router.dispatch.continuation.outcome import Outcome

KINDS: Final = frozenset({"chat", "completions"})  # of routes

# Whatever their value, the rest of the text can be made without knowing how its beginning was.
# Penalties and a seed begin anew at the seam: the text goes on as well, if not the very same.
_ANY: Final = frozenset(
    {
        *("model", "messages", "prompt", "stream", "stream_options"),
        *("max_tokens", "max_completion_tokens", "min_tokens"),
        *("temperature", "top_p", "top_k", "min_p", "typical_p", "seed"),
        *("frequency_penalty", "presence_penalty", "repetition_penalty", "length_penalty"),
        *("logit_bias", "allowed_token_ids", "ignore_eos", "stop_token_ids"),
        *("skip_special_tokens", "spaces_between_special_tokens", "add_special_tokens"),
        *("user", "metadata", "store", "service_tier", "safety_identifier", "priority"),
        *("cache_salt", "session_id", "prompt_cache_key", "request_id", "rid"),
        *("parallel_tool_calls", "chat_template", "mm_processor_kwargs", "lora_path"),
        *("add_generation_prompt", "continue_final_message"),
    }
)
# Only so, or null: as if they were not there.
_NEUTRAL: Final[dict[str, tuple[Any, ...]]] = {
    "n": (1,),
    "best_of": (1,),
    "logprobs": (False,),
    "top_logprobs": (),
    "prompt_logprobs": (),
    "echo": (False,),
    "suffix": ("",),
    "stop": ([], ""),
    "tools": ([],),
    "tool_choice": ("none",),
    "functions": ([],),
    "function_call": ("none",),
    "response_format": ({"type": "text"},),
    "use_beam_search": (False,),
    "return_token_ids": (False,),
    "return_tokens_as_token_ids": (False,),
    "return_hidden_states": (False,),
    "chat_template_kwargs": ({}, {"enable_thinking": False}, {"thinking": False}),
}
# The `max_tokens` of a completion whose client gives none (OpenAI; vLLM 0.32, SGLang 0.5.23).
_COMPLETION_TOKENS: Final = 16

_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_items = msgspec.json.Decoder(list[msgspec.Raw]).decode
_value = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode

Members = dict[str, msgspec.Raw]


class _Odd(Exception):
    """A member of a type that is not ours to judge."""


_UNREADABLE: Final = (_Odd, *NOT_JSON)


def continued(kind: str, body: bytes, text: str, tokens: int) -> bytes | Outcome:
    """The body that asks for what follows `text`, which took so many tokens; or why there is none.

    `kind` is the route's, one of KINDS; `body` the client's own.
    """
    try:
        members = _members(body)
        if not all(_is_neutral(name, raw) for name, raw in members.items()):
            return Outcome.REQUEST
        limits = _limits(kind, members, tokens)
        if limits is None:
            return Outcome.LENGTH
        prompt = _prompt(members, text) if kind == "completions" else _messages(members, text)
    except _UNREADABLE:
        return Outcome.REQUEST
    return _encode({**members, **prompt, **limits})


def _is_neutral(name: str, raw: msgspec.Raw) -> bool:
    if name in _ANY or bytes(raw) == b"null":
        return True
    allowed = _NEUTRAL.get(name)
    if not allowed:
        return False
    value = _value(raw)
    return any(value == one and type(value) is type(one) for one in allowed)


def _limits(kind: str, members: Members, tokens: int) -> Members | None:
    """What remains of the least and the most tokens; None: nothing."""
    limits: Members = {}
    for name in ("max_tokens", "max_completion_tokens"):
        most = _count(members, name)
        if most is None and name == "max_tokens" and kind == "completions":
            most = _COMPLETION_TOKENS if name not in members else None
        if most is not None:
            if most <= tokens:
                return None
            limits[name] = _number(most - tokens)
    least = _count(members, "min_tokens")
    if least is not None:
        limits["min_tokens"] = _number(max(0, least - tokens))
    return limits


def _count(members: Members, name: str) -> int | None:
    raw = members.get(name)
    value = None if raw is None else _value(raw)
    if isinstance(value, str) and value.isdecimal():
        value = int(value)  # the engines take it
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise _Odd(name)


def _number(value: int) -> msgspec.Raw:
    return msgspec.Raw(b"%d" % value)


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(_encode(value))


def _prompt(members: Members, text: str) -> Members:
    """One prompt, given as text: what it is in tokens only an engine could join with text."""
    prompt = _value(members.get("prompt", b"null"))
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str):
        return {"prompt": _raw([prompt[0] + text])}
    if not isinstance(prompt, str):
        raise _Odd("prompt")
    return {"prompt": _raw(prompt + text)}


def _messages(members: Members, text: str) -> Members:
    messages = _items(members.get("messages", b"null"))
    if _flag(members, "continue_final_message", False):
        if not messages:
            raise _Odd("messages")
        last = _members(messages.pop())
        content = _value(last.get("content", b"null"))
        if not isinstance(content, str) or _value(last.get("role", b"null")) != "assistant":
            raise _Odd("messages")
        messages.append(_raw({**last, "content": content + text}))
    elif not _flag(members, "add_generation_prompt", True):
        raise _Odd("add_generation_prompt")  # then no role is open for the text to stand in
    else:
        messages.append(_raw({"role": "assistant", "content": text}))
    return {
        "messages": _raw(messages),
        "add_generation_prompt": msgspec.Raw(b"false"),
        "continue_final_message": msgspec.Raw(b"true"),
    }


def _flag(members: Members, name: str, default: bool) -> bool:
    raw = members.get(name)
    value = None if raw is None else _value(raw)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise _Odd(name)
    return value
