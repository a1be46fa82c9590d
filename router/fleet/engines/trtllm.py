"""trtllm-serve (TensorRT-LLM): reads its list of iterations, else its Prometheus metrics.

`/metrics` returns JSON: statistics for each iteration since the last request. Reading removes these
statistics, so no other program may read them. If there are no new statistics, the server waits for
up to two seconds and then returns `[]`; the last statistics then still apply. But the engine runs
no iteration while it generates nothing, and the statistics of its last iteration still count the
requests that ended in that iteration. So after three empty answers (six seconds without an
iteration), no request runs or waits.

`/prometheus/metrics` exists only with `return_perf_metrics`, and its gauges change only when a
request ends. So if no request has ended since the last page, the page does not show the current
load, and is not used. Otherwise an outdated count of waiting requests could keep all requests away
from an idle server, where no request could end and correct the count. Servers up to version 1.1
have no gauges on this page.

Older servers keep a task for each pooled connection, and leak memory until they fail. So each poll
uses a new connection.

A priority is a number from 0 to 1; higher numbers are served first, and 0.5 is the default. Servers
before 1.3 reject the field. So the router leaves the field out of normal requests; with other
requests, it learns from the answer that the field is rejected. The number that the router sends
depends only on the class of a request and its urgency within the class.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from router.core.urgency import NORMAL
from router.fleet.engines.common.base import (
    NOTHING_KNOWN,
    START_TIME,
    JsonSource,
    Known,
    Marks,
    Odd,
    TextSource,
    count,
    mapping,
    plus,
    share,
    times,
)
from router.fleet.engines.common.descriptor import Blocked, Engine, UsageAsk, paths
from router.fleet.engines.common.exposition import Samples
from router.fleet.engines.common.priority import Dialect
from router.fleet.signals import NO_SIGNALS, Signals

RUNNING = "trtllm_num_requests_running"
WAITING = "trtllm_num_requests_waiting"
SLOTS = "trtllm_max_num_active_requests"
USAGE = "trtllm_kv_cache_utilization"
BLOCK_TOKENS = "trtllm_kv_cache_tokens_per_block"
BLOCKS = "trtllm_kv_cache_max_blocks"
REUSED = "trtllm_kv_cache_reused_blocks_total"
MISSED = "trtllm_kv_cache_missed_blocks_total"
PROMPT_TOKENS = "trtllm_prompt_tokens_total"

NAMES = (RUNNING, WAITING, SLOTS, USAGE, BLOCK_TOKENS, BLOCKS, REUSED, MISSED, PROMPT_TOKENS)

# Number of empty answers in a row after which the engine counts as idle. The engine sends an empty
# answer after two seconds without an iteration.
IDLE_AFTER = 3


def read(samples: Samples, known: Known = NOTHING_KNOWN) -> Signals:
    """Read a page of /prometheus/metrics."""
    block_tokens = samples.total(BLOCK_TOKENS) or None
    reused = samples.total(REUSED)
    usage_name, usage = samples.series(USAGE)
    prompt_tokens = samples.total(PROMPT_TOKENS)
    # This total changes when a request ends, as the gauges do. If the total is unchanged, the
    # gauges are outdated.
    is_old = prompt_tokens is not None and prompt_tokens == known.last.prompt_tokens
    return Signals(
        running=None if is_old else samples.total(RUNNING),
        waiting=None if is_old else samples.total(WAITING),
        kv_usage=None if is_old else samples.largest_share(usage_name, usage),
        kv_tokens=times(samples.total(BLOCKS) or None, block_tokens),
        block_tokens=block_tokens,
        slots=samples.total(SLOTS) or None,
        started_at=samples.moment(START_TIME),
        prompt_tokens=prompt_tokens,
        cache_queries=times(plus(reused, samples.total(MISSED)), block_tokens),
        cache_hits=times(reused, block_tokens),
    )


def read_iterations(document: Any, known: Known, odd: Odd) -> Signals | None:
    """Read an answer of /metrics; the newest iteration is the last one."""
    if not isinstance(document, list):
        return None
    if not document:
        if known.empty + 1 >= IDLE_AFTER and known.last.running is not None:
            return msgspec.structs.replace(known.last, running=0, waiting=0)
        return known.last
    newest = document[-1]
    if not isinstance(newest, dict):
        odd.add("iteration")
        return NO_SIGNALS
    cache = mapping(newest.get("kvCacheStats"))
    block_tokens = count(cache.get("tokensPerBlock"), "tokensPerBlock", odd) or None
    blocks = count(cache.get("maxNumBlocks"), "maxNumBlocks", odd) or None
    used = count(cache.get("usedNumBlocks"), "usedNumBlocks", odd)
    reused = count(cache.get("reusedBlocks"), "reusedBlocks", odd)
    missed = count(cache.get("missedBlocks"), "missedBlocks", odd)
    usage = None
    if blocks is not None and used is not None:
        usage = share(used / blocks, "usedNumBlocks", odd)
    return Signals(
        running=count(newest.get("numActiveRequests"), "numActiveRequests", odd),
        waiting=count(newest.get("numQueuedRequests"), "numQueuedRequests", odd),
        kv_usage=usage,
        kv_tokens=times(blocks, block_tokens),
        block_tokens=block_tokens,
        slots=count(newest.get("maxNumActiveRequests"), "maxNumActiveRequests", odd) or None,
        cache_queries=times(plus(reused, missed), block_tokens),
        cache_hits=times(reused, block_tokens),
    )


def _is_iterations(document: Any) -> bool:
    """Whether an answer of /metrics is TensorRT-LLM's.

    No other engine answers with a JSON list. An idle server returns an empty list.
    """
    return isinstance(document, list)


# -- priorities ------------------------------------------------------------------------------------

_CLASS: Final = 0.2


def number(urgency: float) -> float:
    """Return the engine's priority number for an urgency; a normal request gets 0.5."""
    return min(1.0, max(0.0, 0.5 + (NORMAL - urgency) * _CLASS))


class _Share(Dialect):
    def read(self, number: float) -> float:
        """Return the urgency for a client's number; 1 is the most urgent, 0 the least."""
        return NORMAL + (0.5 - number) * 4.0

    def write(self, urgency: float, arrived: float, level: float, is_bounded: bool) -> bytes:
        return b"%.4f" % number(urgency)


DIALECT: Final = _Share(
    "trtllm",
    frozenset({b"/v1/chat/completions", b"/v1/completions"}),
    refusal=400,
    # Pydantic's error messages for the field `priority`, in versions before 1.3.
    refusals=(
        rb"(?:extra inputs|extra_forbidden).{0,200}(?:\b|\\n)priority\b"
        rb"|(?:\b|\\n)priority\b.{0,200}(?:extra inputs|extra_forbidden)",
    ),
    absent=b"0.5",
    tells_normal=False,
)


ENGINE: Final = Engine(
    "trtllm",
    marks=Marks(
        order=3,
        owned_by="tensorrt_llm",
        metrics=(b"trtllm_",),
        answers={"/metrics": _is_iterations},
    ),
    sources=(
        JsonSource("/metrics", read_iterations, timeout_s=3.0),
        TextSource("/prometheus/metrics", NAMES, read),
    ),
    keeps_alive=False,
    blocked=Blocked(
        control=paths(
            "/kv_cache_events /metrics /perf_metrics /prometheus/metrics /release_memory",
            "/resume_memory /server_info /update_weights /v1/kv_cache_hints",
        ),
        private_members=frozenset({"disaggregated_params"}),
    ),
    dialect=DIALECT,
    # TensorRT-LLM's defaults of StreamOptions: include_usage True, continuous_usage_stats True.
    usage_ask=UsageAsk(
        b'{"include_usage":true,"continuous_usage_stats":false}',
        asks_by_default=True,
        continuous_needs_usage=True,
    ),
)
