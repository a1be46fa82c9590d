"""Declares the metrics of a running router: of its fleet, its queue, discovery and its own state.

The values of a metric are read from `Parts` at each scrape. If the value for a replica is unknown,
the metric has no sample for that replica.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from router.admission.counts import DROPS, QueueCounts
from router.app import predictions
from router.app.discovered import Discovered
from router.app.parts import Parts
from router.app.reclaims import Reclaims
from router.app.report import STATES, census
from router.core.clock import monotonic
from router.core.urgency import BATCH, CLASSES
from router.dispatch.exchange import Exchange
from router.dispatch.queueing.queue_driver import QueueDriver
from router.fleet.error_answers import KEY_STATUS
from router.fleet.health import BREAKERS
from router.fleet.replica import Replica
from router.observe.families.family import Family, Values, counter, gauge
from router.observe.metrics import MODELS_MAX, REPLICAS_MAX, label


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """Functions that return whether the router is ready, and whether it is draining."""

    is_ready: Callable[[], bool]
    is_draining: Callable[[], bool]


LIFECYCLE: Final[tuple[Family[Lifecycle], ...]] = (
    gauge("ready", "1 if the router accepts requests.", lambda life: float(life.is_ready())),
    gauge("draining", "1 if the router is draining.", lambda life: float(life.is_draining())),
)


def _replicas(parts: Parts) -> list[Replica]:
    return list(parts.fleet.replicas.values())


def _of_each(attribute: str) -> Callable[[Parts], Values]:
    """Return a function that reads one attribute of all replicas for which its value is known."""

    def read(parts: Parts) -> dict[str, float]:
        return {r.id: v for r in _replicas(parts) if (v := getattr(r, attribute)) is not None}

    return read


def _by_model(parts: Parts) -> dict[tuple[str, ...], float]:
    """If all replicas of a key are away, its value is 0. If no replica lists its models, all
    replicas are counted for each requested model.
    """
    found: dict[tuple[str, ...], float] = {}
    requested = frozenset(parts.metrics.named)
    shown: set[str] = set()
    for replica in _replicas(parts):
        models = parts.fleet.models.of(replica)
        for model in sorted(requested if models is None else models):
            if model not in shown and len(shown) >= MODELS_MAX:
                continue
            shown.add(model)
            key = (model, replica.region, replica.type)
            found[key] = found.get(key, 0.0) + (not replica.is_away)
    return found


def _queued_by_model(parts: Parts) -> dict[str, float]:
    """The models are those of `_by_model`; 0 if no request waits."""
    found = dict.fromkeys((model for model, *_ in _by_model(parts)), 0.0)
    for queue in () if parts.queue is None else parts.queue.pools.queues:
        for ticket in queue.wait_lists.tickets():
            if ticket.urgency != BATCH and ticket.model in found:
                found[ticket.model] += 1.0
    return found


def _by_state(parts: Parts) -> dict[str, float]:
    now = monotonic()
    counts = dict.fromkeys(STATES, 0.0)
    for replica in (*parts.fleet.replicas.values(), *parts.fleet.leaving):
        counts[replica.state(now)] += 1
    return counts


def _connections(parts: Parts) -> dict[str, float]:
    held = census(parts)
    return {name: held[f"replica_{name}"] for name in ("idle", "busy", "connecting")}


def _breaker_words(parts: Parts) -> dict[str, str]:
    now = monotonic()
    return {r.id: r.health.breaker(now) for r in _replicas(parts)}


def _breakers(parts: Parts) -> dict[str, float]:
    counts = dict.fromkeys(BREAKERS, 0.0)
    for word in _breaker_words(parts).values():
        counts[word] += 1.0
    return counts


def _up(parts: Parts) -> dict[str, float]:
    now = monotonic()
    return {r.id: float(r.health.up and not r.health.is_ejected(now)) for r in _replicas(parts)}


def _keys_refused(parts: Parts) -> dict[str, float]:
    """The router needs no key for a replica whose models are configured."""
    return {
        r.id: float(r.endpoint.list_status in KEY_STATUS)
        for r in _replicas(parts)
        if r.config.models is None or parts.upstream.has_key_for(r)
    }


def _spared(parts: Parts) -> dict[str, float]:
    now = monotonic()
    return {r.id: max(0.0, r.health.busy_until - now) for r in _replicas(parts)}


def _clamped(parts: Parts) -> dict[tuple[str, ...], float]:
    return {
        (source, name): float(count)
        for source, counted in parts.dispatcher.tenants.judge.clamped.items()
        for name, count in zip(CLASSES, counted, strict=True)
        if count
    }


def _slos(parts: Parts, attribute: str) -> dict[str, float]:
    slos = parts.context.rules.slos
    return {name: getattr(slos[n], attribute) for n, name in enumerate(CLASSES)}


def _region_utilisation(parts: Parts) -> dict[tuple[str, ...], float]:
    """Only fleets of several regions have values, as one region would repeat the fleet's values."""
    nearest, now = parts.fleet.nearest, monotonic()
    if not nearest.is_used:
        return {}
    return {
        (label(model), region): used
        for model in list(parts.fleet.panic)[:REPLICAS_MAX]
        for region, used in nearest.utilisations(model, now).items()
    }


def _region_choices(parts: Parts) -> dict[tuple[str, ...], float]:
    return {pair: float(count) for pair, count in parts.fleet.nearest.choices.items()}


def silence_by_class(exchanges: Iterable[Exchange], now: float) -> dict[str, float]:
    """Return the longest time since content by priority class, in seconds; 0: there is no stream.

    The time is counted from the last content, or from the arrival of the request. Comments that
    keep the connection open are not content. A client that stopped reading is ignored, because the
    client itself causes the wait.
    """
    longest = dict.fromkeys(CLASSES, 0.0)
    for x in exchanges:
        name = x.urgency.stated
        if name and x.view.stream and not x.deadlines.is_paused:
            longest[name] = max(longest[name], now - x.last_content_at())
    return longest


def _prefix_index(parts: Parts) -> dict[str, float]:
    stats = parts.fleet.knowledge.prefixes.stats
    return {"lookups": stats.lookups, "hits": stats.hits, "evictions": stats.evictions}


# Attributes of a replica that have a value if it is known: the metric, the attribute, the text.
_OF_REPLICAS: Final = (
    ("replica_inflight", "inflight", "Attempts in progress, by replica."),
    (
        "replica_waiting",
        "waiting",
        "Requests that wait at a replica, of this router and of other clients.",
    ),
    (
        "replica_load",
        "load",
        "Requests that run or wait at a replica, of this router and of other clients.",
    ),
    (
        "replica_pending_tokens",
        "pending_tokens",
        "Uncached prompt tokens of requests that wait at a replica.",
    ),
    (
        "replica_kv_usage_ratio",
        "kv_polled",
        "Share of the KV cache in use, 0 to 1, as the engine reported it.",
    ),
    ("replica_kv_tokens", "kv_tokens", "Tokens that fit into the KV cache."),
    ("replica_ttft_seconds", "ttft_s", "Time from dispatch to first content, moving average."),
    ("replica_tpot_seconds", "tpot_s", "Time per output token, moving average."),
)
FLEET: Final[tuple[Family[Parts], ...]] = (
    *(gauge(name, text, _of_each(attribute), "replica") for name, attribute, text in _OF_REPLICAS),
    gauge("replicas", "Replicas, by state.", _by_state, "state"),
    gauge(
        "replica_up",
        "1 if a replica's probes succeed and its failed requests have not ejected it, else 0.",
        _up,
        "replica",
    ),
    gauge(
        "replica_key_refused",
        "1 if a replica answered 401 or 403 when the router last read its models: the router's key "
        "is missing or wrong. No value if the models are configured and the router has no key.",
        _keys_refused,
        "replica",
    ),
    gauge(
        "suspect_requests",
        "Bodies that are refused because they were in flight when two engines died.",
        lambda parts: float(parts.fleet.suspects.held),
    ),
    gauge(
        "model_replicas",
        "Replicas that are up and in service, by model, region and type; for capacity planning.",
        _by_model,
        "model",
        "region",
        "type",
    ),
    gauge(
        "model_queue_depth",
        "Requests that wait for a replica, by model, without class batch; for autoscaling.",
        _queued_by_model,
        "model",
    ),
    gauge("replica_connections", "Open connections to replicas, by state.", _connections, "state"),
    gauge("client_connections", "Open client connections.", lambda parts: len(parts.front.clients)),
    gauge(
        "requests_under_way", "Requests in progress.", lambda parts: len(parts.dispatcher.exchanges)
    ),
    gauge(
        "held_body_bytes",
        "Bytes of request bodies held in memory.",
        lambda parts: parts.front.held_bytes,
    ),
    gauge(
        "open_file_limit",
        "Maximum of files that the process may open.",
        lambda parts: parts.open_files,
    ),
    gauge(
        "loop_lag_seconds",
        "Delay with which the event loop runs its timers.",
        lambda parts: parts.sweeper.lag_s,
    ),
    counter(
        "access_log_lines_dropped",
        "Access log lines lost to a slow or full sink.",
        # The count includes logs that a reload has replaced, because their last lines may not be
        # written yet.
        lambda parts: parts.replaced_logs.dropped + parts.log.dropped,
    ),
    gauge(
        "replica_rtt_seconds",
        "Measured round-trip time from the router to a replica.",
        lambda parts: {r.id: s for r in _replicas(parts) if (s := r.learned.round_trip.seconds)},
        "replica",
    ),
    gauge(
        "region_utilisation_ratio",
        "Share of the slots or of the KV cache in use, whichever is higher, by model and region.",
        _region_utilisation,
        "model",
        "region",
    ),
    counter(
        "region_choices",
        "Choices of a region, by preferred and chosen region; a request may need several.",
        _region_choices,
        "preferred",
        "region",
    ),
    gauge(
        "prediction_error_ratio",
        "Mean absolute error of predicted TTFT and TPOT, as a share of the actual time, by model; "
        "step: TPOT, predicted when the stream ends from the load that it had.",
        lambda parts: predictions.errors(_replicas(parts)),
        "model",
        "kind",
    ),
    gauge(
        "prediction_bias_ratio",
        "Mean signed error of the same predictions; above 0: predictions are too long.",
        lambda parts: predictions.biases(_replicas(parts)),
        "model",
        "kind",
    ),
    gauge(
        "replica_breaker",
        "Circuit breaker: 0 closed, 1 suspect, 2 half open, 3 open.",
        lambda parts: {
            name: float(BREAKERS.index(word)) for name, word in _breaker_words(parts).items()
        },
        "replica",
    ),
    gauge("breakers", "Replicas, by circuit breaker.", _breakers, "state"),
    gauge(
        "panic",
        "1 if so few replicas of a model are fit that unfit ones get requests, too.",
        lambda parts: {name: float(panics) for name, panics in parts.fleet.panic.items()},
        "model",
    ),
    gauge(
        "replica_spared_seconds",
        "Remaining time for which a replica is avoided because it answered that it is busy.",
        _spared,
        "replica",
    ),
    gauge(
        "prefix_blocks",
        "Prefix blocks that a replica is assumed to hold.",
        lambda parts: {r.id: parts.fleet.knowledge.prefixes.holding(r) for r in _replicas(parts)},
        "replica",
    ),
    counter("prefix_index", "Prefix index operations.", _prefix_index, "event"),
    counter(
        "engine_aborts",
        "Abort requests to engines for cancelled attempts, by outcome.",
        lambda parts: {
            name: float(getattr(parts.aborter, name)) for name in ("accepted", "failed", "skipped")
        },
        "outcome",
    ),
    counter(
        "polls_failed",
        "Polls of engine metrics without a result, by problem.",
        lambda parts: parts.fleet.polls.failed,
        "problem",
    ),
    counter(
        "signals_odd",
        "Impossible values in engines' metrics, by name of the metric.",
        lambda parts: parts.poller.odd,
        "figure",
    ),
    counter(
        "priority_ignored",
        "Priority numbers in request bodies that were ignored, by priority dialect of the pool.",
        lambda parts: parts.dispatcher.tenants.judge.ignored,
        "dialect",
    ),
    counter(
        "priority_clamped",
        "Requests whose priority was lowered to their ceiling, by source and resulting class.",
        _clamped,
        "source",
        "class",
    ),
    gauge(
        "slo_ttft_seconds",
        "SLO for the time to first token, by class; a key or a request may have another one.",
        lambda parts: _slos(parts, "ttft_s"),
        "class",
    ),
    gauge(
        "slo_tpot_seconds",
        "SLO for the time per output token, by class.",
        lambda parts: _slos(parts, "tpot_s"),
        "class",
    ),
    gauge(
        "stream_silence_seconds",
        "Longest time since a running stream last sent content to its client, by class.",
        lambda parts: silence_by_class(parts.dispatcher.exchanges, monotonic()),
        "class",
    ),
)


def _depth(driver: QueueDriver) -> dict[str, float]:
    depths = [queue.depth for queue in driver.pools.queues]
    return {name: float(sum(depth[n] for depth in depths)) for n, name in enumerate(CLASSES)}


def _eldest(driver: QueueDriver) -> dict[str, float]:
    now = monotonic()
    ages = [queue.wait_lists.ages_s(now) for queue in driver.pools.queues]
    return {name: max(age[n] for age in ages) for n, name in enumerate(CLASSES)}


def queue_counts(driver: QueueDriver) -> QueueCounts:
    """Return the sum of the counts of all pools, including removed pools."""
    counts = QueueCounts()
    for counted in (driver.pools.past, *(queue.counts for queue in driver.pools.queues)):
        counts.add(counted)
    return counts


def _counted(name: str) -> Callable[[QueueCounts], Values]:
    what = name.removeprefix("queue_")
    return lambda counts: {n: float(v) for n, v in zip(CLASSES, getattr(counts, what), strict=True)}


def _dropped(counts: QueueCounts) -> dict[tuple[str, ...], float]:
    return {
        (name, str(why)): float(counts.dropped[why][n])
        for why in DROPS
        for n, name in enumerate(CLASSES)
    }


def _policy_errors(driver: QueueDriver) -> Values:
    return {driver.pools.queues[0].config.queue.policy: float(driver.pools.failures.count)}


QUEUE: Final[tuple[Family[QueueDriver], ...]] = (
    gauge("queue_depth", "Requests that wait for a replica, by class.", _depth, "class"),
    gauge(
        "queue_eldest_seconds",
        "Waiting time of the oldest waiting request, by class; 0 if none waits.",
        _eldest,
        "class",
    ),
    gauge(
        "queue_headroom_level",
        "How much of the slots batch leaves free for critical and high requests, from 0 (nothing) "
        "to 1 (a quarter); the highest level of all pools.",
        lambda driver: max(queue.headroom.level for queue in driver.pools.queues),
    ),
    counter(
        "queue_policy_errors",
        "Failures of the order policy; after one, requests are ordered by arrival.",
        _policy_errors,
        "policy",
    ),
)
# The metric of each count by class in `QueueCounts`, and what it counts.
_COUNTED: Final = {
    "queue_passed": "Requests sent without waiting",
    "queue_queued": "Requests that began to wait",
    "queue_granted": "Requests sent after waiting",
    "queue_inverted": "Requests sent after waiting, while a more urgent request still waited",
    "queue_engine_inverted": "Critical and high requests sent to a replica without a free slot, on "
    "which batch requests run",
    "queue_promoted": "Requests that became starved, and so went before the usual order",
    "queue_preempted": "Requests preempted for more urgent ones and queued again",
}
QUEUE_COUNTS: Final[tuple[Family[QueueCounts], ...]] = (
    *(
        counter(name, f"{text}, by class.", _counted(name), "class")
        for name, text in _COUNTED.items()
    ),
    counter(
        "queue_dropped",
        "Requests that ended before they were sent, by class and reason.",
        _dropped,
        "class",
        "reason",
    ),
)


# -- discovery, and spot machines -----------------------------------------------------------------


def _looks(discovered: Discovered) -> dict[tuple[str, ...], float]:
    return {(label(source), result): float(n) for (source, result), n in discovered.looks.items()}


DISCOVERY: Final[tuple[Family[Discovered], ...]] = (
    gauge(
        "discovery_replicas",
        "Replicas in the last valid answer of a source, by source.",
        lambda found: {label(source): float(n) for source, n in found.sizes.items()},
        "source",
    ),
    counter(
        "discovery_looks",
        "Looks at a source of replicas, by source and result; failed: also if only a part failed.",
        _looks,
        "source",
        "result",
    ),
    gauge(
        "discovery_age_seconds",
        "Time since the last look at a source that had no problem, or since its first use.",
        lambda found: {label(s): monotonic() - at for s, at in found.seen_at.items()},
        "source",
    ),
)
SPOT: Final[tuple[Family[Reclaims], ...]] = (
    counter(
        "spot_notices",
        "Replicas whose machine was announced to be reclaimed, by source of the notice.",
        lambda reclaims: {source: float(n) for source, n in reclaims.notices.items()},
        "source",
    ),
    counter(
        "spot_moved",
        "Requests moved away from reclaimed machines: sent again without content, or continued.",
        lambda reclaims: {how: float(n) for how, n in reclaims.moved.items()},
        "how",
    ),
    counter(
        "spot_left",
        "Requests that were still running at a replica when its machine was due to go away.",
        lambda reclaims: reclaims.left,
    ),
)
