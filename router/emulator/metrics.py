"""The engine's /metrics, under vLLM's names, labels and types (0.32)."""

from __future__ import annotations

from router.emulator.engine import Engine

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def _label(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def render(engine: Engine) -> str:
    """Everything at this moment, in the text format."""
    core, settings = engine.core, engine.settings
    model = f'model_name="{_label(settings.models[0])}"'
    who = f'engine="0",{model}'
    lines: list[str] = []

    def family(name: str, kind: str, text: str) -> None:
        lines.append(f"# HELP vllm:{name} {text}")
        lines.append(f"# TYPE vllm:{name} {kind}")

    def plain(name: str, kind: str, value: float, text: str) -> None:
        family(name, kind, text)
        lines.append(f"vllm:{name}{{{who}}} {float(value)}")

    plain(
        "num_requests_running",
        "gauge",
        core.running,
        "Number of requests in model execution batches.",
    )
    plain(
        "num_requests_waiting",
        "gauge",
        core.waiting,
        "Number of requests waiting to be processed.",
    )
    family("num_requests_waiting_by_reason", "gauge", "Number of waiting requests by reason.")
    for reason, count in (("capacity", core.waiting), ("deferred", 0)):
        lines.append(
            f'vllm:num_requests_waiting_by_reason{{{who},reason="{reason}"}} {float(count)}'
        )
    plain(
        "kv_cache_usage_perc",
        "gauge",
        core.kv_usage,
        "KV-cache usage. 1 means 100 percent usage.",
    )
    plain(
        "prefix_cache_queries_total",
        "counter",
        core.prefix_queries,
        "Prefix cache queries, in terms of number of queried tokens.",
    )
    plain(
        "prefix_cache_hits_total",
        "counter",
        core.prefix_hits,
        "Prefix cache hits, in terms of number of cached tokens.",
    )
    plain("num_preemptions_total", "counter", 0, "Cumulative number of preemption from the engine.")
    plain(
        "prompt_tokens_total", "counter", core.prompt_tokens, "Number of prefill tokens processed."
    )
    plain(
        "generation_tokens_total",
        "counter",
        core.generation_tokens,
        "Number of generation tokens processed.",
    )
    family("request_success_total", "counter", "Count of successfully processed requests.")
    for reason, count in engine.ended.items():
        lines.append(
            f'vllm:request_success_total{{engine="0",finished_reason="{reason}",{model}}}'
            f" {float(count)}"
        )
    name = "time_to_first_token_seconds"
    family(name, "histogram", "Histogram of time to first token in seconds.")
    for bound, count in engine.ttft.cumulative():
        lines.append(f'vllm:{name}_bucket{{engine="0",le="{bound}",{model}}} {float(count)}')
    lines.append(f"vllm:{name}_count{{{who}}} {float(engine.ttft.count)}")
    lines.append(f"vllm:{name}_sum{{{who}}} {engine.ttft.sum}")
    family("cache_config_info", "gauge", "Information of the LLMEngine CacheConfig")
    lines.append(
        f'vllm:cache_config_info{{block_size="{settings.block_size}",cache_dtype="auto",'
        f'enable_prefix_caching="{settings.prefix_caching}",engine="0",'
        f'num_gpu_blocks="{settings.num_blocks}",num_gpu_blocks_override="None"}} 1.0'
    )
    return "\n".join(lines) + "\n"
