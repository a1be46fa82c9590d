"""Reads a stream of server-sent events strictly, so that a malformed byte fails a test.

Engines write each event as an optional `event:` line, one `data:` line and an empty line, separated
by LF; comments may stand between events. Anything else in a relayed stream is the router's error.
"""

import json
from collections.abc import AsyncIterable, AsyncIterator
from typing import Any

DONE = "[DONE]"


def events(raw: bytes) -> list[str]:
    """The data of every event of a whole stream, in order, without comments."""
    text = raw.decode("utf-8")
    assert text == "" or text.endswith("\n\n"), f"ends inside an event: {text[-200:]!r}"
    return [data_of(block) for block in text.split("\n\n")[:-1] if not block.startswith(":")]


def data_of(block: str) -> str:
    name, separator, data = block.rpartition("\n")
    assert separator == "" or (name.startswith("event: ") and "\n" not in name), repr(block)
    assert data.startswith("data: "), f"not an event: {block!r}"
    return data.removeprefix("data: ")


async def each_event(chunks: AsyncIterable[bytes]) -> AsyncIterator[str]:
    """The data of each event as it arrives; nothing may follow the last complete event."""
    rest = b""
    async for chunk in chunks:
        whole, separator, rest = (rest + chunk).rpartition(b"\n\n")
        for event in events(whole + separator):
            yield event
    assert rest == b"", f"ends inside an event: {rest[-200:]!r}"


def text_of(event: str) -> str:
    """The generated text an event carries; empty for the role, usage, error and end events."""
    if event == DONE:
        return ""
    return "".join(piece(choice) for choice in json.loads(event).get("choices", []))


def piece(choice: dict[str, Any]) -> str:
    return choice["text"] if "text" in choice else choice["delta"].get("content") or ""


def error_of(event: str) -> dict[str, Any] | None:
    """The `error` object of an event, if it is one."""
    return None if event == DONE else json.loads(event).get("error")
