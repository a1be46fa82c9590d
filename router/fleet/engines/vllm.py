"""vLLM: metric names of every generation from V0 (0.9) to 0.32, and the load it tells in a header.

The `engine` label is a data-parallel rank: requests and blocks are summed, the KV usage is the
largest (safe for admission). Counts of what waits leave out what waits for something other than a
slot, where the engine tells them apart (0.21 and later).
"""

from __future__ import annotations

from router.fleet.engines.base import (
    NOTHING_KNOWN,
    START_TIME,
    Abort,
    Engine,
    Known,
    Marks,
    Odd,
    TextSource,
    count,
    decoded,
    mapping,
    share,
    whole,
)
from router.fleet.engines.exposition import Sample, Samples
from router.fleet.signals import NO_SIGNALS, Signals

RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
SWAPPED = "vllm:num_requests_swapped"  # V0: preempted to the CPU
BY_REASON = "vllm:num_requests_waiting_by_reason"  # 0.21 and later
KV_USAGE = "vllm:kv_cache_usage_perc"  # 0.10 and later
KV_USAGE_OLD = "vllm:gpu_cache_usage_perc"  # up to 0.11
QUERIES = "vllm:prefix_cache_queries_total"
QUERIES_OLD = "vllm:gpu_prefix_cache_queries_total"
HITS = "vllm:prefix_cache_hits_total"
HITS_OLD = "vllm:gpu_prefix_cache_hits_total"
PREEMPTIONS = "vllm:num_preemptions_total"
PROMPT_TOKENS = "vllm:prompt_tokens_total"
GENERATED = "vllm:generation_tokens_total"
SLEEP = "vllm:engine_sleep_state"  # 0.13 and later
CACHE = "vllm:cache_config_info"
LORA = "vllm:lora_requests_info"

NAMES = (
    *(RUNNING, WAITING, SWAPPED, BY_REASON, KV_USAGE, KV_USAGE_OLD),
    *(QUERIES, QUERIES_OLD, HITS, HITS_OLD, PREEMPTIONS, PROMPT_TOKENS, GENERATED),
    *(SLEEP, CACHE, LORA),
)


def read(samples: Samples, known: Known = NOTHING_KNOWN) -> Signals:
    """A page of /metrics."""
    kv_name, kv = samples.series(KV_USAGE, KV_USAGE_OLD)
    block_tokens, kv_tokens = _cache(samples)
    return Signals(
        running=samples.total(RUNNING),
        waiting=_waiting(samples),
        kv_usage=samples.largest_share(kv_name, kv),
        kv_tokens=kv_tokens,
        block_tokens=block_tokens,
        asleep=_is_asleep(samples),
        adapters=_adapters(samples),
        started_at=samples.moment(START_TIME),
        prompt_tokens=samples.total(PROMPT_TOKENS),
        generated_tokens=samples.total(GENERATED),
        cache_queries=samples.total(QUERIES, QUERIES_OLD),
        cache_hits=samples.total(HITS, HITS_OLD),
        preemptions=samples.total(PREEMPTIONS),
    )


def _waiting(samples: Samples) -> int | None:
    name, by_reason = samples.series(BY_REASON)
    # One whose labels cannot be read may be about capacity, too.
    capacity = [s for s in by_reason if s.labels.get("reason", "capacity") == "capacity"]
    if capacity:
        return samples.sum_of(name, capacity)
    waiting = samples.total(WAITING)
    if samples.series(SWAPPED)[1]:
        swapped = samples.total(SWAPPED)
        return None if waiting is None or swapped is None else waiting + swapped
    return waiting


def _is_asleep(samples: Samples) -> bool:
    return any(
        sample.value == 0.0 and sample.labels.get("sleep_state") == "awake"
        for sample in samples.series(SLEEP)[1]
    )


def _cache(samples: Samples) -> tuple[int | None, int | None]:
    """Tokens of a block and of all blocks. Some front ends write `None` for what they do not know,
    beside another series of the same engine that knows."""
    blocks: dict[str, int | None] = {}
    sizes = set()
    for sample in samples.series(CACHE)[1]:
        engine = sample.labels.get("engine", "")
        found = whole(sample.labels.get("num_gpu_blocks"))
        blocks[engine] = max(filter(None, (blocks.get(engine), found)), default=None)
        size = whole(sample.labels.get("block_size"))
        if size:
            sizes.add(size)
    if len(sizes) != 1:
        return None, None
    size = sizes.pop()
    known = [number for number in blocks.values() if number]
    return size, sum(known) * size if len(known) == len(blocks) else None


def _adapters(samples: Samples) -> frozenset[str]:
    """Those of the newest series: the value is a time, and series of before stay on the page."""
    newest: Sample | None = None
    for sample in samples.series(LORA)[1]:
        if sample.value is not None and (
            newest is None or newest.value is None or sample.value > newest.value
        ):
            newest = sample
    if newest is None:
        return frozenset()
    names = newest.labels.get("running_lora_adapters", "").split(",")
    return frozenset(name.strip() for name in names if name.strip())


def read_load_header(value: bytes, odd: Odd | None = None) -> Signals:
    """The response header `endpoint-load-metrics` (ORCA), as TEXT or JSON, 0.13 and later.

    It tells what waits and the KV usage, nothing else. Under data parallelism TEXT names them once
    per engine, JSON keeps only the last.
    """
    doubts: Odd = set() if odd is None else odd
    waiting: list[int | None] = []
    usage: list[float | None] = []

    def take(name: str, figure: object) -> None:
        if name == "num_requests_waiting":
            waiting.append(count(figure, "header:" + name, doubts))
        elif name == "kv_cache_usage_perc":
            usage.append(share(figure, "header:" + name, doubts))

    form, _, rest = value.strip().partition(b" ")
    if form == b"JSON":
        for name, figure in mapping(mapping(decoded(rest)).get("named_metrics")).items():
            take(name, figure)
    elif form == b"TEXT":
        for part in rest.decode("latin-1").split(","):
            name, _, figure = part.strip().partition("=")
            try:
                take(name.removeprefix("named_metrics."), float(figure))
            except ValueError:
                take(name.removeprefix("named_metrics."), figure)
    else:
        return NO_SIGNALS
    counts = [number for number in waiting if number is not None]
    shares = [number for number in usage if number is not None]
    return Signals(
        waiting=sum(counts) if counts and len(counts) == len(waiting) else None,
        kv_usage=max(shares) if shares and len(shares) == len(usage) else None,
    )


VLLM = Engine(
    name="vllm",
    marks=Marks(owned_by="vllm", metrics=(b"vllm:",)),
    sources=(TextSource("/metrics", NAMES, read),),
    abort=Abort("POST", "/abort_requests", "request_ids", is_list=True, is_optional=True),
    counts_live=True,
    refuses_models=True,
)
