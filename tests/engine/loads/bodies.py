"""Request bodies whose answer is the same every time, and the allowed differences of two answers.

Temperature 0, a fixed length (`ignore_eos`) and printable characters only: engines with the same
model must give the same text.
"""

import json
from typing import Any

from tests.engine.loads.sse import piece
from tests.engine.machine.fleet import MODEL
from tests.engine.machine.tiny_model import ASCII_IDS

# For the SDK's `extra_body`: fields of the engine that OpenAI does not have.
ENGINE_FIELDS: dict[str, Any] = {"ignore_eos": True, "allowed_token_ids": ASCII_IDS}


def chat(text: str, tokens: int, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {"messages": messages, **common(tokens), **more}


def completion(text: str, tokens: int, **more: Any) -> dict[str, Any]:
    return {"prompt": text, **common(tokens), **more}


def common(tokens: int) -> dict[str, Any]:
    return {"model": MODEL, "max_tokens": tokens, "temperature": 0, **ENGINE_FIELDS}


def without_identity(answer: Any) -> Any:
    """A decoded answer without its id and its time, which always differ."""
    if isinstance(answer, dict):
        own = {"id", "created", "created_at", "completed_at", "item_id"}
        return {key: without_identity(value) for key, value in answer.items() if key not in own}
    if isinstance(answer, list):
        return [without_identity(value) for value in answer]
    return answer


def gist(events: list[str]) -> dict[str, Any]:
    """Summary of a stream: text and finish reason per choice, usage, and its last event.

    Events are not compared one by one, because a busy engine puts several tokens into one.
    """
    said: dict[str, Any] = {"text": {}, "finish": {}, "usage": None, "last": events[-1]}
    for event in events[:-1]:
        chunk = json.loads(event)
        assert "error" not in chunk, event
        said["usage"] = chunk.get("usage") or said["usage"]
        for choice in chunk["choices"]:
            index = choice["index"]
            said["text"][index] = said["text"].get(index, "") + piece(choice)
            if choice["finish_reason"] is not None:
                said["finish"][index] = choice["finish_reason"]
    return said
