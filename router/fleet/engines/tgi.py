"""TGI: reads its gauges, which have no labels, and its start options in `/info`.

A gauge that was never set is missing on the page. So a missing gauge is read as 0 if the page has
any other TGI metric. TGI does not report its KV usage. Instead, the router divides the maximum
tokens of the running batch by the maximum tokens of any batch.

TGI does not support priorities. The token counts of a stream are not requested, because TGI puts
them into the last content event, which cannot be removed.
"""

from __future__ import annotations

from typing import Any, Final

from router.fleet.engines.common.base import (
    NO_FACTS,
    NOTHING_KNOWN,
    START_TIME,
    Facts,
    FactsSource,
    Known,
    Marks,
    Odd,
    TextSource,
    count,
    mapping,
    text,
)
from router.fleet.engines.common.descriptor import Adapters, Blocked, Engine, native
from router.fleet.engines.common.exposition import Samples
from router.fleet.signals import NO_SIGNALS, Signals

RUNNING = "tgi_batch_current_size"
WAITING = "tgi_queue_size"
RESERVED = "tgi_batch_current_max_tokens"
# Only the v3 backend has this metric; earlier versions report the value in /info.
MOST = "tgi_batch_max_total_tokens"
PROMPT_TOKENS = "tgi_request_input_length_sum"
GENERATED = "tgi_request_generated_tokens_sum"
REQUESTS = "tgi_request_count"  # This metric is present after the first request.

NAMES = (RUNNING, WAITING, RESERVED, MOST, PROMPT_TOKENS, GENERATED, REQUESTS)


def read(samples: Samples, known: Known = NOTHING_KNOWN) -> Signals:
    """Read a page of /metrics."""
    if not any(samples.series(name)[1] for name in NAMES):
        return NO_SIGNALS
    most = samples.total(MOST) or known.facts.kv_tokens
    reserved = _gauge(samples, RESERVED)
    usage = None
    if most and reserved is not None:
        usage = samples.share(RESERVED, reserved / most)
    return Signals(
        running=_gauge(samples, RUNNING),
        waiting=_gauge(samples, WAITING),
        kv_usage=usage,
        kv_tokens=most,
        started_at=samples.moment(START_TIME),
        prompt_tokens=samples.total(PROMPT_TOKENS),
        generated_tokens=samples.total(GENERATED),
    )


def _gauge(samples: Samples, name: str) -> int | None:
    return samples.total(name) if samples.series(name)[1] else 0


def read_info(document: Any) -> Facts:
    """Read the answer of /info."""
    info = mapping(document)
    if not info:
        return NO_FACTS
    odd: Odd = set()
    return Facts(
        slots=count(info.get("max_batch_size"), "max_batch_size", odd) or None,
        kv_tokens=count(info.get("max_batch_total_tokens"), "max_batch_total_tokens", odd) or None,
        context_tokens=count(info.get("max_total_tokens"), "max_total_tokens", odd) or None,
        version=text(info.get("version")),
    )


def _is_info(document: Any) -> bool:
    """Whether an answer of /info is TGI's; the vendor's embedding server has this path, too."""
    return mapping(document).keys() >= {"model_id", "max_concurrent_requests", "max_total_tokens"}


_ADAPTER: Final = "parameters.adapter_id"

ENGINE: Final = Engine(
    "tgi",
    marks=Marks(order=4, metrics=(b"tgi_",), answers={"/info": _is_info}),
    sources=(TextSource("/metrics", NAMES, read),),
    facts=FactsSource("/info", read_info),
    native=[
        *native("tokenize", "/tokenize", light=True),
        *native("generate", "/generate", "/invocations"),
        *native("generate", "/generate_stream", events=True),
    ],
    blocked=Blocked(
        control=frozenset({b"/metrics"}),
    ),
    # TGI does not read `model`.
    adapters=Adapters(
        {b"/generate": _ADAPTER, b"/generate_stream": _ADAPTER, b"/invocations": _ADAPTER},
        unknown=_ADAPTER,
    ),
    counts_natively=frozenset({b"/generate"}),
)
