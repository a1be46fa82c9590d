"""The format of /v1/messages: Anthropic's format as vLLM implements it.

A stream has named events and does not end with [DONE].
"""

from __future__ import annotations

from typing import Any

from router.lab.emulator.http.job import Job
from router.lab.emulator.http.shapes.base import Shape, around, encode, event

_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "abort": "end_turn"}


class MessagesShape(Shape):
    def __init__(self, id: str, model: str, created: int, jobs: list[Job]) -> None:
        super().__init__(id, model, created, jobs)
        delta = {
            "type": "content_block_delta",
            "delta": {"type": "text_delta", "text": ""},
            "index": 0,
        }
        self._before, self._behind = around(event(delta), b"text")

    def _message(
        self, content: list[dict[str, Any]], stop_reason: str | None, output_tokens: int
    ) -> dict[str, Any]:
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "content": content,
            "model": self.model,
            "stop_reason": stop_reason,
            "stop_sequence": None,
            "usage": {"input_tokens": self.job.prompt_tokens, "output_tokens": output_tokens},
        }

    def opening(self) -> bytes:
        block = {"type": "text", "text": ""}
        return event({"type": "message_start", "message": self._message([], None, 0)}) + event(
            {"type": "content_block_start", "content_block": block, "index": 0}
        )

    def token(self, piece: bytes, choice: int) -> bytes:
        return self._before + piece + self._behind

    def closing(self) -> bytes:
        job = self.job
        delta = {
            "type": "message_delta",
            "delta": {"stop_reason": _STOP_REASONS[job.finish_reason], "stop_sequence": None},
            "usage": {"input_tokens": job.prompt_tokens, "output_tokens": job.output_tokens},
        }
        return (
            event({"type": "content_block_stop", "index": 0})
            + event(delta)
            + event({"type": "message_stop"})
        )

    def failure(self, message: str) -> bytes:
        error = {"type": "error", "error": {"type": "internal_error", "message": message}}
        return b"event: error\ndata: " + encode(error) + b"\n\n"

    def whole(self) -> dict[str, Any]:
        content = [{"type": "text", "text": self.text()}]
        return self._message(content, _STOP_REASONS[self.job.finish_reason], self.job.output_tokens)
