"""trtllm-serve (TensorRT-LLM): a list of iterations that reading empties, else Prometheus.

`/metrics` is JSON: statistics per iteration since the last look, gone once read, and nobody else
must read them. It waits up to two seconds for one when it has none and then says `[]`; what it said
last then still holds. Nothing iterates while nobody generates, though, and the last iteration of a
busy time tells of requests that ended with it: after three such answers, six seconds without one
iteration, nothing runs and nothing waits.

`/prometheus/metrics` is there with `return_perf_metrics` only, and its gauges move when a request
ends. So a page on which no request has ended since the page before says nothing of what runs or
waits now: believed, a queue of before would keep everything from a server on which nothing is left
that could end. Servers up to 1.1 name no gauges at all there. A server that keeps a task per pooled
connection leaks until it dies (fixed late), so it is asked on a new connection each time.
"""

from __future__ import annotations

from typing import Any

import msgspec

from router.fleet.engines.base import (
    NOTHING_KNOWN,
    START_TIME,
    Engine,
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
from router.fleet.engines.exposition import Samples
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

IDLE_AFTER = 3  # empty answers in a row, each after two seconds without an iteration


def read(samples: Samples, known: Known = NOTHING_KNOWN) -> Signals:
    """A page of /prometheus/metrics."""
    block_tokens = samples.total(BLOCK_TOKENS) or None
    reused = samples.total(REUSED)
    usage_name, usage = samples.series(USAGE)
    prompt_tokens = samples.total(PROMPT_TOKENS)
    # Counted when a request ends, as the gauges are set.
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
    """An answer of /metrics: the newest iteration is the last."""
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
    """No other engine answers /metrics with a JSON list; an idle one with an empty list."""
    return isinstance(document, list)


TRTLLM = Engine(
    name="trtllm",
    marks=Marks(
        owned_by="tensorrt_llm",
        metrics=(b"trtllm_",),
        answers={"/metrics": _is_iterations},
    ),
    sources=(
        JsonSource("/metrics", read_iterations, timeout_s=3.0),
        TextSource("/prometheus/metrics", NAMES, read),
    ),
    keeps_alive=False,
)
