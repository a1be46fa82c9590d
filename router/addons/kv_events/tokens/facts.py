"""The parts of a request that determine its token IDs.

This module also decides which requests have token IDs that the router cannot compute.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
from xxhash import xxh3_128_digest

# Maximum bytes of the messages or the prompt, about 250,000 tokens. Longer prompts are not
# tokenized.
MAX_BYTES: Final = 1024 * 1024
# JSON member names that show a message part other than text, such as an image. A chat whose text
# contains such a name gets no token IDs either; then only the approximate index is used.
_NO_TEXT: Final = re.compile(rb'"(?:image|audio|video|input_|file)|_url"')


class Facts(msgspec.Struct, gc=False):
    """Raw JSON values of a request's body; None: the body does not have the member.

    A request with anything else that changes its prompt (its own `chat_template`, `documents`,
    `continue_final_message`, `add_special_tokens`, `truncate_prompt_tokens`, images) has other
    token IDs than these facts give: the caller must not tokenize it.
    """

    kind: str  # the kind of the route: "chat" or "completions"; other routes have no token IDs here
    model: str | None = None
    messages: bytes | None = None
    prompt: bytes | None = None
    tools: bytes | None = None
    template_kwargs: bytes | None = None  # the body's member `chat_template_kwargs`

    def name(self) -> bytes:
        """Return a key of 16 bytes that is equal exactly for requests with the same token IDs."""
        parts = (
            self.kind.encode(),
            (self.model or "").encode("utf-8", "surrogatepass"),
            self.messages or b"",
            self.prompt or b"",
            self.tools or b"",
            self.template_kwargs or b"",
        )
        sizes = b",".join(b"%d" % len(part) for part in parts)
        return xxh3_128_digest(b"".join((sizes, *parts)))


def text_of(facts: Facts) -> bytes | None:
    """Return the bytes that contain the prompt; `None`: there is no prompt, or it is too long."""
    raw = facts.messages if facts.kind == "chat" else facts.prompt
    if facts.kind not in ("chat", "completions") or raw is None or len(raw) > MAX_BYTES:
        return None
    return raw


def may_hold_more_than_text(raw: bytes) -> bool:
    """Return whether a chat's messages may have parts other than text.

    The JSON is only searched, because decoding it would take too long.
    """
    return _NO_TEXT.search(raw) is not None


def prompt_of(raw: bytes) -> str | list[int] | None:
    """Return the only prompt of a completion, as text or token IDs; `None`: several, or invalid."""
    prompt = decoded(raw)
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]  # the member `prompt` is a list with one prompt
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, list) and prompt and all(type(item) is int for item in prompt):
        return prompt
    return None


def messages_of(raw: bytes) -> list[dict[str, Any]] | None:
    """Return the messages of a chat; `None`: not a list, or a message has more than text."""
    messages = decoded(raw)
    if not isinstance(messages, list) or not messages:
        return None
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            return None
        content = message.get("content")
        if content is None or isinstance(content, str):
            continue
        if not isinstance(content, list) or not all(_is_text(part) for part in content):
            return None
    return messages


def _is_text(part: Any) -> bool:
    return (
        isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)
    )


def decoded(raw: bytes | None) -> Any:
    """Return the decoded JSON value; `None` for `None` and for invalid JSON."""
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
