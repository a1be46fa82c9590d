"""The format of /v1/chat/completions: the first chunk has the role, the others have content.

The last chunk with content also has the finish reason.
"""

from __future__ import annotations

from typing import Any

from router.lab.emulator.http.shapes.base import FINGERPRINT, Usage, data
from router.lab.emulator.http.shapes.chunks import ChunkShape


class ChatShape(ChunkShape):
    kind = "chat.completion.chunk"
    field = b"content"

    def _choice(self, index: int, text: str, reason: str | None = None) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "index": index,
            "delta": {"content": text},
            "logprobs": None,
            "finish_reason": reason,
        }
        if reason is not None:
            choice["stop_reason"] = self.jobs[index].stop_string
        choice["token_ids"] = None
        return choice

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
