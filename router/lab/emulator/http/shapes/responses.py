"""The format of /v1/responses: a stream has numbered and named events.

The events `response.created` and `response.in_progress` are sent before any token.

`MessagesShape`: the format of /v1/messages: Anthropic's format as vLLM implements it.

A stream has named events and does not end with [DONE].
"""

from __future__ import annotations

from typing import Any

from router.lab.emulator.http.bodies import ResponsesBody
from router.lab.emulator.http.job import Job
from router.lab.emulator.http.shapes.base import Shape, around, encode, event

_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "abort": "end_turn"}


class MessagesShape(Shape):
    def __init__(self, id: str, model: str, created: int, jobs: list[Job]) -> None:
        super().__init__(id, model, created, jobs)
        delta = {
            "type": "content_block_delta",
            "delta": {"type": "text_delta", "text": ""},
            "index": 0,
        }
        self._before, self._behind = around(event(delta), b"text")

    def _message(
        self, content: list[dict[str, Any]], stop_reason: str | None, output_tokens: int
    ) -> dict[str, Any]:
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "content": content,
            "model": self.model,
            "stop_reason": stop_reason,
            "stop_sequence": None,
            "usage": {"input_tokens": self.job.prompt_tokens, "output_tokens": output_tokens},
        }

    def opening(self) -> bytes:
        block = {"type": "text", "text": ""}
        return event({"type": "message_start", "message": self._message([], None, 0)}) + event(
            {"type": "content_block_start", "content_block": block, "index": 0}
        )

    def token(self, piece: bytes, choice: int) -> bytes:
        return self._before + piece + self._behind

    def closing(self) -> bytes:
        job = self.job
        delta = {
            "type": "message_delta",
            "delta": {"stop_reason": _STOP_REASONS[job.finish_reason], "stop_sequence": None},
            "usage": {"input_tokens": job.prompt_tokens, "output_tokens": job.output_tokens},
        }
        return (
            event({"type": "content_block_stop", "index": 0})
            + event(delta)
            + event({"type": "message_stop"})
        )

    def failure(self, message: str) -> bytes:
        error = {"type": "error", "error": {"type": "internal_error", "message": message}}
        return b"event: error\ndata: " + encode(error) + b"\n\n"

    def whole(self) -> dict[str, Any]:
        content = [{"type": "text", "text": self.text()}]
        return self._message(content, _STOP_REASONS[self.job.finish_reason], self.job.output_tokens)


class ResponsesShape(Shape):
    def __init__(
        self, id: str, model: str, created: int, jobs: list[Job], body: ResponsesBody
    ) -> None:
        super().__init__(id, model, created, jobs)
        self._body = body
        self._item_id = "msg_" + id.removeprefix("resp_")
        self._number = 0

    def _event(self, type: str, **fields: Any) -> bytes:
        value = {**fields, "sequence_number": self._number, "type": type}
        self._number += 1
        return event(value)

    def _response(
        self, status: str, output: list[dict[str, Any]], usage: dict[str, Any] | None
    ) -> dict[str, Any]:
        body = self._body
        incomplete = {"reason": "max_output_tokens"} if status == "incomplete" else None
        return {
            "id": self.id,
            "created_at": self.created,
            "incomplete_details": incomplete,
            "instructions": body.instructions,
            "metadata": None,
            "model": self.model,
            "object": "response",
            "output": output,
            "parallel_tool_calls": True,
            "temperature": 1.0,
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
            "background": False,
            "max_output_tokens": body.max_output_tokens,
            "previous_response_id": body.previous_response_id,
            "service_tier": "auto",
            "status": status,
            "truncation": "disabled",
            "usage": usage,
        }

    def _part(self, text: str) -> dict[str, Any]:
        return {"annotations": [], "text": text, "type": "output_text", "logprobs": []}

    def _item(self, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._item_id,
            "content": content,
            "role": "assistant",
            "status": status,
            "type": "message",
        }

    def preamble(self) -> bytes:
        response = self._response("in_progress", [], None)
        return self._event("response.created", response=response) + self._event(
            "response.in_progress", response=response
        )

    def opening(self) -> bytes:
        item = self._item("in_progress", [])
        return self._event("response.output_item.added", item=item, output_index=0) + self._event(
            "response.content_part.added",
            content_index=0,
            item_id=self._item_id,
            output_index=0,
            part=self._part(""),
        )

    def token(self, piece: bytes, choice: int) -> bytes:
        return self._event(
            "response.output_text.delta",
            content_index=0,
            delta=piece.decode("ascii"),
            item_id=self._item_id,
            logprobs=[],
            output_index=0,
        )

    def closing(self) -> bytes:
        where = {"content_index": 0, "item_id": self._item_id, "output_index": 0}
        text = self.text()
        item = self._item("completed", [self._part(text)])
        return (
            self._event("response.output_text.done", **where, logprobs=[], text=text)
            + self._event("response.content_part.done", **where, part=self._part(text))
            + self._event("response.output_item.done", item=item, output_index=0)
            + self._event("response.completed", response=self.whole())
        )

    def failure(self, message: str) -> bytes:
        response = self._response("failed", [], None)
        response["error"] = {"code": "server_error", "message": message}
        return self._event("response.failed", response=response)

    def whole(self) -> dict[str, Any]:
        status = "completed" if self.job.finish_reason == "stop" else "incomplete"
        item = self._item("completed", [self._part(self.text())])
        return self._response(status, [item], self.usage())

    def usage(self) -> dict[str, Any]:
        job = self.job
        return {
            "input_tokens": job.prompt_tokens,
            "input_tokens_details": {"cached_tokens": job.cached_tokens},
            "output_tokens": job.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": job.prompt_tokens + job.output_tokens,
        }
