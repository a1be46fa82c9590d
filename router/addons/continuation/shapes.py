"""The members of chat and completion chunks that a continuation reads."""

from __future__ import annotations

from typing import Any

import msgspec


class Delta(msgspec.Struct, gc=False):
    role: Any = None
    content: str | None = None
    # Members of a chunk that cannot be continued as text.
    reasoning_content: Any = None
    reasoning: Any = None
    tool_calls: Any = None
    function_call: Any = None
    refusal: Any = None
    audio: Any = None

    @property
    def is_only_text(self) -> bool:
        return not (
            self.reasoning_content
            or self.reasoning
            or self.tool_calls
            or self.function_call
            or self.refusal
            or self.audio
        )


class Choice(msgspec.Struct, gc=False):
    index: int = 0
    text: str | None = None
    delta: Delta | None = None
    finish_reason: Any = None
    logprobs: Any = None

    @property
    def said(self) -> str:
        """The text of the chunk, whether it is a chat chunk or a completion chunk."""
        if self.text:
            return self.text
        return (self.delta.content if self.delta is not None else None) or ""

    @property
    def is_role_only(self) -> bool:
        """Whether the chunk contains the role and nothing else."""
        delta = self.delta
        return (
            delta is not None
            and bool(delta.role)
            and not delta.content
            and delta.is_only_text
            and self.finish_reason is None
        )


class Counts(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class Chunk(msgspec.Struct, gc=False):
    choices: list[Choice] = []
    usage: Counts | None = None
    error: Any = None


class Names(msgspec.Struct, gc=False):
    """The members that all chunks of one stream have in common, as written by the engine."""

    id: msgspec.Raw = msgspec.Raw()
    created: msgspec.Raw = msgspec.Raw()
    model: msgspec.Raw = msgspec.Raw()
