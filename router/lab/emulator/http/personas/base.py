"""The interface of a persona: the differences between engines. The default is vLLM's behaviour.

Constant properties of an engine are attributes; decisions are methods.

`FlatPersona`: the part that the personas of SGLang and TensorRT-LLM share: answers in OpenAI's
format with an engine's own details, and error objects that are not nested.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from secrets import token_hex
from time import time
from typing import Any, ClassVar, Protocol

import msgspec
from aiohttp import web

from router.lab.emulator.core.kv_events import KvEvent
from router.lab.emulator.engine import Engine
from router.lab.emulator.http.bodies import Body, Refusal
from router.lab.emulator.http.job import Job
from router.lab.emulator.http.shapes.base import Shape, Usage, nested_error
from router.lab.emulator.http.shapes.openai import OpenAiShape, Style
from router.lab.emulator.http.sse import json_response, json_value, text_response


class Killer(Protocol):
    """Ends running answers. `Delivery` implements it."""

    def kill(self, id: str, is_prefix: bool = False) -> int:
        """End the answer with this ID, or all answers whose IDs begin with it.

        Returns the number of ended jobs.
        """


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
    # The routes that this engine serves. They are names of routes that several personas share.
    routes: frozenset[str] = frozenset()
    tokenize_paths: tuple[str, ...] = ()
    priority_header = ""  # name of the request header that may contain a priority; empty: none
    # Encodes a batch of KV events. None: the engine publishes no KV events.
    kv_payload: Callable[[Sequence[KvEvent], float], bytes] | None = None
    # When a stream's response head is sent. False: at once, before prefill.
    head_with_first_token = False
    stream_headers: Mapping[str, str] = {}
    comment = b": keep-alive\n\n"
    # Seconds without data after which a stream gets an SSE comment; None: no comments.
    keep_alive_s: float | None = None
    # True: if a client requests a stream, it gets status 200 even for an invalid request.
    refuses_in_streams = False
    # Properties of the scheduler and of the server, which `settings.py` reads.
    lists_adapters = False  # Whether the engine lists its LoRA adapters in /v1/models.
    has_ranks = False  # True: the engine can have data-parallel ranks behind one address.
    # True: the engine starts a request only after it has reserved the KV cache for the request's
    # whole output.
    reserves_output = False
    # A new request preempts a running request whose priority number is worse by more than this.
    displaces_by: int | None = None
    gauges_lag = False  # True: the engine's gauges lag by up to a second.

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.ranks: Sequence[Engine] = (engine,)  # all data-parallel ranks of the server
        self.settings = engine.settings
        self.model = engine.settings.models[0]
        if engine.settings.engine_version is not None:
            self.version = engine.settings.engine_version

    # Endpoints.

    def add_routes(self, router: web.UrlDispatcher, delivery: Killer) -> None:
        """Add the endpoints that only this engine has or that differ from other engines'."""
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
        """Raises Refusal if the body has a field that this engine refuses as unknown."""

    def rank(self, headers: Mapping[str, str], priority: Any) -> int:
        """The request's priority number for the engine core. A lower number is served earlier.

        Raises Refusal for a value that this engine would not accept.
        """
        return 0

    def admit(self, job: Job) -> None:
        """Check that the queue has room for a job. Raises Refusal when the queue is full."""

    def is_queue_full(self) -> bool:
        most = self.settings.max_queued_requests
        return most is not None and self.engine.core.waiting >= most

    def answer_id(self, headers_of: web.Request, body: Body, prefix: str) -> str:
        return prefix + token_hex(8)

    def leaving(self, headers: Mapping[str, str], is_stream: bool, after_s: float) -> Leaving:
        """When the engine notices a disconnect that came `after_s` seconds after the request."""
        return AT_ONCE

    # Answers.

    def usage(self, body: Body) -> Usage:
        """When a stream that answers this request reports its token counts."""
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
        """Additional headers of an answer that is not streamed."""
        return {}

    def refusal(self, refusal: Refusal) -> web.Response:
        body = nested_error(refusal.status, refusal.message, refusal.type, refusal.param)
        return json_response(body, refusal.status)

    def refusal_events(self, refusal: Refusal) -> bytes:
        """All bytes of a stream that reports the refusal; used only with `refuses_in_streams`."""
        raise NotImplementedError

    # Endpoints and values that several personas share.

    @property
    def health_status(self) -> int:
        return self.engine.faults.current.health

    async def answer_health(self, _: web.Request) -> web.Response:
        """Answer a health check with a status and no body."""
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
    """Convert a value to an integer as pydantic does. Raises Refusal (400) if pydantic fails."""
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


class FlatPersona(Persona):
    style: ClassVar[Style]

    def chat(self, id: str, model: str, created: int, jobs: list[Job], usage: Usage) -> Shape:
        return OpenAiShape(self.style, True, id, model, created, jobs, usage)

    def completion(
        self, id: str, model: str, created: int, jobs: list[Job], usage: Usage, echo: str
    ) -> Shape:
        return OpenAiShape(self.style, False, id, model, created, jobs, usage, echo=echo)

    def refusal(self, refusal: Refusal) -> web.Response:
        error = flat_error(refusal.status, refusal.message, refusal.type, refusal.param)
        return json_value(error, refusal.status)
