"""Emulates SGLang 0.5.23: a stream's head is sent with its first token, and higher priority numbers
go first.

/health generates a token and takes at least one second; /ready answers at once. An abort by ID ends
all requests whose IDs begin with that ID. With priority scheduling, a request without a priority is
served last.

`gen_throughput`, `hit_rate`, `render`: SGLang's /metrics, with the names, labels and types of
version 0.5.23.

With priority scheduling the gauges of the queue have several samples: one with `priority=""` for
the total, and one for each priority in the queue.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from secrets import token_hex
from time import time
from typing import Any

import msgspec
from aiohttp import web

from router.core.unreadable import NOT_JSON
from router.lab.emulator.engine import Engine
from router.lab.emulator.http.bodies import Body, Refusal
from router.lab.emulator.http.job import Job
from router.lab.emulator.http.kv_wire import sglang_payload
from router.lab.emulator.http.personas.base import (
    FlatPersona,
    Killer,
    Leaving,
    flat_error,
    whole_number,
)
from router.lab.emulator.http.personas.exposition import Exposition, merged
from router.lab.emulator.http.shapes.openai import Style
from router.lab.emulator.http.sse import json_value


def gen_throughput(engine: Engine) -> float:
    """Generated tokens per second, computed from the duration of the newest step."""
    step_s = engine.stats.last_token_s
    return round(engine.core.running / step_s, 2) if step_s > 0 else 0.0


def hit_rate(engine: Engine) -> float:
    """Fraction of the looked-up prompt tokens that were in the cache, since the engine's start."""
    core = engine.core
    return round(core.prefix_hits / core.prefix_queries, 4) if core.prefix_queries else 0.0


def render(engine: Engine) -> str:
    """All current values in Prometheus' text format."""
    core, settings, stats = engine.core, engine.settings, engine.stats
    common = {"engine_type": "unified", "model_name": settings.models[0]}
    if settings.by_priority:
        common["priority"] = ""
    scheduler = {**common, "moe_ep_rank": "0", "pp_rank": "0", "tp_rank": "0"}
    if settings.data_parallel_size > 1:
        scheduler["dp_rank"] = str(engine.rank)
    out = Exposition("sglang:", scheduler)
    sign = 1 if settings.low_priority_values_first else -1

    def by_priority(name: str, text: str, total: int, ranks: list[int]) -> None:
        out.gauge(name, total, text)
        if settings.by_priority:
            for rank, count in sorted(Counter(ranks).items()):
                out.sample(name, count, priority=str(sign * rank))

    running = [job.priority for job in core.rows()]
    waiting = [job.priority for job in core.queued()] if settings.by_priority else []
    by_priority("num_running_reqs", "The number of running requests.", core.running, running)
    by_priority(
        "num_queue_reqs",
        "The number of requests in the waiting queue.",
        core.waiting,
        waiting,
    )
    out.gauge("num_grammar_queue_reqs", 0, "The number of requests in the grammar waiting queue.")
    out.gauge("token_usage", round(core.kv_usage, 4), "The token usage.")
    out.gauge("cache_hit_rate", hit_rate(engine), "The prefix cache hit rate.")
    out.gauge("gen_throughput", gen_throughput(engine), "The generation throughput (token/s).")
    retracted = sum(1 for job in core.queued() if job.preemptions)
    out.gauge("num_retracted_reqs", retracted, "The number of retracted requests.")
    out.counter(
        "num_retracted_requests_total",
        core.preemptions,
        "Total number of retracted requests.",
    )
    out.gauge("num_used_tokens", core.kv.used * settings.block_size, "The number of used tokens.")
    out.gauge(
        "max_total_num_tokens",
        settings.num_blocks * settings.block_size,
        "Maximum total number of tokens in the KV cache pool.",
    )
    out.gauge("page_size", settings.block_size, "KV cache page size in tokens.")
    out.gauge("num_pages", settings.num_blocks, "Number of KV cache pages.")

    if settings.adapters:
        used, slots = engine.adapters.used, settings.max_loras
        out.gauge("lora_pool_slots_used", used, "Number of LoRA slots in use.")
        out.gauge("lora_pool_slots_total", slots, "Total number of LoRA slots.")
        out.gauge("lora_pool_utilization", round(used / slots, 4), "LoRA pool utilization.")

    tokenizer = Exposition("sglang:", common)
    tokenizer.family("cached_tokens_total", "counter", "Number of cached prompt tokens by source.")
    tokenizer.sample("cached_tokens_total", core.prefix_hits, cache_source="device")
    tokenizer.counter(
        "prompt_tokens_total", core.prompt_tokens, "Number of prefill tokens processed."
    )
    tokenizer.counter(
        "generation_tokens_total",
        core.generation_tokens,
        "Number of generation tokens processed.",
    )
    tokenizer.family("num_requests_total", "counter", "Number of requests processed.")
    tokenizer.sample("num_requests_total", core.finished, is_streaming="true")
    tokenizer.counter("num_aborted_requests_total", core.aborted, "Number of requests aborted.")
    tokenizer.histogram(
        "time_to_first_token_seconds",
        stats.ttft,
        "Histogram of time to first token in seconds.",
        is_streaming="true",
    )
    tokenizer.histogram(
        "inter_token_latency_seconds",
        stats.inter_token,
        "Histogram of inter-token latency in seconds.",
    )
    tokenizer.histogram(
        "e2e_request_latency_seconds",
        stats.whole,
        "Histogram of End-to-end request latency in seconds",
    )
    out.append(tokenizer)
    return out.text()


_WORST = 2**63  # core priority of a request without a priority; it is served after all others
_HEALTH_STEP_S = 1.0
_HEALTH_STEPS = 20
# SGLang aborts a stream's request in a task that first waits this long after the disconnect.
_STREAM_ABORT_S = 2.0
# Interval at which SGLang checks requests without a token for disconnected clients.
_WAITING_POLL_S = 4.0

_FULL = "The request queue is full."
_DISPLACED = "The request is aborted by a higher priority request."

_STYLE = Style(
    role_alone=True,
    end_alone=True,
    has_null_usage=True,
    choice_fields={"matched_stop": None},
    stop_field="matched_stop",
    error=lambda status, message: {"error": flat_error(status, message, "InternalServerError")},
    error_status=500,
)


class _AbortBody(msgspec.Struct):
    rid: str | None = None
    abort_all: bool = False


class Sglang(FlatPersona):
    style = _STYLE
    name = "sglang"
    lists_adapters = True
    has_ranks = True
    displaces_by = 10  # The default of --priority-scheduling-preemption-threshold.
    version = "0.5.23"
    owned_by = "sglang"
    tokenize_paths = ("/tokenize", "/v1/tokenize")
    kv_payload = staticmethod(sglang_payload)
    routes = frozenset(
        {"chat", "completions", "messages", "responses", "embeddings", "score", "rerank"}
    )
    head_with_first_token = True

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._probes = 0

    def add_routes(self, router: web.UrlDispatcher, delivery: Killer) -> None:
        router.add_get("/health", self._health)
        router.add_get("/health_generate", self._health)
        router.add_get("/ready", self.answer_health)
        router.add_get("/ping", self.answer_health)
        router.add_get("/v1/loads", self._loads)
        for path in ("/server_info", "/get_server_info"):
            router.add_get(path, self._server_info)
        for path in ("/model_info", "/get_model_info"):
            router.add_get(path, self._model_info)
        router.add_post("/flush_cache", self._flush)
        if self.settings.metrics:
            router.add_get("/metrics", self.answer_metrics)

        async def abort(request: web.Request) -> web.Response:
            try:
                body = msgspec.json.decode(await request.read(), type=_AbortBody)
            except NOT_JSON as err:
                raise Refusal(400, str(err), "Bad Request") from None
            if body.abort_all:
                delivery.kill("", is_prefix=True)
            elif body.rid:
                delivery.kill(body.rid, is_prefix=True)
            return web.Response(status=200)

        router.add_post("/abort_request", abort)

    def exposed(self) -> str:
        return merged([render(engine) for engine in self.ranks])

    # Requests.

    def rank(self, headers: Mapping[str, str], priority: Any) -> int:
        """The priority for the engine core. A client's higher number is served earlier, unless
        `low_priority_values_first` is set.
        """
        if priority is None:
            return _WORST if self.settings.by_priority else 0
        number = whole_number(priority)
        if not -(2**63) <= number < 2**63:
            raise Refusal(400, "priority is not within 64 bits", "BadRequestError", "priority")
        return number if self.settings.low_priority_values_first else -number

    def admit(self, job: Job) -> None:
        """If the queue is full, drop its last request for a more urgent one, or else refuse."""
        if not self.is_queue_full():
            return
        self.engine.stats.rejected += 1
        queued = self.engine.core.queued()
        worst = queued[-1] if queued and self.settings.by_priority else None
        if worst is None or worst.priority <= job.priority:
            raise Refusal(503, _FULL, "ServiceUnavailableError")
        self.engine.kill(worst, Refusal(503, _DISPLACED, "ServiceUnavailableError"))

    def answer_id(self, headers_of: web.Request, body: Body, prefix: str) -> str:
        return body.rid if isinstance(body.rid, str) and body.rid else token_hex(16)

    def leaving(self, headers: Mapping[str, str], is_stream: bool, after_s: float) -> Leaving:
        """When SGLang 0.5.20 and later notice a disconnect. Earlier versions could miss the
        disconnect of a stream (`forgets_leavers`).
        """
        if is_stream:
            return Leaving(None if self.settings.forgets_leavers else _STREAM_ABORT_S)
        return Leaving(_WAITING_POLL_S, at_next_token=True)

    # Endpoints.

    async def _health(self, _: web.Request) -> web.Response:
        """Generate a token if no request runs. The engine is healthy if it generates any token."""
        if self.health_status != 200:
            return web.Response(status=self.health_status)
        engine = self.engine
        self._probes += 1
        made = engine.core.generation_tokens
        probe = Job(f"HEALTH_CHECK_{self._probes}", 1, b"", 1, "length")
        if not engine.core.running:
            engine.submit(probe)
        try:
            for _step in range(_HEALTH_STEPS):
                await asyncio.sleep(_HEALTH_STEP_S)
                if engine.core.generation_tokens > made:
                    return web.Response(status=200)
        finally:
            engine.abort(probe)
        return web.Response(status=503)

    async def _loads(self, request: web.Request) -> web.Response:
        if request.query.get("format") == "prometheus":
            return await self.answer_metrics(request)
        return json_value(
            {
                "timestamp": datetime.now(UTC).isoformat(),
                "version": self.version,
                "accelerator": "emulated",
                "num_accelerators": len(self.ranks),
                "loads": [self._load(engine) for engine in self.ranks],
            }
        )

    def _load(self, engine: Engine) -> dict[str, Any]:
        core, settings = engine.core, self.settings
        size = settings.block_size
        used = core.kv.used * size
        return {
            "timestamp": time(),
            "dp_rank": engine.rank,
            "num_running_reqs": core.running,
            "num_waiting_reqs": core.waiting,
            "num_waiting_uncached_tokens": core.uncached_waiting(),
            "num_used_tokens": used,
            "num_total_tokens": used + core.uncached_waiting(),
            "num_active_tokens": used,
            "max_total_num_tokens": settings.num_blocks * size,
            "max_running_requests": settings.max_num_seqs,
            "token_usage": round(core.kv_usage, 4),
            "gen_throughput": gen_throughput(engine),
            "cache_hit_rate": hit_rate(engine),
            "utilization": round(core.running / settings.max_num_seqs, 4),
            "queues": {
                "waiting": core.waiting,
                "grammar": 0,
                "paused": 0,
                "retracted": 0,
                "prealloc_ready": 0,
            },
            "disaggregation": {"mode": "null"},
        }

    async def _server_info(self, _: web.Request) -> web.Response:
        settings = self.settings
        info: dict[str, Any] = {
            "model_path": self.model,
            "served_model_name": self.model,
            "version": self.version,
            "page_size": settings.block_size,
            "max_running_requests": settings.max_num_seqs,
            "max_total_num_tokens": settings.num_blocks * settings.block_size,
            "context_length": settings.max_model_len,
            "enable_metrics": settings.metrics,
            "enable_priority_scheduling": settings.by_priority,
            "schedule_low_priority_values_first": settings.low_priority_values_first,
            "dp_size": len(self.ranks),
            "internal_states": [
                {"effective_max_running_requests_per_dp": settings.max_num_seqs} for _ in self.ranks
            ],
        }
        if self.engine.kv_listener is not None:
            info["kv_events"] = self.engine.kv_listener.server_info()
        return json_value(info)

    async def _model_info(self, _: web.Request) -> web.Response:
        return json_value(
            {"model_path": self.model, "tokenizer_path": self.model, "is_generation": True}
        )

    async def _flush(self, _: web.Request) -> web.Response:
        return web.Response(status=200 if self.engine.reset_cache() else 400)


PERSONA = Sglang
