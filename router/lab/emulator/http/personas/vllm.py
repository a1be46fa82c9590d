"""Emulates vLLM 0.32: it sends a stream's head at once, serves lower priority numbers first, and
publishes KV events over ZMQ.

The development endpoints (abort, sleep, cache reset) are available, as with VLLM_SERVER_DEV_MODE=1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web

from router.core.unreadable import NOT_JSON
from router.lab.emulator.http.bodies import Body, Refusal
from router.lab.emulator.http.job import Job
from router.lab.emulator.http.kv_wire import vllm_payload
from router.lab.emulator.http.personas.base import Killer, Persona, whole_number
from router.lab.emulator.http.personas.exposition import merged
from router.lab.emulator.http.personas.vllm_metrics import render
from router.lab.emulator.http.replies import json_value
from router.lab.emulator.http.shapes.base import Shape, Usage
from router.lab.emulator.http.shapes.chat import ChatShape
from router.lab.emulator.http.shapes.completion import CompletionShape

_BUSY = "The engine is currently busy and cannot accept more requests. Please try again later."


class _AbortBody(msgspec.Struct):
    request_ids: list[str] = []


class Vllm(Persona):
    name = "vllm"
    version = "0.32.0+emulated"
    owned_by = "vllm"
    priority_header = "x-vllm-priority"
    tokenize_paths = ("/tokenize",)
    kv_payload = staticmethod(vllm_payload)
    routes = frozenset(
        {"chat", "completions", "messages", "responses", "embeddings", "pooling", "score", "rerank"}
    )

    def add_routes(self, router: web.UrlDispatcher, delivery: Killer) -> None:
        router.add_get("/health", self.answer_health)
        router.add_get("/ping", self.answer_health)
        router.add_post("/ping", self.answer_health)
        router.add_get("/version", self.answer_version)
        router.add_get("/load", self._load)
        router.add_get("/kv_event_sources", self._kv_event_sources)
        if self.settings.metrics:
            router.add_get("/metrics", self.answer_metrics)
        router.add_post("/reset_prefix_cache", self._reset_cache)
        router.add_post("/sleep", self._sleep)
        router.add_post("/wake_up", self._wake_up)
        router.add_get("/is_sleeping", self._is_sleeping)

        async def abort(request: web.Request) -> web.Response:
            try:
                body = msgspec.json.decode(await request.read(), type=_AbortBody)
            except NOT_JSON as err:
                raise Refusal(400, str(err), "Bad Request") from None
            if body.request_ids:
                for id in body.request_ids:
                    delivery.kill(id)
            else:
                delivery.kill("", is_prefix=True)
            return web.Response(status=200)

        router.add_post("/abort_requests", abort)

    def exposed(self) -> str:
        return merged([render(engine) for engine in self.ranks])

    def rank(self, headers: Mapping[str, str], priority: Any) -> int:
        """The priority for the engine core; a lower number is served earlier.

        The priority header overrides the body's field. A header that is not a number is ignored.
        """
        try:
            return int(headers[self.priority_header])
        except (KeyError, ValueError):
            return 0 if priority is None else whole_number(priority)

    def admit(self, job: Job) -> None:
        if self.is_queue_full():
            self.engine.stats.rejected += 1
            raise Refusal(503, _BUSY, "ServiceUnavailableError")

    def answer_id(self, headers_of: web.Request, body: Body, prefix: str) -> str:
        given = headers_of.headers.get("x-request-id")
        return prefix + given if given else super().answer_id(headers_of, body, prefix)

    def chat(self, id: str, model: str, created: int, jobs: list[Job], usage: Usage) -> Shape:
        return ChatShape(id, model, created, jobs, usage)

    def completion(
        self, id: str, model: str, created: int, jobs: list[Job], usage: Usage, echo: str
    ) -> Shape:
        return CompletionShape(id, model, created, jobs, usage, echo)

    def whole_headers(self, headers: Mapping[str, str], jobs: list[Job]) -> dict[str, str]:
        """The header with the load report (ORCA), if the client requests it. Streams have none."""
        form = headers.get("endpoint-load-metrics-format", "").upper()
        core = self.engine.core
        figures = {
            "num_requests_waiting": float(core.waiting),
            "kv_cache_usage_perc": core.kv_usage,
        }
        if form == "JSON":
            inside = ", ".join(f'"{name}": {value}' for name, value in figures.items())
            return {"endpoint-load-metrics": f'JSON {{"named_metrics": {{{inside}}}}}'}
        if form == "TEXT":
            inside = ", ".join(f"named_metrics.{name}={value}" for name, value in figures.items())
            return {"endpoint-load-metrics": f"TEXT {inside}"}
        return {}

    async def _kv_event_sources(self, _: web.Request) -> web.Response:
        listeners = [engine.kv_listener for engine in self.ranks]
        known = [listener for listener in listeners if listener is not None]
        return json_value({str(rank): one.source() for rank, one in enumerate(known)})

    async def _load(self, _: web.Request) -> web.Response:
        # vLLM reports a value other than 0 only with a flag that is rarely used.
        return json_value({"server_load": 0})

    async def _reset_cache(self, _: web.Request) -> web.Response:
        self.engine.reset_cache()
        return web.Response(status=200)

    async def _sleep(self, request: web.Request) -> web.Response:
        self.engine.sleep(2 if request.query.get("level") == "2" else 1)
        return web.Response(status=200)

    async def _wake_up(self, _: web.Request) -> web.Response:
        self.engine.sleep(0)
        return web.Response(status=200)

    async def _is_sleeping(self, _: web.Request) -> web.Response:
        return json_value({"is_sleeping": self.engine.sleep_level > 0})


PERSONA = Vllm
