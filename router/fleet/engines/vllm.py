"""vLLM: reads the metrics of every version from V0 (0.9) to 0.32, and defines its paths and fields.

The `engine` label is a data-parallel rank. Requests and blocks are summed over the ranks; the KV
usage is the maximum over the ranks, which is safe for admission. If the router chooses the rank
(`data_parallel.py`), each rank is read for itself. Requests that wait for something other than a
slot do not count as waiting, if the engine reports them separately (0.21 and later).

With several ranks, vLLM starts as many API servers by default, and merges their metrics. Such a
page has no start time of the process, and has a gauge of a rank only after the rank's first step.

Priorities: vLLM accepts any integer; lower numbers are served first, and 0 is the default. The
default is more urgent than every virtual deadline, so the router sends a number with every request.
vLLM does not report whether it schedules by priority; if it does not, it ignores the number. With
`replicas[].priority: none` no number is sent. Numbers are tenths of a second; they stay below 2**31
until 2032, and vLLM accepts 64 bits.

KV events: `/kv_event_sources` (0.30 and later) lists the publishers by data-parallel rank.
"""

from __future__ import annotations

from typing import Any, Final

from router.core.numbers import whole_number
from router.fleet.engines.common.base import (
    MOST_RANKS,
    NOTHING_KNOWN,
    START_TIME,
    Known,
    Marks,
    Ranks,
    TextSource,
    decoded,
    mapping,
    whole,
)
from router.fleet.engines.common.counters import Counters
from router.fleet.engines.common.descriptor import (
    Adapters,
    Blocked,
    Engine,
    UsageAsk,
    native,
    paths,
)
from router.fleet.engines.common.exposition import Sample, Samples
from router.fleet.engines.common.priority import Deadlines
from router.fleet.engines.common.publishers import (
    Publisher,
    Source,
    bound,
    topic_of,
)
from router.fleet.signals import Signals

RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
SWAPPED = "vllm:num_requests_swapped"  # V0: requests that were swapped out to CPU memory.
BY_REASON = "vllm:num_requests_waiting_by_reason"  # Present in version 0.21 and later.
KV_USAGE = "vllm:kv_cache_usage_perc"  # Present in version 0.10 and later.
KV_USAGE_OLD = "vllm:gpu_cache_usage_perc"  # Present up to version 0.11.
QUERIES = "vllm:prefix_cache_queries_total"
QUERIES_OLD = "vllm:gpu_prefix_cache_queries_total"
HITS = "vllm:prefix_cache_hits_total"
HITS_OLD = "vllm:gpu_prefix_cache_hits_total"
PREEMPTIONS = "vllm:num_preemptions_total"
PROMPT_TOKENS = "vllm:prompt_tokens_total"
GENERATED = "vllm:generation_tokens_total"
SLEEP = "vllm:engine_sleep_state"  # Present in version 0.13 and later.
CACHE = "vllm:cache_config_info"
LORA = "vllm:lora_requests_info"

NAMES = (
    *(RUNNING, WAITING, SWAPPED, BY_REASON, KV_USAGE, KV_USAGE_OLD),
    *(QUERIES, QUERIES_OLD, HITS, HITS_OLD, PREEMPTIONS, PROMPT_TOKENS, GENERATED),
    *(SLEEP, CACHE, LORA),
)


def read(samples: Samples, known: Known = NOTHING_KNOWN) -> Signals:
    """Read a page of /metrics."""
    kv_name, kv = samples.series(KV_USAGE, KV_USAGE_OLD)
    block_tokens, kv_tokens = _cache(samples)
    is_unused = _is_unused(samples)
    return Signals(
        running=0 if is_unused else samples.total(RUNNING),
        waiting=0 if is_unused else _waiting(samples),
        kv_usage=0.0 if is_unused else samples.largest_share(kv_name, kv),
        kv_tokens=kv_tokens,
        block_tokens=block_tokens,
        asleep=_is_asleep(samples),
        adapters=_adapters(samples),
        adapter_slots=_adapter_slots(samples),
        started_at=samples.moment(START_TIME),
        prompt_tokens=samples.total(PROMPT_TOKENS),
        generated_tokens=samples.total(GENERATED),
        cache_queries=samples.total(QUERIES, QUERIES_OLD),
        cache_hits=samples.total(HITS, HITS_OLD),
        preemptions=samples.total(PREEMPTIONS),
    )


def _ranks(samples: Samples) -> range:
    """Return the data-parallel ranks that a request header can choose.

    vLLM reads the header from version 0.13 on, which is also the first with the sleep state. All
    ranks have a sleep state from the start, but not the other gauges.
    """
    return samples.numbers("engine", SLEEP)


def _is_unused(samples: Samples) -> bool:
    """Return whether the gauges are absent because the engine has not processed a request yet.

    The counters are on the page from the start.
    """
    return (
        not samples.series(RUNNING)[1]
        and samples.total(PROMPT_TOKENS) == 0
        and samples.total(GENERATED) == 0
    )


def _waiting(samples: Samples) -> int | None:
    name, by_reason = samples.series(BY_REASON)
    # A series with unreadable labels also counts as a series with the reason "capacity".
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
    """Return the number of tokens of one KV block, and of the KV caches of all ranks in `samples`.

    Each rank has a series with the same labels. `kv_cache_size_tokens` (present in 0.32) is the
    size of one cache. `num_gpu_blocks` is the sum of all ranks of the page. A series may have
    `None` for an unknown value, while another series has the known value.
    """
    ranks, sizes = set(), set()
    blocks: int | None = None
    tokens: int | None = None
    for sample in samples.series(CACHE)[1]:
        ranks.add(sample.labels.get("engine", ""))
        blocks = whole(sample.labels.get("num_gpu_blocks")) or blocks
        tokens = whole(sample.labels.get("kv_cache_size_tokens")) or tokens
        size = whole(sample.labels.get("block_size"))
        if size:
            sizes.add(size)
    if len(sizes) != 1:
        return None, None
    size = sizes.pop()
    if tokens is None and blocks is not None:
        tokens = blocks * size // (samples.page_ranks or len(ranks))
    return size, tokens * len(ranks) if tokens else None


def _adapters(samples: Samples) -> frozenset[str]:
    """Return the adapters named in the newest series of the metric.

    The value of a series is its time, and old series stay on the page.
    """
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


def _adapter_slots(samples: Samples) -> int | None:
    """Return the largest `max_lora`; the metric is absent while no request has used an adapter."""
    found = [whole(sample.labels.get("max_lora")) for sample in samples.series(LORA)[1]]
    return max([number for number in found if number], default=None)


# -- priorities ------------------------------------------------------------------------------------

DIALECT: Final = Deadlines(
    "vllm",
    frozenset(
        {
            b"/v1/chat/completions",
            b"/v1/completions",
            b"/v1/responses",
            b"/v1/embeddings",
            b"/pooling",
            b"/classify",
            b"/score",
            b"/v1/score",
            b"/rerank",
            b"/v1/rerank",
            b"/v2/rerank",
            b"/inference/v1/generate",
        }
    ),
    # A /v1/messages request can have its priority number only in a header (from about 0.27 on).
    header=b"x-vllm-priority",
    header_paths=frozenset({b"/v1/messages"}),
    refusal=400,
    # The error messages by which vLLM V0 and the first V1 versions reject priorities.
    refusals=(rb"priority scheduling is not enabled|does not support priority",),
    absent=b"0",
)

# -- KV events -------------------------------------------------------------------------------------


def read_event_sources(raw: bytes, host: str) -> list[Source]:
    """Return the publishers in an answer of /kv_event_sources (vLLM 0.30 and later), by
    data-parallel rank."""
    answer = mapping(decoded(raw))
    entries: dict[int, dict[str, Any]] = {}
    for name, value in answer.items():
        number = whole_number(name, 5)
        if isinstance(value, dict) and number is not None:
            entries[number] = value
    found = []
    # The data-parallel rank r publishes on port + r. If all entries have the same port, the rank is
    # added to the port here.
    shared = len({str(entry.get("endpoint")) for entry in entries.values()}) == 1
    for rank, entry in sorted(entries.items())[:MOST_RANKS]:
        if entry.get("enable_kv_cache_events") is False or entry.get("publisher") != "zmq":
            continue
        shift = rank if shared else 0
        endpoint = bound(entry.get("endpoint"), host, shift)
        if endpoint is not None:
            replay = bound(entry.get("replay_endpoint"), host, shift)
            found.append(Source(endpoint, replay, topic_of(entry), rank))
    return found


ENGINE: Final = Engine(
    "vllm",
    marks=Marks(order=1, owned_by="vllm", metrics=(b"vllm:",)),
    sources=(
        TextSource("/metrics", NAMES, read, ranks=Ranks("engine", _ranks, frozenset({LORA}))),
    ),
    counts_live=True,
    native=[
        *native("chat", "/cohere/v2/chat", events=True),
        *native("embeddings", "/v2/embed"),
        *native("rerank", "/rerank", "/v2/rerank"),
        *native("score", "/v1/score", "/score", "/generative_scoring"),
        *native("pooling", "/pooling", "/classify"),
        *native("tokenize", "/tokenize", "/detokenize", light=True),
        *native("generate", "/inference/v1/generate", "/invocations"),
    ],
    blocked=Blocked(
        control=paths(
            "/abort_requests /collective_rpc /finish_weight_update /get_world_size",
            "/inference/v1/abort_requests /init_weight_transfer_engine /is_paused",
            "/is_scaling_elastic_ep /is_sleeping /kv_event_sources /load /metrics /pause",
            "/reset_encoder_cache /reset_mm_cache /reset_prefix_cache /resume /scale_elastic_ep",
            "/server_info /sleep /start_profile /start_weight_update /stop_profile /update_weights",
            "/v1/load_lora_adapter /v1/unload_lora_adapter /wake_up",
        ),
        control_below=(b"/fault_tolerance/",),
        private_headers=frozenset({b"x-vllm-priority", b"x-data-parallel-rank"}),
        private_members=frozenset({"kv_transfer_params", "ec_transfer_params"}),
        # `sampling_params.extra_args` on /inference/v1/generate, `vllm_xargs` elsewhere; in a form,
        # `vllm_xargs` is a JSON text.
        member_nests=frozenset({"vllm_xargs", "sampling_params", "extra_args"}),
    ),
    refuses_models=True,
    adapters=Adapters({}),  # vLLM reads `model` on every path.
    dialect=DIALECT,
    # vLLM's defaults of StreamOptions: include_usage True, continuous_usage_stats False (see its
    # `should_include_usage`).
    usage_ask=UsageAsk(
        b'{"include_usage":true}', asks_by_default=True, continuous_needs_usage=True
    ),
    continues=True,
    tokenize="/tokenize",
    publisher=Publisher("/kv_event_sources", read_event_sources),
    counters=Counters(
        model="model_name",
        requests="vllm:request_success_total",
        prompt="vllm:prompt_tokens_total",
        cached="vllm:prefix_cache_hits_total",
        output="vllm:generation_tokens_total",
        waiting="vllm:num_requests_waiting",
        waiting_by_model=True,
        running="vllm:num_requests_running",
    ),
    # The Python front end of 0.32 does; the front end in Rust does not.
    local_ranks_at="uvicorn",
)
