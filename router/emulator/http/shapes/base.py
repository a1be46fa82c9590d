"""Common part of all answer shapes: turns tokens into the bytes of one route's answer."""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec

from router.emulator.http.job import Job

DONE = b"data: [DONE]\n\n"
FINGERPRINT = "vllm-0.32.0-emulated"

encode = msgspec.json.encode


class Usage(Enum):
    """When a stream reports its token counts."""

    NEVER = "never"
    END = "end"
    ALWAYS = "always"  # the stream reports token counts with every chunk, and at the end


def nested_error(status: int, message: str, type: str, param: str | None = None) -> bytes:
    """OpenAI's error object, as vLLM has it since 0.10."""
    error = {"message": message, "type": type, "param": param, "code": status}
    return encode({"error": error})


def data(value: Any) -> bytes:
    """One SSE event without a name."""
    return b"data: " + encode(value) + b"\n\n"


def event(value: dict[str, Any]) -> bytes:
    """One SSE event that is named after its `type`."""
    return b"event: %b\n%b" % (str(value["type"]).encode(), data(value))


def around(template: bytes, field: bytes) -> tuple[bytes, bytes]:
    """The text before and after the value of an empty string field.

    The quotes of `"field":"` are unescaped only where it is a field: inside a JSON string they
    would be escaped. So text without quotes and backslashes can be put between the two parts per
    token.
    """
    mark = b'"' + field + b'":"'
    before, _, behind = template.partition(mark)
    return before + mark, behind


class Shape:
    """One answer of one or more choices, one job each.

    A stream is preamble, opening, then token..., last for each choice, closing; `whole` is the
    answer without streaming. The `preamble` follows the response head at once; the rest waits for
    tokens.
    """

    def __init__(self, id: str, model: str, created: int, jobs: list[Job]) -> None:
        self.id = id
        self.model = model
        self.created = created
        self.jobs = jobs
        self.job = jobs[0]

    def preamble(self) -> bytes:
        return b""

    def opening(self) -> bytes:
        return b""

    def token(self, piece: bytes, choice: int) -> bytes:
        raise NotImplementedError

    def last(self, piece: bytes, choice: int) -> bytes:
        return self.token(piece, choice)

    def closing(self) -> bytes:
        return DONE

    def failure(self, message: str) -> bytes | None:
        """An error in the middle of a stream. vLLM sends [DONE] even then.

        None: this engine cuts the stream without an error event.
        """
        error = nested_error(500, message, "InternalServerError")
        return b"data: " + error + b"\n\n" + DONE

    def whole(self) -> dict[str, Any]:
        raise NotImplementedError

    def text(self, choice: int = 0) -> str:
        return self.jobs[choice].output.decode("ascii")

    def usage(self) -> dict[str, Any]:
        prompt = self.job.prompt_tokens
        output = sum(job.output_tokens for job in self.jobs)
        return {
            "prompt_tokens": prompt,
            "total_tokens": prompt + output,
            "completion_tokens": output,
            "prompt_tokens_details": {"cached_tokens": self.job.cached_tokens},
        }

    def usage_so_far(self) -> dict[str, Any]:
        """Token counts so far, including the token that is being sent."""
        prompt = self.job.prompt_tokens
        output = sum(min(job.sent + 1, job.output_tokens) for job in self.jobs)
        return {
            "prompt_tokens": prompt,
            "total_tokens": prompt + output,
            "completion_tokens": output,
        }
