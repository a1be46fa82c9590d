"""What a client has been sent of one stream: its text, and the facts that a continuation needs.

Fed with whole events, in the order in which they were relayed, some thousands of bytes at a time.

Tokens are counted one an event, which is how vLLM and SGLang stream unless they are told to wait
for several (`stream_interval`); where the events tell the counts themselves
(`continuous_usage_stats`), those count. Tokens behind the last text, such as the first bytes of a
character that is not whole, are made again and so do not count.

Most events of a stream are one and the same but for their text. So an event is read as a whole only
if it differs from the last one that was, in anything but one JSON string.

Pure. Must never guess: what is not understood makes the stream one that is not continued.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from router.core.unreadable import NOT_JSON
from router.dispatch.continuation.outcome import Outcome
from router.dispatch.continuation.shapes import Choice, Chunk, Names

_chunk = msgspec.json.Decoder(Chunk).decode
_names = msgspec.json.Decoder(Names).decode
_string = msgspec.json.Decoder(str).decode
_TEXT: Final = re.compile(rb'"(?:content|text)":("(?:[^"\\]|\\.)*")')


class Transcript:
    """One stream so far."""

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
        self.text = bytearray()  # UTF-8
        self.tokens = 0  # that made the text
        self.prompt_tokens: int | None = None  # where the stream has told it
        self.names: Names | None = None  # of the first chunk; copies
        self.obstacle: Outcome | None = None  # why it cannot be continued
        self._behind = 0  # tokens since the last text
        self._before = self._after = b""  # what stands around the text of the usual event

    def add(self, events: bytes) -> None:
        """More of it: whole events."""
        for event in events.split(b"\n\n"):
            if self.obstacle is not None and self.obstacle is not Outcome.FINISHED:
                return
            start, end = len(self._before), len(event) - len(self._after)
            if 0 < start <= end and event.startswith(self._before) and event.endswith(self._after):
                try:
                    said = _string(event[start:end])
                except NOT_JSON:
                    pass  # more than its text differs
                else:
                    self._say(said, None)
                    continue
            event = event.strip(b"\n")
            if event and not event.startswith(b":"):
                self._event(event)

    def resume(self) -> None:
        """Another stream goes on behind the text."""
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
        """An event that says this and nothing else that matters."""
        places = [*_TEXT.finditer(event)]
        if len(places) == 1 and _string(places[0][1]) == said:
            self._before = event[: places[0].start(1)]
            self._after = event[places[0].end(1) :]

    def _choice(self, choice: Choice, told: int | None) -> None:
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
        self._say(choice.said, told)

    def _say(self, said: str, told: int | None) -> None:
        """A token, or the first of several; `told`: how many there were, by the engine's count."""
        self._behind += 1
        if said:
            self.text += said.encode()
            self.tokens = self.tokens + self._behind if told is None else told
            self._behind = 0


def _copied(names: Names) -> Names:
    """Without a view that keeps the event alive."""
    return Names(names.id.copy(), names.created.copy(), names.model.copy())
