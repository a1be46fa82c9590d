"""/v1/completions: text chunks, no role chunk."""

from __future__ import annotations

from typing import Any

from router.emulator.engine import Job
from router.emulator.shapes.base import DONE, FINGERPRINT, Shape, Usage, around, data


class CompletionShape(Shape):
    def __init__(
        self,
        id: str,
        model: str,
        created: int,
        jobs: list[Job],
        usage: Usage = Usage.NEVER,
        echo: str = "",
    ) -> None:
        super().__init__(id, model, created, jobs)
        self._usage = usage
        self._echo = echo
        self._around = [
            around(data(self._chunk([self._choice(index, "", None)])), b"text")
            for index in range(len(jobs))
        ]

    def _choice(self, index: int, text: str, finish_reason: str | None) -> dict[str, Any]:
        return {
            "index": index,
            "text": text,
            "logprobs": None,
            "finish_reason": finish_reason,
            "stop_reason": self.jobs[index].stop_string if finish_reason else None,
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
        if not self._echo:
            return b""
        return b"".join(
            data(self._chunk([self._choice(index, self._echo, None)]))
            for index in range(len(self.jobs))
        )

    def token(self, piece: bytes, choice: int) -> bytes:
        if self._usage is Usage.ALWAYS:
            chunk = self._chunk([self._choice(choice, piece.decode("ascii"), None)])
            return data({**chunk, "usage": self.usage_so_far()})
        before, behind = self._around[choice]
        return before + piece + behind

    def last(self, piece: bytes, choice: int) -> bytes:
        reason = self.jobs[choice].finish_reason
        more: dict[str, Any] = {}
        if self._usage is Usage.ALWAYS:
            more["usage"] = self.usage_so_far()
        if self._usage is Usage.NEVER:  # else vLLM puts its fingerprint into the last chunk of all
            more["system_fingerprint"] = FINGERPRINT
        return data(self._chunk([self._choice(choice, piece.decode("ascii"), reason)], **more))

    def closing(self) -> bytes:
        if self._usage is Usage.NEVER:
            return DONE
        return data(self._chunk([], usage=self.usage(), system_fingerprint=FINGERPRINT)) + DONE

    def whole(self) -> dict[str, Any]:
        choices = [
            self._choice(index, self._echo + self.text(index), job.finish_reason)
            for index, job in enumerate(self.jobs)
        ]
        return self._chunk(
            choices,
            service_tier=None,
            system_fingerprint=FINGERPRINT,
            usage=self.usage(),
            kv_transfer_params=None,
        )
