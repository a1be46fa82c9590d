"""The base class of the answer formats, which turn tokens into the bytes of one route's answer."""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec

from router.lab.emulator.http.job import Job

DONE = b"data: [DONE]\n\n"
FINGERPRINT = "vllm-0.32.0-emulated"

encode = msgspec.json.encode


class Usage(Enum):
    """When a stream reports its token counts."""

    NEVER = "never"
    END = "end"
    ALWAYS = "always"  # the stream reports token counts with every chunk, and at the end


def nested_error(status: int, message: str, type: str, param: str | None = None) -> bytes:
    """An error object in OpenAI's format, as vLLM has sent it since version 0.10."""
    error = {"message": message, "type": type, "param": param, "code": status}
    return encode({"error": error})


def data(value: Any) -> bytes:
    """The bytes of an SSE event without a name."""
    return b"data: " + encode(value) + b"\n\n"


def event(value: dict[str, Any]) -> bytes:
    """The bytes of an SSE event whose name is the value's `type`."""
    return b"event: %b\n%b" % (str(value["type"]).encode(), data(value))


def around(template: bytes, field: bytes) -> tuple[bytes, bytes]:
    """Split a JSON template at the value of a field that is an empty string.

    Returns the bytes before and after the value. Each token's text can then be put between these
    two parts, if it has no quotes or backslashes. The search for `"field":"` cannot match inside a
    JSON string, because the quotes there are escaped.
    """
    mark = b'"' + field + b'":"'
    before, _, behind = template.partition(mark)
    return before + mark, behind


class Shape:
    """The format of one answer, which has one job for each choice.

    A stream consists of `preamble`, `opening`, then for each choice `token` several times and
    `last` once, and finally `closing`. The preamble is sent directly after the response head; all
    other parts wait for tokens. `whole` is an answer that is not streamed.
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
        """The bytes of an error event in the middle of a stream. vLLM sends [DONE] after it.

        None: the engine closes the connection without an error event.
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
        """The token counts so far, including the token that is being sent."""
        prompt = self.job.prompt_tokens
        output = sum(min(job.sent + 1, job.output_tokens) for job in self.jobs)
        return {
            "prompt_tokens": prompt,
            "total_tokens": prompt + output,
            "completion_tokens": output,
        }
