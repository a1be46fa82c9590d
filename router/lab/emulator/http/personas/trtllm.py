"""Emulates TensorRT-LLM's server, which refuses unknown fields and reports each iteration once.

`GET /metrics` returns a JSON list of the iterations since the last `GET /metrics`. If there are
none, it waits for up to two seconds. Metrics in Prometheus' text format have another path; their
gauges change only when a request ends. A priority is a number from 0 to 1, and a higher number is
served earlier. Servers before 1.3 refuse `priority` as an unknown field.

`hit_rate`, `reused_blocks`, `missed_blocks`: tensorRT-LLM's metrics in Prometheus' text format,
with the prefix `trtllm_`.

The gauges are read when a request ends, and keep these values until the next request ends.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from aiohttp import web

from router.core.unreadable import NOT_JSON
from router.lab.emulator.core.engine_core import EngineCore
from router.lab.emulator.engine import Engine
from router.lab.emulator.http.bodies import Body, Refusal, StreamOptions
from router.lab.emulator.http.job import Job
from router.lab.emulator.http.personas.base import EXPOSITION, FlatPersona, Killer, Leaving
from router.lab.emulator.http.personas.exposition import Exposition
from router.lab.emulator.http.shapes.base import Usage
from router.lab.emulator.http.shapes.openai import Style
from router.lab.emulator.http.sse import json_value, text_response


def hit_rate(core: EngineCore[Job]) -> float:
    return core.prefix_hits / core.prefix_queries if core.prefix_queries else 0.0


def reused_blocks(core: EngineCore[Job]) -> int:
    return core.prefix_hits // core.kv.block_size


def missed_blocks(core: EngineCore[Job]) -> int:
    return (core.prefix_queries - core.prefix_hits) // core.kv.block_size


def read_gauges(engine: Engine) -> dict[str, float]:
    """The current values of the engine's gauges."""
    core = engine.core
    return {
        "num_requests_running": core.running,
        "num_requests_waiting": core.waiting,
        "kv_cache_utilization": core.kv_reserved / core.kv.num_blocks,
        "kv_cache_hit_rate": hit_rate(core),
        "kv_cache_free_blocks": core.kv.num_blocks - core.kv_reserved,
        "kv_cache_used_blocks": core.kv_reserved,
    }


def render(engine: Engine, gauges: Mapping[str, float]) -> str:
    """The metrics in Prometheus' text format. `gauges` may be values of an earlier moment."""
    core, stats, settings = engine.core, engine.stats, engine.settings
    out = Exposition("trtllm_", {"engine_type": "trtllm", "model_name": settings.models[0]})
    out.gauge("num_requests_running", gauges["num_requests_running"], "Number of active requests")
    out.gauge("num_requests_waiting", gauges["num_requests_waiting"], "Number of queued requests")
    out.gauge("kv_cache_utilization", gauges["kv_cache_utilization"], "KV cache utilization")
    out.gauge("kv_cache_hit_rate", gauges["kv_cache_hit_rate"], "KV cache hit rate")
    out.counter(
        "kv_cache_reused_blocks_total",
        reused_blocks(core),
        "Cumulative number of KV cache blocks reused (cache hits)",
    )
    out.counter(
        "kv_cache_missed_blocks_total",
        missed_blocks(core),
        "Cumulative number of KV cache blocks missed (cache misses)",
    )
    out.gauge(
        "kv_cache_tokens_per_block",
        settings.block_size,
        "Number of tokens per KV cache block",
    )
    out.gauge("kv_cache_max_blocks", settings.num_blocks, "Maximum number of KV cache blocks")
    out.gauge("kv_cache_free_blocks", gauges["kv_cache_free_blocks"], "Free KV cache blocks")
    out.gauge("kv_cache_used_blocks", gauges["kv_cache_used_blocks"], "Used KV cache blocks")
    out.gauge("num_paused_requests", 0, "Number of paused requests")
    out.gauge("max_num_active_requests", settings.max_num_seqs, "Maximum number of active requests")
    out.counter("prompt_tokens_total", core.prompt_tokens, "Number of prompt tokens")
    out.counter("prompt_cached_tokens_total", core.prefix_hits, "Number of cached prompt tokens")
    out.family("request_success_total", "counter", "Count of successfully processed requests.")
    for reason in ("stop", "length"):
        out.sample("request_success_total", stats.ended[reason], finished_reason=reason)
    out.histogram(
        "time_to_first_token_seconds",
        stats.ttft,
        "Histogram of time to first token in seconds.",
    )
    out.histogram(
        "time_per_output_token_seconds",
        stats.per_token,
        "Histogram of time per output token in seconds.",
    )
    out.histogram(
        "e2e_request_latency_seconds",
        stats.whole,
        "Histogram of end to end request latency in seconds.",
    )
    return out.text()


_KEPT = 1000  # maximum number of records that are stored until a client reads them
_METRICS_WAIT_S = 2.0
_LEFT_POLL_S = 1.0  # interval at which TensorRT-LLM checks for disconnected clients
_DEFAULT_PRIORITY = 0.5
_RANKS = 1_000_000  # factor that converts a priority from 0 to 1 to the core's integers

# The fields that TensorRT-LLM accepts in chat and completion requests. It refuses all others.
_KNOWN_FIELDS = """
    model messages prompt stream stream_options max_tokens max_completion_tokens temperature top_p
    top_k min_p n best_of stop seed user tools tool_choice response_format logprobs top_logprobs
    logit_bias presence_penalty frequency_penalty echo suffix ignore_eos min_tokens
    add_generation_prompt continue_final_message add_special_tokens skip_special_tokens
    stop_token_ids include_stop_str_in_output repetition_penalty length_penalty use_beam_search
    spaces_between_special_tokens truncate_prompt_tokens detokenize return_context_logits
    chat_template chat_template_kwargs documents parallel_tool_calls reasoning_effort lora_request
    disaggregated_params store metadata service_tier
"""
_KNOWN = frozenset(_KNOWN_FIELDS.split())
_STRICT_PATHS = ("/v1/chat/completions", "/v1/completions")

_STYLE = Style(
    role_alone=True,
    end_alone=False,
    choice_fields={"stop_reason": None, "disaggregated_params": None},
    stop_field="stop_reason",
    error=None,  # an error closes the connection, without an error event or [DONE]
)


class TrtLlm(FlatPersona):
    style = _STYLE
    name = "trtllm"
    reserves_output = True
    version = "1.3.0"
    owned_by = "tensorrt_llm"
    routes = frozenset({"chat", "completions", "responses"})

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._iterations: deque[dict[str, Any]] = deque(maxlen=_KEPT)
        self._per_request: deque[dict[str, Any]] = deque(maxlen=_KEPT)
        self._news = asyncio.Event()
        self._completed = 0
        self._seen_steps = 0
        self._gauges = read_gauges(self.engine)
        engine.on_step = self._stepped
        engine.on_finished = self._finished
        major, _, rest = self.version.partition(".")
        minor = rest.partition(".")[0]
        is_young = (int(major or 0), int(minor or 0)) >= (1, 3)
        self._known = _KNOWN | {"priority"} if is_young else _KNOWN

    def add_routes(self, router: web.UrlDispatcher, delivery: Killer) -> None:
        router.add_get("/health", self.answer_health)
        router.add_get("/health_generate", self._health_generate)
        router.add_get("/version", self.answer_version)
        router.add_get("/server_info", self._server_info)
        router.add_get("/metrics", self._drain)
        router.add_get("/perf_metrics", self._drain_requests)
        if self.settings.metrics:
            router.add_get("/prometheus/metrics", self._prometheus)

    def model_row(self, model: str, created: int) -> dict[str, Any]:
        return {"id": model, "object": "model", "created": created, "owned_by": self.owned_by}

    # Requests.

    def check_fields(self, raw: bytes, path: str) -> None:
        if path not in _STRICT_PATHS:
            return
        try:
            fields = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        except NOT_JSON:
            return  # `decode` reports the error later
        unknown = [(name, value) for name, value in fields.items() if name not in self._known]
        if "stream_options" in fields:
            unknown += _unknown_options(fields["stream_options"])
        if unknown:
            complaints = ", ".join(
                f"{{'type': 'extra_forbidden', 'loc': ('body', '{name}'), "
                f"'msg': 'Extra inputs are not permitted', 'input': {bytes(value).decode()}}}"
                for name, value in unknown
            )
            raise Refusal(400, f"[{complaints}]", "BadRequestError")

    def rank(self, headers: Mapping[str, str], priority: Any) -> int:
        """The priority for the engine core, from a client's number from 0 to 1.

        A client's higher number is served earlier. The core ignores priorities with `fcfs`.
        """
        if priority is None:
            priority = _DEFAULT_PRIORITY
        try:
            number = msgspec.convert(priority, float, strict=False)
        except msgspec.ValidationError:
            number = -1.0
        if not 0.0 <= number <= 1.0:
            message = (
                "[{'type': 'less_than_equal', 'loc': ('body', 'priority'), "
                f"'msg': 'Input should be within 0 and 1', 'input': {priority!r}}}]"
            )
            raise Refusal(400, message, "BadRequestError")
        return round((1.0 - number) * _RANKS)

    def leaving(self, headers: Mapping[str, str], is_stream: bool, after_s: float) -> Leaving:
        return Leaving(_LEFT_POLL_S - after_s % _LEFT_POLL_S)

    def usage(self, body: Body) -> Usage:
        """When a stream reports its token counts. If a client sends `stream_options`, TensorRT-LLM
        turns on those options that the client does not set to false.
        """
        options = body.stream_options
        if options is None or options.include_usage is False:
            return Usage.NEVER
        return Usage.END if options.continuous_usage_stats is False else Usage.ALWAYS

    # The records of steps and of requests.

    def _stepped(self) -> None:
        core = self.engine.core
        if core.steps_ended == self._seen_steps:
            return
        self._seen_steps = core.steps_ended
        reserved, total = core.kv_reserved, core.kv.num_blocks
        running = core.running
        context = core.prefilling
        self._iterations.append(
            {
                "timestamp": datetime.now().strftime("%m-%d-%Y %H:%M:%S.%f"),
                "iter": core.steps_ended,
                "iterLatencyMS": self.engine.stats.last_token_s * 1e3,
                "gpuMemUsage": 0,
                "cpuMemUsage": 0,
                "pinnedMemUsage": 0,
                "numActiveRequests": running,
                "numQueuedRequests": core.waiting,
                "numCompletedRequests": self._completed,
                "maxNumActiveRequests": self.settings.max_num_seqs,
                "kvCacheStats": {
                    "allocNewBlocks": core.kv.taken,
                    "allocTotalBlocks": core.kv.taken,
                    "cacheHitRate": hit_rate(core),
                    "freeNumBlocks": total - reserved,
                    "maxNumBlocks": total,
                    "missedBlocks": missed_blocks(core),
                    "reusedBlocks": reused_blocks(core),
                    "tokensPerBlock": self.settings.block_size,
                    "usedNumBlocks": reserved,
                },
                "inflightBatchingStats": {
                    "avgNumDecodedTokensPerIter": 1.0 if running > context else 0.0,
                    "microBatchId": 0,
                    "numContextRequests": context,
                    "numCtxTokens": core.step_tokens,
                    "numGenRequests": running - context,
                    "numPausedRequests": 0,
                    "numScheduledRequests": running,
                },
            }
        )
        self._completed = 0
        self._news.set()

    def _finished(self, job: Job) -> None:
        self._completed += 1
        self._gauges = read_gauges(self.engine)
        self._per_request.append(
            {
                "request_id": job.id,
                "perf_metrics": {
                    "first_iter": job.first_step,
                    "last_iter": self.engine.core.steps,
                    "timing_metrics": {
                        "arrival_time": job.arrival,
                        "first_token_time": job.first_token_at,
                        "last_token_time": self.engine.core.clock,
                    },
                },
            }
        )

    # Endpoints.

    async def _drain(self, _: web.Request) -> web.Response:
        """Return the iterations that no earlier call returned."""
        if not self._iterations:
            self._news.clear()
            try:
                async with asyncio.timeout(_METRICS_WAIT_S):
                    await self._news.wait()
            except TimeoutError:
                return json_value([])
        told = list(self._iterations)
        self._iterations.clear()
        return json_value(told)

    async def _drain_requests(self, _: web.Request) -> web.Response:
        told = list(self._per_request)
        self._per_request.clear()
        return json_value(told)

    async def _prometheus(self, _: web.Request) -> web.Response:
        return text_response(self.exposed(), EXPOSITION)

    async def _health_generate(self, _: web.Request) -> web.Response:
        if self.health_status != 200:
            return web.Response(status=self.health_status)
        probe = Job("health-" + str(id(object())), 1, b"", 1, "length")
        self.engine.submit(probe)
        try:
            await probe.done
        finally:
            self.engine.abort(probe)
        return web.Response(status=200)

    async def _server_info(self, _: web.Request) -> web.Response:
        return json_value({"disaggregated_params": None, "version": self.version})

    def exposed(self) -> str:
        return render(self.engine, self._gauges)


def _unknown_options(raw: msgspec.Raw) -> list[tuple[str, msgspec.Raw]]:
    try:
        options = msgspec.json.decode(raw, type=dict[str, msgspec.Raw] | None)
    except NOT_JSON:
        return []
    known = StreamOptions.__struct_fields__
    return [
        (f"stream_options', '{name}", value)
        for name, value in (options or {}).items()
        if name not in known
    ]


PERSONA = TrtLlm
