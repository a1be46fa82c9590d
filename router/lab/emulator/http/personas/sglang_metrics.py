"""SGLang's /metrics, with the names, labels and types of version 0.5.23.

With priority scheduling the gauges of the queue have several samples: one with `priority=""` for
the total, and one for each priority in the queue.
"""

from __future__ import annotations

from collections import Counter

from router.lab.emulator.engine import Engine
from router.lab.emulator.http.personas.exposition import Exposition


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
