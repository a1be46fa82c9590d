"""The part that vLLM's chat and completion streams share: the chunks, and where usage is sent."""

from __future__ import annotations

from typing import Any, ClassVar

from router.lab.emulator.http.job import Job
from router.lab.emulator.http.shapes.base import DONE, FINGERPRINT, Shape, Usage, around, data


class ChunkShape(Shape):
    kind: ClassVar[str]  # value of the field `object` of a chunk
    field: ClassVar[bytes]  # name of the field that contains a token's text

    def __init__(
        self, id: str, model: str, created: int, jobs: list[Job], usage: Usage = Usage.NEVER
    ) -> None:
        super().__init__(id, model, created, jobs)
        self._usage = usage
        self._around = [
            around(data(self._chunk([self._choice(index, "")])), self.field)
            for index in range(len(jobs))
        ]

    def _choice(self, index: int, text: str, reason: str | None = None) -> dict[str, Any]:
        raise NotImplementedError

    def _chunk(self, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": self.kind,
            "created": self.created,
            "model": self.model,
            "choices": choices,
            **more,
        }

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
        # If a stream reports usage, vLLM sends the fingerprint in the final chunk with the usage.
        if self._usage is Usage.NEVER:
            more["system_fingerprint"] = FINGERPRINT
        return data(self._chunk([self._choice(choice, piece.decode("ascii"), reason)], **more))

    def closing(self) -> bytes:
        if self._usage is Usage.NEVER:
            return DONE
        return data(self._chunk([], usage=self.usage(), system_fingerprint=FINGERPRINT)) + DONE
