"""/v1/completions: text chunks, no role chunk."""

from __future__ import annotations

from typing import Any

from router.emulator.engine import Job
from router.emulator.shapes.base import DONE, FINGERPRINT, Shape, around, data


class CompletionShape(Shape):
    def __init__(
        self,
        id: str,
        model: str,
        created: int,
        job: Job,
        include_usage: bool = False,
        echo: str = "",
    ) -> None:
        super().__init__(id, model, created, job)
        self._include_usage = include_usage
        self._echo = echo
        template = data(self._chunk([self._choice("", None)]))
        self._before, self._behind = around(template, b"text")

    def _choice(self, text: str, finish_reason: str | None) -> dict[str, Any]:
        return {
            "index": 0,
            "text": text,
            "logprobs": None,
            "finish_reason": finish_reason,
            "stop_reason": None,
            "prompt_token_ids": None,
            "token_ids": None,
        }

    def _chunk(self, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.model,
            "choices": choices,
            **more,
        }

    def opening(self) -> bytes:
        return data(self._chunk([self._choice(self._echo, None)])) if self._echo else b""

    def token(self, piece: bytes) -> bytes:
        return self._before + piece + self._behind

    def last(self, piece: bytes) -> bytes:
        choice = self._choice(piece.decode("ascii"), self.job.finish_reason)
        if self._include_usage:  # vLLM puts its fingerprint into the last chunk of all
            return data(self._chunk([choice]))
        return data(self._chunk([choice], system_fingerprint=FINGERPRINT))

    def closing(self) -> bytes:
        if not self._include_usage:
            return DONE
        return data(self._chunk([], usage=self.usage(), system_fingerprint=FINGERPRINT)) + DONE

    def whole(self) -> dict[str, Any]:
        choice = self._choice(self._echo + self.text(), self.job.finish_reason)
        return self._chunk(
            [choice],
            service_tier=None,
            system_fingerprint=FINGERPRINT,
            usage=self.usage(),
            kv_transfer_params=None,
        )
