"""A model of an engine: the events of a text, whole or from where another engine stopped.

One word is one token. Its chat stream is vLLM's: first a role, at the end a finish reason, and
token counts if requested.
"""

import json
from typing import Any, NamedTuple

from tests.harness.messages import DONE, event

WORDS = ["The", " fox", " met", "\n\n", "", "ü", ' "data: [DONE]"', " \\n", " 🦊", "", " end", "."]
TEXT = "".join(WORDS)
PROMPT_TOKENS = 20


class Told(NamedTuple):
    """An answer stream as parsed by a client."""

    text: str
    roles: int
    names: set[tuple[Any, ...]]
    finish: list[str]
    usage: dict[str, Any] | None
    done: int


def stream(
    kind: str, id: str, after: int = 0, *, usage: bool = True, continuous: bool = False
) -> list[bytes]:
    """The events of the answer after its first `after` tokens."""
    chat = kind == "chat"
    prompt = PROMPT_TOKENS + after

    def counts(made: int) -> dict[str, Any]:
        return {
            "prompt_tokens": prompt,
            "total_tokens": prompt + made,
            "completion_tokens": made,
            "prompt_tokens_details": {"cached_tokens": prompt},
        }

    def say(choices: list[Any], made: int, is_last: bool = False) -> bytes:
        value: dict[str, Any] = {
            "id": id,
            "object": "chat.completion.chunk" if chat else "text_completion",
            "created": 1000 + after,
            "model": f"m-{id}",
            "choices": choices,
        }
        if continuous or is_last:
            value["usage"] = counts(made)
        return event(value)

    def choice(text: str, finish: str | None) -> dict[str, Any]:
        said: dict[str, Any] = {"delta": {"content": text}} if chat else {"text": text}
        return {"index": 0, **said, "logprobs": None, "finish_reason": finish}

    events = []
    if chat:
        first = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
        events.append(say([first], 0))
    rest = WORDS[after:]
    for made, word in enumerate(rest, 1):
        events.append(say([choice(word, "stop" if made == len(rest) else None)], made))
    if usage:
        events.append(say([], len(rest), True))
    return [*events, DONE]


def made_of(text: str) -> int:
    """Number of tokens that give this text; trailing tokens without text are generated again."""
    return next(n for n in range(len(WORDS) + 1) if "".join(WORDS[:n]) == text)


def read(data: bytes) -> Told:
    """Parse strictly: every event is one line of JSON, and nothing follows the end."""
    text, roles, names, finish, usage, done = "", 0, set(), [], None, 0
    assert data.endswith(b"\n\n")
    for part in data[:-2].split(b"\n\n"):
        assert part.startswith(b"data: "), part
        assert b"\n" not in part
        assert not done, "something follows the end"
        if part == b"data: [DONE]":
            done += 1
            continue
        value = json.loads(part[6:])
        names.add((value["id"], value["created"], value["model"]))
        usage = value.get("usage") or usage
        for choice in value["choices"]:
            delta = choice.get("delta", {})
            text += choice.get("text") or delta.get("content") or ""
            roles += "role" in delta
            if choice["finish_reason"] is not None:
                finish.append(choice["finish_reason"])
    return Told(text, roles, names, finish, usage, done)
