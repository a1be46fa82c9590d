"""Records what a client has received of one stream: the text, and the data for a continuation.

`add` gets whole events in the order in which they were relayed, some thousands of bytes at a time.

One token is counted for each event: vLLM and SGLang send one event per token unless
`stream_interval` is set. If the events contain counts (`continuous_usage_stats`), these counts are
used. Tokens after the last text do not count, because the next replica generates them again. An
example is a token that contains only the first bytes of a character.

Most events of a stream differ only in their text. So an event is parsed as a whole only if it
differs from the last parsed one in more than one JSON string.

The class does no I/O. Must never: guess the meaning of unknown data; a stream that contains unknown
data is not continued.

`Seam`: makes another replica's stream (the second) look like the rest of the broken stream (the
first).

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

import re
from typing import Any, Final

import msgspec

from router.addons.continuation.shapes import Choice, Chunk, Names
from router.addons.continuation.store import Outcome
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


_names = msgspec.json.Decoder(Names).decode
_string = msgspec.json.Decoder(str).decode
_TEXT: Final = re.compile(rb'"(?:content|text)":("(?:[^"\\]|\\.)*")')


class Transcript:
    """The transcript of one stream."""

    __slots__ = (
        "_after",
        "_before",
        "_behind",
        "names",
        "obstacle",
        "prompt_tokens",
        "text",
        "tokens",
    )

    def __init__(self) -> None:
        self.text = bytearray()  # The text so far, in UTF-8.
        self.tokens = 0  # The number of tokens of the text.
        self.prompt_tokens: int | None = None  # The prompt's count, if the stream has reported it.
        self.names: Names | None = None  # Copies of `id`, `created` and `model` in the first chunk.
        self.obstacle: Outcome | None = None  # Why the stream cannot be continued.
        self._behind = 0  # Number of tokens since the last event with text.
        self._before = self._after = b""  # The bytes around the text of the last parsed event.

    def add(self, events: bytes) -> None:
        """Add whole events."""
        for event in events.split(b"\n\n"):
            if self.obstacle is not None and self.obstacle is not Outcome.FINISHED:
                return
            start, end = len(self._before), len(event) - len(self._after)
            if 0 < start <= end and event.startswith(self._before) and event.endswith(self._after):
                try:
                    said = _string(event[start:end])
                except NOT_JSON:
                    pass  # The event differs from the last parsed one in more than the text.
                else:
                    self._say(said, None)
                    continue
            event = event.strip(b"\n")
            if event and not event.startswith(b":"):
                self._event(event)

    def resume(self) -> None:
        """Prepare for the events of another replica's stream, which continues the text."""
        self._behind = 0

    def _event(self, event: bytes) -> None:
        data = event[5:].strip()
        if not event.startswith(b"data:") or b"\n" in event or b"\r" in event:
            self.obstacle = Outcome.STREAM
            return
        if data == b"[DONE]":
            self.obstacle = Outcome.FINISHED
            return
        try:
            chunk = _chunk(data)
            if self.names is None:
                self.names = _copied(_names(data))
        except NOT_JSON:
            self.obstacle = Outcome.STREAM
            return
        usage = chunk.usage
        if usage is not None and usage.prompt_tokens is not None:
            self.prompt_tokens = usage.prompt_tokens
        if chunk.error is not None or len(chunk.choices) > 1:
            self.obstacle = Outcome.STREAM
        elif chunk.choices:
            self._choice(chunk.choices[0], None if usage is None else usage.completion_tokens)
            if usage is None and self.obstacle is None and chunk.choices[0].said:
                self._remember(event, chunk.choices[0].said)

    def _remember(self, event: bytes, said: str) -> None:
        """Store the bytes around the text `said` of an event that contains no other text."""
        places = [*_TEXT.finditer(event)]
        if len(places) == 1 and _string(places[0][1]) == said:
            self._before = event[: places[0].start(1)]
            self._after = event[places[0].end(1) :]

    def _choice(self, choice: Choice, reported: int | None) -> None:
        delta = choice.delta
        if (
            choice.index != 0
            or choice.logprobs is not None
            or (delta is not None and not delta.is_only_text)
        ):
            self.obstacle = Outcome.STREAM
            return
        if choice.finish_reason is not None:
            self.obstacle = Outcome.FINISHED
        if choice.is_role_only:
            return
        self._say(choice.said, reported)

    def _say(self, said: str, reported: int | None) -> None:
        """Add a token with its text.

        `reported`: the number of tokens so far, as reported by the engine.
        """
        self._behind += 1
        if said:
            self.text += said.encode()
            self.tokens = self.tokens + self._behind if reported is None else reported
            self._behind = 0


def _copied(names: Names) -> Names:
    """Copy the names, because they are views that would keep the whole event in memory."""
    return Names(names.id.copy(), names.created.copy(), names.model.copy())
