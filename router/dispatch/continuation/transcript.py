"""What a client has been sent of one stream: its text, and the facts that a continuation needs.

Fed with whole events, in the order in which they were relayed, some thousands of bytes at a time.

Tokens are counted one an event, which is how vLLM and SGLang stream unless they are told to wait
for several (`stream_interval`); where the events tell the counts themselves
(`continuous_usage_stats`), those count. Tokens behind the last text, such as the first bytes of a
character that is not whole, are made again and so do not count.

Pure. Must never guess: what is not understood makes the stream one that is not continued.
"""

from __future__ import annotations

import msgspec

from router.dispatch.continuation.outcome import Outcome
from router.dispatch.continuation.shapes import Choice, Chunk, Names

_chunk = msgspec.json.Decoder(Chunk).decode
_names = msgspec.json.Decoder(Names).decode


class Transcript:
    """One stream so far."""

    __slots__ = ("_behind", "is_done", "names", "obstacle", "prompt_tokens", "text", "tokens")

    def __init__(self) -> None:
        self.text = bytearray()  # UTF-8
        self.tokens = 0  # that made the text
        self.prompt_tokens: int | None = None  # where the stream has told it
        self.names: Names | None = None  # of the first chunk; copies
        self.obstacle: Outcome | None = None  # why it cannot be continued
        self.is_done = False  # [DONE] was said
        self._behind = 0  # tokens since the last text

    def add(self, events: bytes) -> None:
        """More of it: whole events."""
        for event in events.split(b"\n\n"):
            if self.obstacle is not None and self.obstacle is not Outcome.FINISHED:
                return
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
            self.is_done = True
            self.obstacle = Outcome.FINISHED
            return
        try:
            chunk = _chunk(data)
            if self.names is None:
                self.names = _copied(_names(data))
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            self.obstacle = Outcome.STREAM
            return
        usage = chunk.usage
        if usage is not None and usage.prompt_tokens is not None:
            self.prompt_tokens = usage.prompt_tokens
        if chunk.error is not None or len(chunk.choices) > 1:
            self.obstacle = Outcome.STREAM
        elif chunk.choices:
            self._choice(chunk.choices[0], None if usage is None else usage.completion_tokens)

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
        self._behind += 1
        said = choice.said
        if said:
            self.text += said.encode()
            self.tokens = self.tokens + self._behind if told is None else told
            self._behind = 0


def _copied(names: Names) -> Names:
    """Without a view that keeps the event alive."""
    return Names(names.id.copy(), names.created.copy(), names.model.copy())
