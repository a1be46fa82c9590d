"""Emulates vLLM 0.32: it sends a stream's head at once, serves lower priority numbers first, and
publishes KV events over ZMQ.

The development endpoints (abort, sleep, cache reset) are available, as with VLLM_SERVER_DEV_MODE=1.

`render`: vLLM's /metrics, with the names, labels and types of version 0.32.

vLLM with several ranks has several API servers. They report the gauges of a rank only after the
rank's first step.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import time
from typing import Any

import msgspec
from aiohttp import web

from router.core.unreadable import NOT_JSON
from router.lab.emulator.engine import Engine
from router.lab.emulator.http.bodies import Body, Refusal
from router.lab.emulator.http.job import Job
from router.lab.emulator.http.kv_wire import vllm_payload
from router.lab.emulator.http.personas.base import Killer, Persona, whole_number
from router.lab.emulator.http.personas.exposition import Exposition, merged
from router.lab.emulator.http.shapes.base import Shape, Usage
from router.lab.emulator.http.shapes.openai import ChatShape, CompletionShape
from router.lab.emulator.http.sse import json_value


def render(engine: Engine) -> str:
    """All current values in Prometheus' text format."""
    core, settings, stats = engine.core, engine.settings, engine.stats
    running, waiting, kv_usage = engine.gauges()
    model = settings.models[0]
    out = Exposition("vllm:", {"engine": str(engine.rank), "model_name": model})
    is_unused = core.prompt_tokens == running == waiting == 0
    has_gauges = settings.data_parallel_size == 1 or not is_unused
    if has_gauges:
        _queue(out, running, waiting)
    out.family(
        "engine_sleep_state",
        "gauge",
        "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; "
        "weights_offloaded = 1 means sleep level 1; discard_all = 1 means sleep level 2.",
    )
    for level, state in enumerate(("awake", "weights_offloaded", "discard_all")):
        out.sample("engine_sleep_state", engine.sleep_level == level, sleep_state=state)
    if has_gauges:
        out.gauge("kv_cache_usage_perc", kv_usage, "KV-cache usage. 1 means 100 percent usage.")
    out.counter(
        "prefix_cache_queries_total",
        core.prefix_queries,
        "Prefix cache queries, in terms of number of queried tokens.",
    )
    out.counter(
        "prefix_cache_hits_total",
        core.prefix_hits,
        "Prefix cache hits, in terms of number of cached tokens.",
    )
    out.counter(
        "num_preemptions_total",
        core.preemptions,
        "Cumulative number of preemption from the engine.",
    )
    out.counter("prompt_tokens_total", core.prompt_tokens, "Number of prefill tokens processed.")
    out.counter(
        "prompt_tokens_cached_total",
        core.prefix_hits,
        "Number of cached prompt tokens (local + external).",
    )
    out.counter(
        "generation_tokens_total",
        core.generation_tokens,
        "Number of generation tokens processed.",
    )
    out.family("request_success_total", "counter", "Count of successfully processed requests.")
    for reason, count in stats.ended.items():
        out.sample("request_success_total", count, finished_reason=reason)
    out.family(
        "admission_rejections_total",
        "counter",
        "Number of admission attempts rejected by a queue limit, by reason.",
    )
    # This is vLLM's only metric without an `engine` label.
    plain = Exposition("vllm:", {"model_name": model})
    plain.sample("admission_rejections_total", stats.rejected, reason="max_num_queued_reqs")
    plain.sample("admission_rejections_total", 0, reason="max_num_queued_tokens")
    out.append(plain)
    out.histogram(
        "time_to_first_token_seconds", stats.ttft, "Histogram of time to first token in seconds."
    )
    out.histogram(
        "inter_token_latency_seconds",
        stats.inter_token,
        "Histogram of inter-token latency in seconds.",
    )
    out.histogram(
        "request_time_per_output_token_seconds",
        stats.per_token,
        "Histogram of time_per_output_token_seconds per request.",
    )
    out.histogram(
        "e2e_request_latency_seconds", stats.whole, "Histogram of e2e request latency in seconds."
    )
    if engine.adapters.used and not engine.rank:  # The metric has no label with the rank.
        _adapters(out, engine)
    out.family("cache_config_info", "gauge", "Information of the LLMEngine CacheConfig")
    config = Exposition("vllm:", {})
    config.sample(
        "cache_config_info",
        1,
        block_size=str(settings.block_size),
        cache_dtype="auto",
        enable_prefix_caching=str(settings.prefix_caching),
        engine=str(engine.rank),
        kv_cache_size_tokens=str(settings.num_blocks * settings.block_size),
        # vLLM reports the sum of all ranks in the series of each rank.
        num_gpu_blocks=str(settings.num_blocks * settings.data_parallel_size),
        num_gpu_blocks_override="None",
    )
    out.append(config)
    return out.text()


def _queue(out: Exposition, running: int, waiting: int) -> None:
    out.gauge("num_requests_running", running, "Number of requests in model execution batches.")
    out.gauge("num_requests_waiting", waiting, "Number of requests waiting to be processed.")
    out.family(
        "num_requests_waiting_by_reason",
        "gauge",
        "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling "
        "capacity; 'deferred' = deferred by transient constraints (LoRA budget, KV transfer, "
        "blocked status). Sum of all reasons equals vllm:num_requests_waiting.",
    )
    out.sample("num_requests_waiting_by_reason", waiting, reason="capacity")
    out.sample("num_requests_waiting_by_reason", 0, reason="deferred")


def _adapters(out: Exposition, engine: Engine) -> None:
    """The adapters of running and waiting requests. The value is the time of the sample."""
    core = engine.core
    running = {job.adapter for job in core.rows()} - {""}
    waiting = {job.adapter for job in core.queued()} - {""} - running
    out.family("lora_requests_info", "gauge", "Running stats on lora requests.")
    info = Exposition("vllm:", {})
    info.sample(
        "lora_requests_info",
        time(),
        max_lora=str(engine.settings.max_loras),
        running_lora_adapters=",".join(sorted(running)),
        waiting_lora_adapters=",".join(sorted(waiting)),
    )
    out.append(info)


_BUSY = "The engine is currently busy and cannot accept more requests. Please try again later."


class _AbortBody(msgspec.Struct):
    request_ids: list[str] = []


class Vllm(Persona):
    name = "vllm"
    lists_adapters = True
    has_ranks = True
    gauges_lag = True
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
