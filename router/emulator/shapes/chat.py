"""/v1/chat/completions: a role chunk first, then content; the last content has the reason."""

from __future__ import annotations

from typing import Any

from router.emulator.engine import Job
from router.emulator.shapes.base import DONE, FINGERPRINT, Shape, Usage, around, data


class ChatShape(Shape):
    def __init__(
        self, id: str, model: str, created: int, jobs: list[Job], usage: Usage = Usage.NEVER
    ) -> None:
        super().__init__(id, model, created, jobs)
        self._usage = usage
        self._around = [
            around(data(self._chunk([self._choice(index, "")])), b"content")
            for index in range(len(jobs))
        ]

    def _choice(self, index: int, content: str, reason: str | None = None) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "index": index,
            "delta": {"content": content},
            "logprobs": None,
            "finish_reason": reason,
        }
        if reason is not None:
            choice["stop_reason"] = self.jobs[index].stop_string
        choice["token_ids"] = None
        return choice

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
        more: dict[str, Any] = {"prompt_token_ids": None, "prompt_text": None}
        if self._usage is Usage.ALWAYS:
            more["usage"] = {**self.usage_so_far(), "completion_tokens": 0}
        return b"".join(
            data(
                self._chunk(
                    [
                        {
                            "index": index,
                            "delta": {"role": "assistant", "content": ""},
                            "logprobs": None,
                            "finish_reason": None,
                        }
                    ],
                    **more,
                )
            )
            for index in range(len(self.jobs))
        )

    def token(self, piece: bytes, choice: int) -> bytes:
        if self._usage is Usage.ALWAYS:
            chunk = self._chunk([self._choice(choice, piece.decode("ascii"))])
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
        return {
            "id": self.id,
            "object": "chat.completion",
            "created": self.created,
            "model": self.model,
            "choices": [self._whole_choice(index) for index in range(len(self.jobs))],
            "service_tier": None,
            "system_fingerprint": FINGERPRINT,
            "usage": self.usage(),
            "prompt_logprobs": None,
            "prompt_token_ids": None,
            "kv_transfer_params": None,
        }

    def _whole_choice(self, index: int) -> dict[str, Any]:
        job = self.jobs[index]
        message = {
            "role": "assistant",
            "content": self.text(index),
            "refusal": None,
            "annotations": None,
            "audio": None,
            "function_call": None,
            "reasoning": None,
        }
        return {
            "index": index,
            "message": message,
            "logprobs": None,
            "finish_reason": job.finish_reason,
            "stop_reason": job.stop_string,
            "token_ids": None,
        }
