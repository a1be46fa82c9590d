"""The interface of a persona: all differences between engines, with vLLM's behaviour as default.

Attributes for facts, methods for decisions. Handlers that need the running answers get the
`Delivery`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from secrets import token_hex
from time import time
from typing import Any, Protocol

import msgspec
from aiohttp import web

from router.emulator.core.kv_events import KvEvent
from router.emulator.engine import Engine
from router.emulator.http.bodies import Body, Refusal
from router.emulator.http.job import Job
from router.emulator.http.replies import json_response, json_value, text_response
from router.emulator.http.shapes.base import Shape, Usage, nested_error


class Killer(Protocol):
    """Access to the running answers."""

    def kill(self, id: str, is_prefix: bool = False) -> int:
        """End an answer, or all whose IDs have this prefix; returns the number of ended jobs."""


EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Leaving:
    """When an engine notices that a client has disconnected."""

    after_s: float | None = 0.0  # seconds until the engine notices; None: never
    at_next_token: bool = False  # the engine notices at its next token, if that is earlier


AT_ONCE = Leaving()


class Persona:
    """One engine's external behaviour."""

    name = ""
    version = ""
    owned_by = ""
    # Routes that this engine serves, of the routes that all personas share.
    routes: frozenset[str] = frozenset()
    tokenize_paths: tuple[str, ...] = ()
    priority_header = ""  # name of a request header with a priority
    # encodes a batch of KV events
    kv_payload: Callable[[Sequence[KvEvent], float], bytes] | None = None
    head_with_first_token = False  # of streams; False: the head is sent at once, before prefill
    stream_headers: Mapping[str, str] = {}
    comment = b": keep-alive\n\n"
    # Silence before an SSE comment, in seconds; None: no comments.
    keep_alive_s: float | None = None
    refuses_in_streams = False  # a stream gets 200 even for an invalid request

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.settings = engine.settings
        self.model = engine.settings.models[0]
        if engine.settings.engine_version is not None:
            self.version = engine.settings.engine_version

    # Endpoints.

    def add_routes(self, router: web.UrlDispatcher, delivery: Killer) -> None:
        """Endpoints that only this engine has, or has in its own form."""
        raise NotImplementedError

    def model_row(self, model: str, created: int) -> dict[str, Any]:
        """An entry of /v1/models."""
        return {
            "id": model,
            "object": "model",
            "created": created,
            "owned_by": self.owned_by,
            "root": model,
            "parent": None,
            "max_model_len": self.settings.max_model_len,
        }

    def tokenized(self, tokens: tuple[int, ...], texts: list[str]) -> Any:
        return {
            "count": len(tokens),
            "max_model_len": self.settings.max_model_len,
            "tokens": tokens,
            "token_strs": None,
        }

    # Requests.

    def check_fields(self, raw: bytes, path: str) -> None:
        """Raises Refusal for a body with a field that this engine does not know."""

    def rank(self, headers: Mapping[str, str], priority: Any) -> int:
        """The core's priority (lower is earlier) from the request's values.

        Raises Refusal for a value that this engine would not accept.
        """
        return 0

    def admit(self, job: Job) -> None:
        """Raises Refusal when the queue is full."""

    def is_queue_full(self) -> bool:
        most = self.settings.max_queued_requests
        return most is not None and self.engine.core.waiting >= most

    def answer_id(self, headers_of: web.Request, body: Body, prefix: str) -> str:
        return prefix + token_hex(8)

    def leaving(self, headers: Mapping[str, str], is_stream: bool, after_s: float) -> Leaving:
        """When the engine notices that a client left `after_s` seconds after its arrival."""
        return AT_ONCE

    # Answers.

    def usage(self, body: Body) -> Usage:
        """When a stream of this request reports its usage."""
        options = body.stream_options
        if options is None or not options.include_usage:
            return Usage.NEVER
        return Usage.ALWAYS if options.continuous_usage_stats else Usage.END

    def chat(self, id: str, model: str, created: int, jobs: list[Job], usage: Usage) -> Shape:
        raise NotImplementedError

    def completion(
        self, id: str, model: str, created: int, jobs: list[Job], usage: Usage, echo: str
    ) -> Shape:
        raise NotImplementedError

    def whole_headers(self, headers: Mapping[str, str], jobs: list[Job]) -> dict[str, str]:
        """Further headers of an answer that is not streamed."""
        return {}

    def refusal(self, refusal: Refusal) -> web.Response:
        body = nested_error(refusal.status, refusal.message, refusal.type, refusal.param)
        return json_response(body, refusal.status)

    def refusal_events(self, refusal: Refusal) -> bytes:
        """The refusal as a whole stream; used only if `refuses_in_streams` is set."""
        raise NotImplementedError

    # Shared by several.

    @property
    def health_status(self) -> int:
        return self.engine.faults.current.health

    async def answer_health(self, _: web.Request) -> web.Response:
        """The health answer: a status without a body."""
        return web.Response(status=self.health_status)

    async def answer_version(self, _: web.Request) -> web.Response:
        return json_value({"version": self.version})

    def exposed(self) -> str:
        """The metrics, in Prometheus' text format."""
        raise NotImplementedError

    async def answer_metrics(self, _: web.Request) -> web.Response:
        self.engine.scrapes += 1
        return text_response(self.exposed(), EXPOSITION)


def flat_error(status: int, message: str, type: str, param: str | None = None) -> dict[str, Any]:
    """The error object of SGLang and TensorRT-LLM."""
    return {"object": "error", "message": message, "type": type, "param": param, "code": status}


def whole_number(value: Any, param: str = "priority") -> int:
    """An integer as pydantic accepts it. Raises Refusal (400) for a fraction or another value."""
    try:
        return msgspec.convert(value, int, strict=False)
    except msgspec.ValidationError:
        pass
    if isinstance(value, float):
        kind, what = (
            "int_from_float",
            "Input should be a valid integer, got a number with a fractional part",
        )
    elif isinstance(value, str):
        kind, what = (
            "int_parsing",
            "Input should be a valid integer, unable to parse string as an integer",
        )
    else:
        kind, what = "int_type", "Input should be a valid integer"
    message = (
        f"1 validation error:\n  {{'type': '{kind}', 'loc': 'body.{param}', 'msg': '{what}', "
        f"'input': '{value}'}}"
    )
    raise Refusal(400, message, "Bad Request", f"body.{param}")


def now_s() -> int:
    return int(time())
