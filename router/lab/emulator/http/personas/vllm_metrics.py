"""vLLM's /metrics, with the names, labels and types of version 0.32.

vLLM with several ranks has several API servers. They report the gauges of a rank only after the
rank's first step.
"""

from __future__ import annotations

from time import time

from router.lab.emulator.engine import Engine
from router.lab.emulator.http.personas.exposition import Exposition


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
