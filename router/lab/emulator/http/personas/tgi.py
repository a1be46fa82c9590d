"""Emulates TGI 3.3: a streamed request always gets status 200, and an error is an event of the
stream.

TGI has no priorities and no metrics of a prefix cache. It notices a disconnect at the next token.
It sends an SSE comment after 15 s without a token.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiohttp import web

from router.lab.emulator.engine import Engine
from router.lab.emulator.http.bodies import Refusal
from router.lab.emulator.http.job import Job
from router.lab.emulator.http.personas.base import Killer, Leaving, Persona
from router.lab.emulator.http.personas.exposition import Exposition
from router.lab.emulator.http.shapes.base import DONE, Shape, Usage, encode
from router.lab.emulator.http.shapes.openai import OpenAiShape, Style
from router.lab.emulator.http.sse import json_value
from router.lab.emulator.statistics import Histogram

_STREAM_STATUS = 422  # the status in each error event of a stream, even if the queue is full
_BUCKETS = tuple(0.0001 * 1.5**k for k in range(1, 36))
_TYPES = {400: "validation", 422: "validation", 429: "overloaded", 500: "generation"}


def _event(_: int, message: str) -> dict[str, Any]:
    return {"error": {"message": message, "http_status_code": _STREAM_STATUS}}


_STYLE = Style(
    role_alone=False,
    end_alone=False,
    usage_alone=False,
    has_null_usage=True,
    chunk_fields={"system_fingerprint": "3.3.6-emulated"},
    stop_reason="stop",
    error=_event,
)


class Tgi(Persona):
    name = "tgi"
    reserves_output = True
    version = "3.3.6"
    owned_by = "tgi"
    tokenize_paths = ("/tokenize",)
    routes = frozenset({"chat", "completions"})
    refuses_in_streams = True
    stream_headers: Mapping[str, str] = {"x-accel-buffering": "no", "cache-control": "no-cache"}
    comment = b":\n\n"
    keep_alive_s = 15.0

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._failures = {"overloaded": 0, "validation": 0, "dropped": 0, "generation": 0}
        self._queue = Histogram(_BUCKETS)
        self._per_token = Histogram(_BUCKETS)
        engine.on_finished = self._finished

    def add_routes(self, router: web.UrlDispatcher, delivery: Killer) -> None:
        for path in ("/health", "/ping", "/"):
            router.add_get(path, self._health)
        router.add_get("/info", self._info)
        router.add_get("/metrics", self.answer_metrics)

    def model_row(self, model: str, created: int) -> dict[str, Any]:
        return {"id": model, "object": "model", "created": 0, "owned_by": model}

    def tokenized(self, tokens: tuple[int, ...], texts: list[str]) -> Any:
        rows, at = [], 0
        for id, piece in zip(tokens, texts, strict=True):
            rows.append({"id": id, "text": piece, "start": at, "stop": at + len(piece)})
            at += len(piece)
        return rows

    # Requests.

    def admit(self, job: Job) -> None:
        """Refuse a request if `max_queued_requests` requests are running or waiting already."""
        most = self.settings.max_queued_requests
        core = self.engine.core
        if most is not None and core.waiting + core.running >= most:
            raise Refusal(429, "Model is overloaded", "overloaded")

    def leaving(self, headers: Mapping[str, str], is_stream: bool, after_s: float) -> Leaving:
        self._failures["dropped"] += 1
        return Leaving(None, at_next_token=True)

    # Answers.

    def usage(self, body: Any) -> Usage:
        """TGI reports usage only in the last chunk, and only if the client requests it."""
        options = body.stream_options
        return Usage.END if options is not None and options.include_usage else Usage.NEVER

    def chat(self, id: str, model: str, created: int, jobs: list[Job], usage: Usage) -> Shape:
        return OpenAiShape(_STYLE, True, "", model, created, jobs, usage)

    def completion(
        self, id: str, model: str, created: int, jobs: list[Job], usage: Usage, echo: str
    ) -> Shape:
        return OpenAiShape(_STYLE, False, "", model, created, jobs, usage, echo=echo)

    def whole_headers(self, headers: Mapping[str, str], jobs: list[Job]) -> dict[str, str]:
        job = jobs[0]
        clock = self.engine.core.clock
        queue_s = max(job.started_at - job.arrival, 0.0)
        total_s = clock - job.arrival
        per_token_s = (total_s - queue_s) / max(job.output_tokens, 1)
        return {
            "x-compute-type": "emulated",
            "x-compute-time": f"{total_s:.6f}",
            "x-total-time": str(round(total_s * 1e3)),
            "x-queue-time": str(round(queue_s * 1e3)),
            "x-time-per-token": str(round(per_token_s * 1e3)),
        }

    def refusal(self, refusal: Refusal) -> web.Response:
        # TGI answers an invalid request with 422 instead of 400.
        status = 422 if refusal.status == 400 else refusal.status
        kind = _TYPES.get(status, "generation")
        self._failures[kind] += 1
        return json_value({"error": refusal.message, "error_type": kind}, status)

    def refusal_events(self, refusal: Refusal) -> bytes:
        self._failures[_TYPES.get(refusal.status, "generation")] += 1
        return b"data: " + encode(_event(0, refusal.message)) + b"\n\n" + DONE

    # Endpoints.

    def _finished(self, job: Job) -> None:
        clock = self.engine.core.clock
        self._queue.observe(max(job.started_at - job.arrival, 0.0))
        if job.output_tokens:
            self._per_token.observe((clock - job.started_at) / job.output_tokens)

    async def _health(self, _: web.Request) -> web.Response:
        if self.health_status == 200:
            return web.Response(status=200)
        return json_value({"error": "unhealthy", "error_type": "healthcheck"}, self.health_status)

    async def _info(self, _: web.Request) -> web.Response:
        settings = self.settings
        most = settings.max_queued_requests
        return json_value(
            {
                "model_id": self.model,
                "max_concurrent_requests": 128 if most is None else most,
                "max_input_tokens": settings.max_model_len - 1,
                "max_total_tokens": settings.max_model_len,
                "max_client_batch_size": 4,
                "router": "text-generation-router",
                "version": self.version,
            }
        )

    def exposed(self) -> str:
        core, settings, ended = self.engine.core, self.settings, self.engine.stats.ended
        size = settings.block_size
        out = Exposition("tgi_", {}, is_rust=True)
        out.gauge("queue_size", core.waiting, "Current queue size")
        out.gauge("batch_current_size", core.running, "Current batch size")
        out.gauge(
            "batch_current_max_tokens",
            core.kv_reserved * size,
            "Maximum tokens for the current batch",
        )
        out.gauge("batch_max_total_tokens", settings.num_blocks * size)
        out.counter("request_count", core.submitted, "Total number of requests")
        out.counter(
            "request_success", ended["stop"] + ended["length"], "Number of successful requests"
        )
        out.family("request_failure", "counter")
        for kind, count in self._failures.items():
            if count:  # TGI has no sample for an event that never happened
                out.sample("request_failure", count, err=kind)
        out.histogram("request_queue_duration", self._queue, "Time spent in the queue per request")
        out.histogram(
            "request_mean_time_per_token_duration",
            self._per_token,
            "Mean time per token per request",
        )
        return out.text()


PERSONA = Tgi
