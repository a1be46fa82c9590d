"""What every answer shape has in common: it turns tokens into the bytes of one route's answer."""

from __future__ import annotations

from typing import Any

import msgspec

from router.emulator.bodies import error_body
from router.emulator.engine import Job

DONE = b"data: [DONE]\n\n"
FINGERPRINT = "vllm-0.32.0-emulated"

encode = msgspec.json.encode


def data(value: Any) -> bytes:
    """One nameless SSE event."""
    return b"data: " + encode(value) + b"\n\n"


def event(value: dict[str, Any]) -> bytes:
    """One SSE event that is named after its `type`."""
    return b"event: %b\n%b" % (str(value["type"]).encode(), data(value))


def around(template: bytes, field: bytes) -> tuple[bytes, bytes]:
    """What stands before and behind the value of an empty string field.

    The quotes of `"field":"` are bare only where it is a field: inside a JSON string they would
    be escaped. So text without quotes and backslashes can be put between the two parts per token.
    """
    mark = b'"' + field + b'":"'
    before, _, behind = template.partition(mark)
    return before + mark, behind


class Shape:
    """One answer. Streams are preamble, opening, token..., last, closing; `whole` is the other way.

    Of a stream, `preamble` follows the response head at once and the rest waits for tokens.
    """

    def __init__(self, id: str, model: str, created: int, job: Job) -> None:
        self.id = id
        self.model = model
        self.created = created
        self.job = job

    def preamble(self) -> bytes:
        return b""

    def opening(self) -> bytes:
        return b""

    def token(self, piece: bytes) -> bytes:
        raise NotImplementedError

    def last(self, piece: bytes) -> bytes:
        return self.token(piece)

    def closing(self) -> bytes:
        return DONE

    def failure(self, message: str) -> bytes:
        """An error in the middle of a stream. vLLM sends [DONE] even then."""
        return b"data: " + error_body(500, message, "InternalServerError") + b"\n\n" + DONE

    def whole(self) -> dict[str, Any]:
        raise NotImplementedError

    def text(self) -> str:
        return self.job.output.decode("ascii")

    def usage(self) -> dict[str, Any]:
        job = self.job
        return {
            "prompt_tokens": job.prompt_tokens,
            "total_tokens": job.prompt_tokens + job.output_tokens,
            "completion_tokens": job.output_tokens,
            "prompt_tokens_details": {"cached_tokens": job.cached_tokens},
        }
