"""Decides whether a request's stream may be continued, and builds the request for the rest.

For a completion, the text so far is appended to the prompt. For a chat, the text is appended as
another assistant message, which the engine continues (`continue_final_message`, only for engines
with `Engine.continues`). If the client's last message is itself to be continued, the text is
appended to that message.

Only requests with known members are continued, because an unknown member could change the generated
text in an unknown way. Only the prompt, the token limits and two switches of the chat template are
changed; all other members keep the client's values.

The functions are pure: bytes in, bytes out. They must never be called before a stream has broken,
because they decode the whole body.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from router.addons.continuation.store import Outcome
from router.core.flags import flag_of
from router.core.numbers import whole_number
from router.core.unreadable import NOT_JSON

KINDS: Final = frozenset({"chat", "completions"})  # Kinds of routes whose streams may be continued.
_DIGITS: Final = 15  # Maximum digits of a token limit that is written as a JSON string.

# Members that allow a continuation with any value. Penalties and a seed start again at the break,
# so the text may differ from an unbroken stream.
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
# Members that allow a continuation only if their value is null or one of the values below, which
# have no effect.
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
# The default `max_tokens` of a completion if the client sets none (OpenAI; vLLM 0.32, SGLang
# 0.5.23).
_COMPLETION_TOKENS: Final = 16

_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_items = msgspec.json.Decoder(list[msgspec.Raw]).decode
_value = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode

Members = dict[str, msgspec.Raw]


class _Odd(Exception):
    """A member has an unexpected type, so the stream is not continued."""


_UNREADABLE: Final = (_Odd, *NOT_JSON)


def continued(kind: str, body: bytes, text: str, tokens: int) -> bytes | Outcome:
    """Return the body of the request for the rest of the stream, or the reason why the stream is
    not continued.

    `text`: the generated text so far. `tokens`: the tokens of `text`. `kind`: the kind of the
    route, one of KINDS. `body`: the client's body.
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
    """Return the remaining minimum and maximum of output tokens; `None` if no tokens remain."""
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
    if isinstance(value, str):  # The engines accept a number that is written as text.
        value = whole_number(value, _DIGITS)
        if value is None:
            raise _Odd(name)
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
    """Add the text to a prompt.

    The prompt must be a single text, because the router cannot append text to token ids.
    """
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
        # Without a generation prompt, it is unknown whether the text is an assistant message.
        raise _Odd("add_generation_prompt")
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
    found = flag_of(value)
    if found is None:
        raise _Odd(name)
    return found
