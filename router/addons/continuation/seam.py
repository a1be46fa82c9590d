"""Makes another replica's stream (the second) look like the rest of the broken stream (the first).

1. The events of the second stream get the `id`, `created` and `model` of the first stream. The role
   is not repeated.
2. The token counts of the second stream cover both streams. The tokens of the first stream's text
   are added to the output tokens. They are subtracted from the prompt tokens, because the prompt of
   the second stream contained that text.
3. Every other value of an event is relayed as the engine sent it. The finish reason is that of the
   second stream.

The functions are pure: bytes in, bytes out. Must never change an event that it cannot read.
"""

from __future__ import annotations

from typing import Any

import msgspec

from router.addons.continuation.shapes import Chunk, Names
from router.core.unreadable import NOT_JSON
from router.dispatch.usage.token_counts import Usage

_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_counts = msgspec.json.Decoder(dict[str, Any]).decode
_chunk = msgspec.json.Decoder(Chunk).decode
_encode = msgspec.json.Encoder().encode


class Seam:
    """Joins another replica's stream to the relayed part of a broken stream."""

    __slots__ = ("_has_spoken", "_names", "_prompt_tokens", "_tokens")

    def __init__(self, names: Names, tokens: int, prompt_tokens: int | None) -> None:
        """Create a seam between a broken stream (the first) and the stream that continues it.

        `tokens`: the tokens of the text before the break. `prompt_tokens`: the prompt tokens that
        the first stream reported; `None` if it reported none.
        """
        self._names = [
            (name, raw)
            for name, raw in (("id", names.id), ("created", names.created), ("model", names.model))
            if len(raw)
        ]
        self._tokens = tokens
        self._prompt_tokens = prompt_tokens
        self._has_spoken = False

    def mend(self, events: bytes) -> bytes:
        """Return whole events of the second stream, changed for the client."""
        mended: list[bytes] = []
        start = 0
        while True:
            end = events.find(b"\n\n", start) + 2
            if end < 2:
                mended.append(events[start:])
                return b"".join(mended)
            mended.append(self._event(events[start:end]))
            start = end

    def added_up(self, usage: Usage) -> Usage:
        """Return the token counts of both streams together, given the counts of the second one."""
        prompt = usage.prompt_tokens
        if prompt is not None:
            prompt = self._prompt(prompt)
        output = self._tokens + (usage.output_tokens or 0)
        return Usage(self._prompt_tokens if prompt is None else prompt, output, None, False)

    def _event(self, event: bytes) -> bytes:
        data = event.strip(b"\n")
        if not data.startswith(b"data:"):
            return event
        data = data[5:]
        try:
            members = _members(data)
            if "choices" not in members:
                return event  # An error is relayed unchanged.
            if not self._has_spoken:
                choices = _chunk(data).choices
                if choices and all(choice.is_role_only for choice in choices):
                    return b""
                self._has_spoken = bool(choices)
            usage = members.get("usage")
            if usage is not None and bytes(usage) != b"null":
                members["usage"] = msgspec.Raw(_encode(self._usage(_counts(usage))))
        except NOT_JSON:
            return event
        for name, raw in self._names:
            if name in members:
                members[name] = raw
        return b"data: " + _encode(members) + b"\n\n"

    def _usage(self, usage: dict[str, Any]) -> dict[str, Any]:
        prompt, output = usage.get("prompt_tokens"), usage.get("completion_tokens")
        if not isinstance(prompt, int) or not isinstance(output, int):
            return usage
        usage["prompt_tokens"] = prompt = self._prompt(prompt)
        usage["completion_tokens"] = output = output + self._tokens
        if "total_tokens" in usage:
            usage["total_tokens"] = prompt + output
        details = usage.get("prompt_tokens_details")
        if isinstance(details, dict) and isinstance(details.get("cached_tokens"), int):
            details["cached_tokens"] = min(details["cached_tokens"], prompt)
        return usage

    def _prompt(self, second: int) -> int:
        if self._prompt_tokens is not None:
            return self._prompt_tokens
        return max(0, second - self._tokens)
