"""llama.cpp's server: reads `/metrics`, which it has only with `--metrics`, else `/slots`.

The server has a fixed number of slots and does not report its KV usage; the router uses the share
of slots in use instead. Every answer waits for the running decode step, so it may take seconds.
Metrics that are averages are `nan` before the first token.

The server does not support priorities. The router does not request the token counts of a stream,
because the `timings` in its last content event contain them in any case. The option `include_usage`
would move the `timings` to an event that is removed. With the request header `X-Conversation-Id`,
the server continues to generate after the client has disconnected.
"""

from __future__ import annotations

from typing import Any, Final

from router.fleet.engines.common.base import (
    NO_FACTS,
    NOTHING_KNOWN,
    START_TIME,
    Facts,
    FactsSource,
    JsonSource,
    Known,
    Marks,
    Odd,
    TextSource,
    count,
    mapping,
    text,
    times,
)
from router.fleet.engines.common.descriptor import Blocked, Engine, native, paths
from router.fleet.engines.common.exposition import Samples
from router.fleet.signals import Signals

PROCESSING = "llamacpp:requests_processing"
DEFERRED = "llamacpp:requests_deferred"
PROMPT_TOKENS = "llamacpp:prompt_tokens_total"
GENERATED = "llamacpp:tokens_predicted_total"

NAMES = (PROCESSING, DEFERRED, PROMPT_TOKENS, GENERATED)
PATIENCE_S = 5.0


def read(samples: Samples, known: Known = NOTHING_KNOWN) -> Signals:
    """Read a page of /metrics."""
    running = samples.total(PROCESSING)
    slots = known.facts.slots
    return Signals(
        running=running,
        waiting=samples.total(DEFERRED),
        kv_usage=min(running / slots, 1.0) if slots and running is not None else None,
        kv_tokens=known.facts.kv_tokens,
        slots=slots,
        started_at=samples.moment(START_TIME),
        prompt_tokens=samples.total(PROMPT_TOKENS),
        generated_tokens=samples.total(GENERATED),
    )


def read_slots(document: Any, known: Known, odd: Odd) -> Signals | None:
    """Read an answer of /slots; the answer does not contain waiting requests."""
    if not isinstance(document, list) or not document:
        return None
    if not all(isinstance(slot, dict) for slot in document):
        return None
    states = [slot.get("is_processing") for slot in document]
    if not all(isinstance(state, bool) for state in states):
        odd.add("is_processing")
        return Signals(slots=len(document))
    contexts = [count(slot.get("n_ctx"), "n_ctx", odd) for slot in document]
    known_contexts = [context for context in contexts if context]
    running = sum(states)
    return Signals(
        running=running,
        kv_usage=running / len(document),
        kv_tokens=sum(known_contexts) if len(known_contexts) == len(contexts) else None,
        slots=len(document),
    )


def read_props(document: Any) -> Facts:
    """Read the answer of /props. `n_ctx` is the context length of one slot of the server."""
    props = mapping(document)
    if not props:
        return NO_FACTS
    odd: Odd = set()
    slots = count(props.get("total_slots"), "total_slots", odd) or None
    context = count(mapping(props.get("default_generation_settings")).get("n_ctx"), "n_ctx", odd)
    return Facts(
        slots=slots,
        kv_tokens=times(slots, context or None),
        context_tokens=context or None,
        version=text(props.get("build_info")),
    )


def _is_props(document: Any) -> bool:
    return mapping(document).keys() >= {"total_slots", "default_generation_settings"}


ENGINE: Final = Engine(
    "llamacpp",
    marks=Marks(
        order=5, owned_by="llamacpp", metrics=(b"llamacpp:",), answers={"/props": _is_props}
    ),
    sources=(
        TextSource("/metrics", NAMES, read, timeout_s=PATIENCE_S),
        JsonSource("/slots", read_slots, timeout_s=PATIENCE_S),
    ),
    facts=FactsSource("/props", read_props),
    native=[
        *native("completions", "/completion", "/completions", "/infill", events=True),
        *native("embeddings", "/embeddings", "/embedding"),
        *native("rerank", "/rerank", "/reranking"),
        *native("tokenize", "/tokenize", "/detokenize", light=True),
    ],
    blocked=Blocked(
        control=paths(
            "/lora-adapters /metrics /models/load /models/unload /props /slots /v1/stream",
            "/v1/streams/lookup",
        ),
        control_below=(b"/slots/",),
        private_headers=frozenset({b"x-conversation-id"}),
    ),
    counts_mark=b'"timings"',
)
