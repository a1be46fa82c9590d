"""/v1/chat/completions: a role chunk first, then content; the last content has the reason."""

from __future__ import annotations

from typing import Any

from router.emulator.engine import Job
from router.emulator.shapes.base import DONE, FINGERPRINT, Shape, around, data


class ChatShape(Shape):
    def __init__(
        self, id: str, model: str, created: int, job: Job, include_usage: bool = False
    ) -> None:
        super().__init__(id, model, created, job)
        self._include_usage = include_usage
        choice = {
            "index": 0,
            "delta": {"content": ""},
            "logprobs": None,
            "finish_reason": None,
            "token_ids": None,
        }
        self._before, self._behind = around(data(self._chunk([choice])), b"content")

    def _chunk(self, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
            "choices": choices,
            **more,
        }

    def opening(self) -> bytes:
        choice = {
            "index": 0,
            "delta": {"role": "assistant", "content": ""},
            "logprobs": None,
            "finish_reason": None,
        }
        return data(self._chunk([choice], prompt_token_ids=None, prompt_text=None))

    def token(self, piece: bytes) -> bytes:
        return self._before + piece + self._behind

    def last(self, piece: bytes) -> bytes:
        choice = {
            "index": 0,
            "delta": {"content": piece.decode("ascii")},
            "logprobs": None,
            "finish_reason": self.job.finish_reason,
            "stop_reason": None,
            "token_ids": None,
        }
        if self._include_usage:  # vLLM puts its fingerprint into the last chunk of all
            return data(self._chunk([choice]))
        return data(self._chunk([choice], system_fingerprint=FINGERPRINT))

    def closing(self) -> bytes:
        if not self._include_usage:
            return DONE
        return data(self._chunk([], usage=self.usage(), system_fingerprint=FINGERPRINT)) + DONE

    def whole(self) -> dict[str, Any]:
        message = {
            "role": "assistant",
            "content": self.text(),
            "refusal": None,
            "annotations": None,
            "audio": None,
            "function_call": None,
            "reasoning": None,
        }
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": self.job.finish_reason,
            "stop_reason": None,
            "token_ids": None,
        }
        return {
            "id": self.id,
            "object": "chat.completion",
            "created": self.created,
            "model": self.model,
            "choices": [choice],
            "service_tier": None,
            "system_fingerprint": FINGERPRINT,
            "usage": self.usage(),
            "prompt_logprobs": None,
            "prompt_token_ids": None,
            "kv_transfer_params": None,
        }
