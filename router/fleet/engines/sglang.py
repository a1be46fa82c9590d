"""SGLang: reads its page of metrics, or `/v1/loads` if the engine runs without metrics.

Special cases (metrics_collector.py): with priority scheduling a gauge appears once with
`priority=""`, which is the total, and again for each priority. Every tensor, pipeline and expert
rank may report the same requests. So only the totals of the lowest rank of each data-parallel rank
are added up. For counters of finished requests, all series are added up, because each series counts
other requests.

`/health` generates a token and takes a second or more; `/ready` (0.5.23) answers at once.

Priorities: SGLang accepts any integer; higher numbers are served first. A client's 0 counts as
normal. With --schedule-low-priority-values-first, lower numbers are served first (`low_first`). A
request without a number gets the worst possible number, so the router sends a number with every
request. A new request preempts a running request whose number is worse by more than 10 (the default
of --priority-scheduling-preemption-threshold). The router chooses the numbers so that each class
preempts the next less urgent class, and no request preempts another of its own class. Requests with
equal numbers are served in the order in which they came to the engine (0.5.23,
`_sort_by_priority_and_fcfs`).

With --enable-metrics, each number becomes a Prometheus label and all labels are kept (0.5.23;
sglang issue 20814). So an engine with metrics gets numbers without the arrival time, which have few
values. If the setting is unknown, the router assumes that metrics are on.

Abort: a request has an ID (`rid`), and is aborted when the ID is posted to /abort_request. Versions
0.5.14 to 0.5.19 need this. When the connection of a stream closes, these versions forget the ID at
once, but the scheduler continues to the last token. The scheduler aborts all requests whose ID
begins with the posted ID.

KV events: the router reads `kv_events` of /server_info, one port for each data-parallel rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from router.core.urgency import CRITICAL, NORMAL, class_of
from router.fleet.engines.common.base import (
    INVALID,
    MOST_RANKS,
    NO_FACTS,
    NOTHING_KNOWN,
    START_TIME,
    Check,
    Facts,
    FactsSource,
    JsonSource,
    Known,
    Marks,
    Odd,
    Ranks,
    TextSource,
    count,
    decoded,
    mapping,
    share,
    text,
    times,
    whole,
)
from router.fleet.engines.common.descriptor import (
    Abort,
    Adapters,
    Blocked,
    Engine,
    UsageAsk,
    native,
    paths,
)
from router.fleet.engines.common.exposition import Sample, Samples
from router.fleet.engines.common.priority import (
    CRITICAL_AHEAD_S,
    EPOCH,
    LEAST_LEVEL_S,
    Dialect,
    lower_first,
)
from router.fleet.engines.common.publishers import (
    WILDCARDS,
    Publisher,
    Source,
    of_rank,
    topic_of,
)
from router.fleet.signals import Signals

RUNNING = "num_running_reqs"
QUEUE = "num_queue_reqs"
# Metrics of other queues: of requests that wait for their grammar, and of requests that wait in
# prefill/decode disaggregation.
MORE_QUEUES = (
    "num_grammar_queue_reqs",
    "num_prefill_bootstrap_queue_reqs",
    "num_prefill_prealloc_queue_reqs",  # Former name of the bootstrap queue.
    "num_prefill_inflight_queue_reqs",
    "num_decode_prealloc_queue_reqs",
    "num_decode_transfer_queue_reqs",
)
USAGE = "token_usage"
KV_TOKENS = "max_total_num_tokens"
PAGE_SIZE = "page_size"  # Present in version 0.5.14 and later.
PAGES = "num_pages"
# Versions 0.5.9 to 0.5.13 have the page size and the number of pages as labels of this metric.
CACHE = "cache_config_info"
ADAPTER_SLOTS = "lora_pool_slots_total"
PROMPT_TOKENS = "prompt_tokens_total"
GENERATED = "generation_tokens_total"
CACHED = "cached_tokens_total"
RETRACTED = "num_retracted_requests_total"

_SHORT = (
    *(RUNNING, QUEUE, *MORE_QUEUES, USAGE, KV_TOKENS, PAGE_SIZE, PAGES, CACHE),
    *(PROMPT_TOKENS, GENERATED, CACHED, RETRACTED, ADAPTER_SLOTS),
)


def _both(short: str) -> tuple[str, str]:
    """Return a name as SGLang writes it, and as written by collectors that replace the colon."""
    return f"sglang:{short}", f"sglang_{short}"


NAMES = tuple(name for short in _SHORT for name in _both(short))


def read(samples: Samples, known: Known = NOTHING_KNOWN) -> Signals:
    """Read a page of /metrics."""
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
        adapter_slots=_largest_gauge(samples, ADAPTER_SLOTS) or None,
        started_at=samples.moment(START_TIME),
        prompt_tokens=samples.total(*_both(PROMPT_TOKENS)),
        generated_tokens=samples.total(*_both(GENERATED)),
        cache_queries=samples.total(*_both(PROMPT_TOKENS)),
        cache_hits=samples.total(*_both(CACHED)),
        preemptions=_gauge(samples, RETRACTED),
    )


def _ranks(samples: Samples) -> range:
    """Return the data-parallel ranks that a request header can choose.

    The label is present only if there are several. Older versions than `_RANKS_SINCE` have no page
    size.
    """
    has_page_size = bool(samples.series(*_both(PAGE_SIZE))[1])
    return samples.numbers("dp_rank", *_both(RUNNING)) if has_page_size else range(0)


_RANKS_SINCE: Final = (0, 5, 14)  # The first version whose ranks are routed to.
_RANKS: Final = Ranks("dp_rank", _ranks, frozenset(_both(ADAPTER_SLOTS)))


def _split_loads(document: Any) -> dict[int, Any]:
    """Return the loads of each data-parallel rank as a document of its own, by its number.

    The result is empty if a request header cannot choose the rank.
    """
    loads = mapping(document).get("loads")
    version = text(mapping(document).get("version")) or ""
    numbers = [whole(part) for part in version.split(".")[:3]]
    is_recent = None not in numbers and tuple(number or 0 for number in numbers) >= _RANKS_SINCE
    if not isinstance(loads, list) or not is_recent:
        return {}
    by_rank = {mapping(load).get("dp_rank"): load for load in loads}
    first = min([rank for rank in by_rank if type(rank) is int and rank >= 0], default=0)
    ranks = range(first, first + len(loads))
    if by_rank.keys() != {*ranks}:
        return {}
    return {rank: {"loads": [by_rank[rank]]} for rank in ranks}


def _gauge(samples: Samples, short: str) -> int | None:
    name, found = samples.series(*_both(short))
    return samples.sum_of(name, _of_lowest_ranks(_totals(found)))


def _largest_gauge(samples: Samples, short: str) -> int | None:
    """Return the largest value of a gauge that each data-parallel rank has for itself."""
    name, found = samples.series(*_both(short))
    each = [samples.sum_of(name, [sample]) for sample in _of_lowest_ranks(_totals(found))]
    return max([number for number in each if number is not None], default=None)


def _totals(samples: Sequence[Sample]) -> list[Sample]:
    return [sample for sample in samples if not sample.labels.get("priority")]


def _of_lowest_ranks(samples: Sequence[Sample]) -> list[Sample]:
    """Return the samples of the lowest pipeline, tensor and expert rank of each data-parallel
    rank."""
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
    if found:  # The value is equal for all ranks, so one sample is enough.
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
    """Read an answer of /v1/loads, with one entry per data-parallel rank (0.5.9 and later)."""
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
    """Read the answer of /server_info, which contains the engine's arguments."""
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
    """Return the number of requests that all schedulers run at once (there is one per data-parallel
    rank).

    If the schedulers do not report their numbers, the engine's argument is used, which is usually
    not set.
    """
    states = info.get("internal_states")
    if isinstance(states, list):
        name = "effective_max_running_requests_per_dp"
        slots = _sum([mapping(state) for state in states], name, odd)
        if slots:
            return slots
    return count(info.get("max_running_requests"), "slots", odd) or None


def _is_server_info(document: Any) -> bool:
    """Whether an answer of /server_info is SGLang's.

    TensorRT-LLM has this path, too, but not these arguments.
    """
    if document is INVALID:
        return False
    keys = mapping(document).keys()
    return bool(keys & {"mem_fraction_static", "disable_radix_cache", "schedule_conservativeness"})


# -- priorities ------------------------------------------------------------------------------------

_UNIT_S: Final = 15.0
# The minimum distance between the centres of the priority numbers of two classes. So numbers of two
# classes differ by at least 12.
_CLASS: Final = 20.0
# The range of the priority numbers in one class. It is below the preemption threshold of 10.
_WITHIN: Final = 8.0


def number(urgency: float, arrived: float, level: float) -> int:
    """Return the priority number in a form where lower is more urgent.

    With `arrived` = EPOCH, the number does not contain the arrival time.
    """
    rank = class_of(urgency)
    gap = max(_CLASS, level / _UNIT_S)
    units = (arrived - EPOCH) / _UNIT_S
    units += (rank - NORMAL) * gap + (urgency - rank) * _WITHIN
    if rank == CRITICAL:
        units -= CRITICAL_AHEAD_S / _UNIT_S
    return round(units)


_PRIORITY_PATHS: Final = frozenset(
    {
        b"/v1/chat/completions",
        b"/v1/completions",
        b"/v1/embeddings",
        b"/classify",
        b"/v1/classify",
        b"/generate",
        b"/encode",
    }
)
# The text of SGLang's error with --abort-on-priority-when-disabled.
_REFUSALS: Final = (rb"using priority is disabled",)


class _Numbers(Dialect):
    """`sign`: 1: lower numbers are served first; -1: higher ones are."""

    def __init__(self, name: str, sign: int) -> None:
        super().__init__(name, _PRIORITY_PATHS, refusal=503, refusals=_REFUSALS)
        self._sign = sign

    def read(self, number: float) -> float:
        return lower_first(self._sign * number)

    def write(self, urgency: float, arrived: float, level: float, is_bounded: bool) -> bytes:
        if is_bounded:
            arrived, level = EPOCH, LEAST_LEVEL_S
        return b"%d" % (self._sign * number(urgency, arrived, level))


HIGH_FIRST: Final = _Numbers("sglang", -1)
LOW_FIRST: Final = _Numbers("sglang-low-first", 1)

# -- KV events -------------------------------------------------------------------------------------


def read_kv_events(raw: bytes, host: str) -> list[Source]:
    """Return the publishers in the answer of /server_info: `kv_events`, one port for each rank."""
    entry = mapping(decoded(raw)).get("kv_events")
    if not isinstance(entry, dict) or entry.get("publisher") != "zmq":
        return []
    named, ranks = entry.get("endpoint_host"), entry.get("dp_size")
    if named is not None and not isinstance(named, str):
        return []
    if not named or named in WILDCARDS:
        named = host
    found = []
    for rank in range(min(ranks, MOST_RANKS) if type(ranks) is int and ranks > 0 else 1):
        endpoint = of_rank(named, entry.get("endpoint_port_base"), rank)
        if endpoint is not None:
            replay = of_rank(named, entry.get("replay_endpoint_port_base"), rank)
            found.append(Source(endpoint, replay, topic_of(entry), rank))
    return found


ENGINE: Final = Engine(
    "sglang",
    marks=Marks(
        order=2,
        owned_by="sglang",
        metrics=(b"sglang:", b"sglang_"),
        answers={"/server_info": _is_server_info},
    ),
    sources=(
        TextSource("/metrics", NAMES, read, ranks=_RANKS),
        JsonSource("/v1/loads?include=core", read_loads, split=_split_loads),
    ),
    health=(
        Check("/ready", only=frozenset({200, 503})),
        Check("/health", timeout_s=5.0),
    ),
    facts=FactsSource("/server_info", read_server_info),
    native=[
        *native("chat", "/api/chat"),  # Ollama's API, whose streams are lines of JSON.
        *native("score", "/v1/score"),
        *native("pooling", "/classify", "/v1/classify", "/encode"),
        *native("tokenize", "/tokenize", "/v1/tokenize", light=True),
        *native("tokenize", "/detokenize", "/v1/detokenize", light=True),
        *native("generate", "/generate", "/api/generate", "/invocations"),
    ],
    blocked=Blocked(
        control=paths(
            "/abort_request /clear_hicache_storage_backend /close_session /configure_logging",
            "/continue_generation /destroy_weights_update_group /dump_expert_distribution_record",
            "/flush_cache /freeze_gc /get_internal_state /get_load /get_server_info",
            "/get_weights_by_name /init_weights_send_group_for_remote_instance",
            "/init_weights_update_group /load_lora_adapter /load_lora_adapter_from_tensors",
            "/metrics /open_session /pause_generation /release_memory_occupation",
            "/resume_memory_occupation /send_weights_to_remote_instance /server_info",
            "/set_internal_state /set_trace_level /slow_down /start_expert_distribution_record",
            "/start_profile /stop_expert_distribution_record /stop_profile /unload_lora_adapter",
            "/update_weight_version /update_weights_from_disk /update_weights_from_distributed",
            "/update_weights_from_ipc /update_weights_from_tensor /v1/loads",
        ),
        control_below=(b"/hicache/",),
        # SGLang obeys these headers if SGLANG_ENABLE_REQUEST_HEADER_OVERRIDES is set.
        private_headers=frozenset(
            {
                b"x-data-parallel-rank",
                b"x-override-priority",
                b"x-override-rid",
                b"x-override-routed-dp-rank",
            }
        ),
        # The prefill replica of a request, the data-parallel ranks that serve it, and the socket to
        # which its output is sent. Batches of prompts have lists of them.
        private_members=frozenset(
            {
                "bootstrap_host",
                "bootstrap_pair_key",
                "bootstrap_port",
                "bootstrap_room",
                "data_parallel_rank",
                "decode_tp_size",
                "disagg_prefill_dp_rank",
                "http_worker_ipc",
                "routed_dp_rank",
            }
        ),
        member_nests=frozenset({"parameters"}),  # On /vertex_generate.
    ),
    names_adapters=True,
    # SGLang clients name an adapter as `model:adapter`. If `model` has only the adapter's name,
    # SGLang serves the replica's own model. /encode and /classify support adapters since 2025.
    adapters=Adapters(
        {
            b"/vertex_generate": "parameters.lora_path",
            b"/generate": "lora_path",
            b"/encode": "",
            b"/classify": "",
        },
        unknown="",
        by_plain_name="lora_path",
    ),
    dialect=HIGH_FIRST,
    low_first=LOW_FIRST,
    tells_scheduling=True,
    # If a request has several prompts or choices, SGLang gives each of them another ID.
    abort=Abort("/abort_request", "rid", frozenset({b"/v1/chat/completions", b"/v1/completions"})),
    # SGLang's defaults of StreamOptions: include_usage False, continuous_usage_stats False. Each of
    # these two options works without the other.
    usage_ask=UsageAsk(
        b'{"include_usage":true}', asks_by_default=False, continuous_needs_usage=False
    ),
    # In Ollama's API the arguments of a tool call are JSON, not a string. So a model could write a
    # member `usage` into the arguments.
    counts_natively=frozenset({b"/generate", b"/api/chat", b"/api/generate"}),
    continues=True,
    tokenize="/tokenize",
    publisher=Publisher("/server_info", read_kv_events),
)
