"""SGLang: its gauges per rank and per priority, and `/v1/loads` where its metrics are switched off.

Traps (metrics_collector.py): with priority scheduling a gauge stands once with `priority=""`, the
total, and again per priority; every tensor, pipeline and expert rank may report the same requests.
So: only totals, of the lowest rank of each data-parallel rank, summed over those. The counters of
finished requests are the other way round: each series counts its own, and all together are the sum.

`/health` generates a token and takes a second or more; `/ready` (0.5.23) answers at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from router.fleet.engines.base import (
    INVALID,
    NO_FACTS,
    NOTHING_KNOWN,
    START_TIME,
    Abort,
    Check,
    Engine,
    Facts,
    FactsSource,
    JsonSource,
    Known,
    Marks,
    Odd,
    TextSource,
    count,
    mapping,
    share,
    text,
    times,
    whole,
)
from router.fleet.engines.exposition import Sample, Samples
from router.fleet.signals import Signals

RUNNING = "num_running_reqs"
QUEUE = "num_queue_reqs"
# What else waits: for a grammar, and under prefill/decode disaggregation for the other side.
MORE_QUEUES = (
    "num_grammar_queue_reqs",
    "num_prefill_bootstrap_queue_reqs",
    "num_prefill_prealloc_queue_reqs",  # its name before
    "num_prefill_inflight_queue_reqs",
    "num_decode_prealloc_queue_reqs",
    "num_decode_transfer_queue_reqs",
)
USAGE = "token_usage"
KV_TOKENS = "max_total_num_tokens"
PAGE_SIZE = "page_size"  # 0.5.14 and later
PAGES = "num_pages"
CACHE = "cache_config_info"  # 0.5.9 to 0.5.13: both of them as labels
PROMPT_TOKENS = "prompt_tokens_total"
GENERATED = "generation_tokens_total"
CACHED = "cached_tokens_total"
RETRACTED = "num_retracted_requests_total"

_SHORT = (
    *(RUNNING, QUEUE, *MORE_QUEUES, USAGE, KV_TOKENS, PAGE_SIZE, PAGES, CACHE),
    *(PROMPT_TOKENS, GENERATED, CACHED, RETRACTED),
)


def _both(short: str) -> tuple[str, str]:
    """A name as SGLang writes it, and as collectors rewrite it that allow no colon."""
    return f"sglang:{short}", f"sglang_{short}"


NAMES = tuple(name for short in _SHORT for name in _both(short))


def read(samples: Samples, known: Known = NOTHING_KNOWN) -> Signals:
    """A page of /metrics."""
    waiting = _gauge(samples, QUEUE)
    for short in MORE_QUEUES:
        if waiting is not None and samples.series(*_both(short))[1]:
            more = _gauge(samples, short)
            waiting = None if more is None else waiting + more
    usage_name, usage = samples.series(*_both(USAGE))
    block_tokens = _page_size(samples)
    kv_tokens = _gauge(samples, KV_TOKENS)
    if kv_tokens is None:
        kv_tokens = times(_pages(samples), block_tokens)
    return Signals(
        running=_gauge(samples, RUNNING),
        waiting=waiting,
        kv_usage=samples.largest_share(usage_name, _of_lowest_ranks(_totals(usage))),
        kv_tokens=kv_tokens or None,
        block_tokens=block_tokens,
        started_at=samples.moment(START_TIME),
        prompt_tokens=samples.total(*_both(PROMPT_TOKENS)),
        generated_tokens=samples.total(*_both(GENERATED)),
        cache_queries=samples.total(*_both(PROMPT_TOKENS)),
        cache_hits=samples.total(*_both(CACHED)),
        preemptions=_gauge(samples, RETRACTED),
    )


def _gauge(samples: Samples, short: str) -> int | None:
    name, found = samples.series(*_both(short))
    return samples.sum_of(name, _of_lowest_ranks(_totals(found)))


def _totals(samples: Sequence[Sample]) -> list[Sample]:
    return [sample for sample in samples if not sample.labels.get("priority")]


def _of_lowest_ranks(samples: Sequence[Sample]) -> list[Sample]:
    """Of each data-parallel rank the samples of its lowest pipeline, tensor and expert rank."""
    lowest: dict[str, tuple[int, int, int]] = {}
    for sample in samples:
        dp, rank = sample.labels.get("dp_rank", ""), _rank(sample)
        if dp not in lowest or rank < lowest[dp]:
            lowest[dp] = rank
    return [s for s in samples if _rank(s) == lowest[s.labels.get("dp_rank", "")]]


def _rank(sample: Sample) -> tuple[int, int, int]:
    labels = sample.labels
    return (
        whole(labels.get("pp_rank")) or 0,
        whole(labels.get("tp_rank")) or 0,
        whole(labels.get("moe_ep_rank")) or 0,
    )


def _page_size(samples: Samples) -> int | None:
    name, found = samples.series(*_both(PAGE_SIZE))
    if found:  # the same for every rank
        return samples.sum_of(name, _of_lowest_ranks(_totals(found))[:1]) or None
    return next((n for s in _infos(samples) if (n := whole(s.labels.get("page_size")))), None)


def _pages(samples: Samples) -> int | None:
    if samples.series(*_both(PAGES))[1]:
        return _gauge(samples, PAGES)
    numbers = [whole(s.labels.get("num_pages")) for s in _infos(samples)]
    known = [number for number in numbers if number]
    return sum(known) if known and len(known) == len(numbers) else None


def _infos(samples: Samples) -> list[Sample]:
    return _of_lowest_ranks(_totals(samples.series(*_both(CACHE))[1]))


def read_loads(document: Any, known: Known, odd: Odd) -> Signals | None:
    """An answer of /v1/loads, one entry per data-parallel rank (0.5.9 and later)."""
    loads = mapping(document).get("loads")
    if not isinstance(loads, list) or not all(isinstance(load, dict) for load in loads):
        return None
    return Signals(
        running=_sum(loads, "num_running_reqs", odd),
        waiting=_waiting_of(loads, odd),
        kv_usage=_largest(loads, "token_usage", odd),
        kv_tokens=_sum(loads, "max_total_num_tokens", odd) or None,
        slots=_sum(loads, "max_running_requests", odd) or None,
    )


def _sum(loads: Sequence[dict[str, Any]], name: str, odd: Odd) -> int | None:
    numbers = [count(load.get(name), name, odd) for load in loads]
    known = [number for number in numbers if number is not None]
    return sum(known) if known and len(known) == len(numbers) else None


def _waiting_of(loads: Sequence[dict[str, Any]], odd: Odd) -> int | None:
    waiting = _sum(loads, "num_waiting_reqs", odd)
    grammars = [mapping(load.get("queues")).get("grammar") for load in loads]
    for grammar in grammars:
        if waiting is not None and grammar is not None:
            more = count(grammar, "grammar", odd)
            waiting = None if more is None else waiting + more
    return waiting


def _largest(loads: Sequence[dict[str, Any]], name: str, odd: Odd) -> float | None:
    shares = [share(load.get(name), name, odd) for load in loads]
    known = [number for number in shares if number is not None]
    return max(known) if known and len(known) == len(shares) else None


def read_server_info(document: Any) -> Facts:
    """The answer of /server_info: its arguments and, in new versions, where KV events are."""
    info = mapping(document)
    if not info:
        return NO_FACTS
    odd: Odd = set()
    by_priority = info.get("enable_priority_scheduling")
    low_first = info.get("schedule_low_priority_values_first")
    metrics_on = info.get("enable_metrics")
    return Facts(
        slots=_slots(info, odd),
        kv_tokens=count(info.get("max_total_num_tokens"), "kv_tokens", odd) or None,
        block_tokens=count(info.get("page_size"), "page_size", odd) or None,
        context_tokens=count(info.get("context_length"), "context_length", odd) or None,
        version=text(info.get("version")),
        by_priority=by_priority if isinstance(by_priority, bool) else None,
        low_first=low_first if isinstance(low_first, bool) else None,
        metrics_on=metrics_on if isinstance(metrics_on, bool) else None,
    )


def _slots(info: dict[str, Any], odd: Odd) -> int | None:
    """What its schedulers run at once, one a data-parallel rank, else the argument that asks for
    it, which is usually not given."""
    states = info.get("internal_states")
    if isinstance(states, list):
        name = "effective_max_running_requests_per_dp"
        slots = _sum([mapping(state) for state in states], name, odd)
        if slots:
            return slots
    return count(info.get("max_running_requests"), "slots", odd) or None


def _is_server_info(document: Any) -> bool:
    """TensorRT-LLM has this path, too, and none of these arguments."""
    if document is INVALID:
        return False
    keys = mapping(document).keys()
    return bool(keys & {"mem_fraction_static", "disable_radix_cache", "schedule_conservativeness"})


SGLANG = Engine(
    name="sglang",
    marks=Marks(
        owned_by="sglang",
        metrics=(b"sglang:", b"sglang_"),
        answers={"/server_info": _is_server_info},
    ),
    sources=(
        TextSource("/metrics", NAMES, read),
        JsonSource("/v1/loads?include=core", read_loads),
    ),
    health=(
        Check("/ready", only=frozenset({200, 503})),
        Check("/health", timeout_s=5.0),
    ),
    facts=FactsSource("/server_info", read_server_info),
    abort=Abort("POST", "/abort_request", "rid", is_prefix=True),
    names_adapters=True,
)
