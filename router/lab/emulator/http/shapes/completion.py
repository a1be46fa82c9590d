"""The format of /v1/completions: all chunks have text; no chunk has a role."""

from __future__ import annotations

from typing import Any

from router.lab.emulator.http.job import Job
from router.lab.emulator.http.shapes.base import FINGERPRINT, Usage, data
from router.lab.emulator.http.shapes.chunks import ChunkShape


class CompletionShape(ChunkShape):
    kind = "text_completion"
    field = b"text"

    def __init__(
        self,
        id: str,
        model: str,
        created: int,
        jobs: list[Job],
        usage: Usage = Usage.NEVER,
        echo: str = "",
    ) -> None:
        super().__init__(id, model, created, jobs, usage)
        self._echo = echo

    def _choice(self, index: int, text: str, reason: str | None = None) -> dict[str, Any]:
        return {
            "index": index,
            "text": text,
            "logprobs": None,
            "finish_reason": reason,
            "stop_reason": self.jobs[index].stop_string if reason else None,
            "prompt_token_ids": None,
            "token_ids": None,
        }

    def opening(self) -> bytes:
        if not self._echo:
            return b""
        return b"".join(
            data(self._chunk([self._choice(index, self._echo)])) for index in range(len(self.jobs))
        )

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
