"""TensorRT-LLM's metrics in Prometheus' text format, with the prefix `trtllm_`.

The gauges are read when a request ends, and keep these values until the next request ends.
"""

from __future__ import annotations

from collections.abc import Mapping

from router.lab.emulator.core.engine_core import EngineCore
from router.lab.emulator.engine import Engine
from router.lab.emulator.http.job import Job
from router.lab.emulator.http.personas.exposition import Exposition


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
