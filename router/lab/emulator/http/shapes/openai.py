"""The formats of /v1/chat/completions and /v1/completions of the engines other than vLLM.

These engines use OpenAI's basic format and differ in details, which a `Style` lists. The details
are taken from the engines' source code. A stream's first and last chunks differ most often in a way
that makes clients fail.

`ChunkShape`: the part that vLLM's chat and completion streams share: the chunks, and where usage is
sent.

`ChatShape`: the format of /v1/chat/completions: the first chunk has the role, the others have
content.

The last chunk with content also has the finish reason.

`CompletionShape`: the format of /v1/completions: all chunks have text; no chunk has a role.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from router.lab.emulator.http.job import Job
from router.lab.emulator.http.shapes.base import (
    DONE,
    FINGERPRINT,
    Shape,
    Usage,
    around,
    data,
    encode,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """The format of one engine's answers."""

    # True: the first chunk has the role and no text. False: each chunk has the role.
    role_alone: bool
    opening_content: str | None = ""  # field `content` of the chunk with the role
    # True: the finish reason is sent in a chunk of its own. False: with the last text.
    end_alone: bool
    # True: usage is sent in a chunk without choices. False: in the last chunk with a choice.
    usage_alone: bool = True
    has_null_usage: bool = False  # True: chunks without usage have the field `usage` with null
    chunk_fields: Mapping[str, Any] = field(default_factory=dict)
    choice_fields: Mapping[str, Any] = field(default_factory=dict)
    stop_field: str | None = None  # field of a choice for the stop string that ended the output
    stop_reason: str = "stop"  # finish reason of an answer that ended normally
    # The format of a stream's error event; None: the connection is closed without an event.
    error: Callable[[int, str], dict[str, Any]] | None = None
    error_status: int = 500
    has_done_after_error: bool = True


class OpenAiShape(Shape):
    """The answers of both routes. `is_chat` is True for /v1/chat/completions."""

    def __init__(
        self,
        style: Style,
        is_chat: bool,
        id: str,
        model: str,
        created: int,
        jobs: list[Job],
        usage: Usage = Usage.NEVER,
        timings: Callable[[list[Job]], dict[str, Any]] | None = None,
        echo: str = "",
    ) -> None:
        super().__init__(id, model, created, jobs)
        self._style = style
        self._is_chat = is_chat
        self._usage = usage
        # llama.cpp sends the field `timings` in a stream's last chunk and in answers that are not
        # streamed.
        self._timings = timings
        self._echo = echo
        field_name = b"content" if is_chat else b"text"
        self._around = [
            around(data(self._chunk([self._choice(index, "")])), field_name)
            for index in range(len(jobs))
        ]

    def _choice(self, index: int, text: str | None, reason: str | None = None) -> dict[str, Any]:
        style = self._style
        choice: dict[str, Any] = {"index": index}
        if not self._is_chat:
            choice["text"] = text or ""
        elif style.role_alone:
            choice["delta"] = {} if text is None else {"content": text}
        else:
            choice["delta"] = {"role": "assistant", "content": text or ""}
        choice.update(logprobs=None, finish_reason=reason, **style.choice_fields)
        if style.stop_field and reason is not None:
            choice[style.stop_field] = self.jobs[index].stop_string
        return choice

    def _reason(self, choice: int) -> str:
        reason = self.jobs[choice].finish_reason
        return self._style.stop_reason if reason == "stop" else reason

    def _chunk(self, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        chunk = {
            "id": self.id,
            "object": "chat.completion.chunk" if self._is_chat else "text_completion",
            "created": self.created,
            "model": self.model,
            "choices": choices,
            **self._style.chunk_fields,
        }
        if self._style.has_null_usage:
            chunk["usage"] = None
        chunk.update(more)
        return chunk

    def _counts(self) -> dict[str, Any]:
        """The field `usage` of a chunk in the middle of a stream, or no field."""
        return {"usage": self.usage_so_far()} if self._usage is Usage.ALWAYS else {}

    def opening(self) -> bytes:
        chunks = []
        for index in range(len(self.jobs)):
            choice = self._choice(index, self._echo)
            if self._is_chat and self._style.role_alone:
                choice["delta"] = {"role": "assistant", "content": self._style.opening_content}
            elif not self._echo:
                continue
            more: dict[str, Any] = {}
            if self._usage is Usage.ALWAYS:
                more["usage"] = {**self.usage_so_far(), "completion_tokens": 0}
            chunks.append(data(self._chunk([choice], **more)))
        return b"".join(chunks)

    def token(self, piece: bytes, choice: int) -> bytes:
        if self._usage is Usage.ALWAYS:
            chosen = [self._choice(choice, piece.decode("ascii"))]
            return data(self._chunk(chosen, **self._counts()))
        before, behind = self._around[choice]
        return before + piece + behind

    def last(self, piece: bytes, choice: int) -> bytes:
        style = self._style
        more = self._counts()
        is_final = all(job.sent + 1 >= job.output_tokens for job in self.jobs)
        if is_final and not style.usage_alone and self._usage is not Usage.NEVER:
            more["usage"] = self.usage()
        if is_final and self._timings is not None:
            more["timings"] = self._timings(self.jobs)
        reason = self._reason(choice)
        if not style.end_alone:
            return data(self._chunk([self._choice(choice, piece.decode("ascii"), reason)], **more))
        text = self.token(piece, choice) if piece else b""
        return text + data(self._chunk([self._choice(choice, None, reason)], **more))

    def closing(self) -> bytes:
        if self._usage is Usage.NEVER or not self._style.usage_alone:
            return DONE
        return data(self._chunk([], usage=self.usage())) + DONE

    def failure(self, message: str) -> bytes | None:
        style = self._style
        if style.error is None:
            return None
        event = b"data: " + encode(style.error(style.error_status, message)) + b"\n\n"
        return event + DONE if style.has_done_after_error else event

    def whole(self) -> dict[str, Any]:
        answer = {
            "id": self.id,
            "object": "chat.completion" if self._is_chat else "text_completion",
            "created": self.created,
            "model": self.model,
            "choices": [self._whole_choice(index) for index in range(len(self.jobs))],
            **self._style.chunk_fields,
            "usage": self.usage(),
        }
        if self._timings is not None:
            answer["timings"] = self._timings(self.jobs)
        return answer

    def _whole_choice(self, index: int) -> dict[str, Any]:
        choice = self._choice(index, self._echo + self.text(index), self._reason(index))
        if self._is_chat:
            del choice["delta"]
            choice["message"] = {"role": "assistant", "content": self.text(index)}
        return choice


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
