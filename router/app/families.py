"""Metrics of a running router: its fleet, its queue and its own state.

Each family reads `Parts` at the scrape. An unknown value of a replica is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Final

from router.admission.counts import DROPS, QueueCounts
from router.app import silence
from router.app.parts import Parts
from router.app.report import STATES, census, counts_of
from router.core.urgency import CLASSES
from router.dispatch.queueing.queue_driver import QueueDriver
from router.fleet.health import BREAKERS
from router.fleet.replica import Replica
from router.observe.families.family import COUNTER, GAUGE, Family, Values


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """Whether the process is ready and whether it drains."""

    is_ready: Callable[[], bool]
    is_draining: Callable[[], bool]


LIFECYCLE: Final[tuple[Family[Lifecycle], ...]] = (
    Family(
        "ready",
        GAUGE,
        "1 if the router takes requests.",
        lambda life: float(life.is_ready()),
    ),
    Family(
        "draining",
        GAUGE,
        "1 if the router is draining.",
        lambda life: float(life.is_draining()),
    ),
)


def _replicas(parts: Parts) -> list[Replica]:
    return list(parts.fleet.replicas.values())


def _of_each(attribute: str) -> Callable[[Parts], Values]:
    """Reads an attribute of every replica for which it is known."""

    def read(parts: Parts) -> dict[str, float]:
        return {r.id: v for r in _replicas(parts) if (v := getattr(r, attribute)) is not None}

    return read


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


def _prefix_index(parts: Parts) -> dict[str, float]:
    stats = parts.knowledge.prefixes.stats
    return {"lookups": stats.lookups, "hits": stats.hits, "evictions": stats.evictions}


def _batches(parts: Parts) -> Mapping[str, float] | None:
    runner = None if parts.batch_server is None else parts.batch_server.runner
    if runner is None:
        return None
    return {"batches": float(runner.running), "lines": float(runner.lines.under_way)}


def _batch_attempts(parts: Parts) -> Mapping[str, float] | None:
    runner = None if parts.batch_server is None else parts.batch_server.runner
    return None if runner is None else {n: float(v) for n, v in runner.lines.ended.items()}


FLEET: Final[tuple[Family[Parts], ...]] = (
    Family("replicas", GAUGE, "Replicas, by state.", _by_state, ("state",)),
    Family(
        "replica_inflight",
        GAUGE,
        "Attempts under way, by replica.",
        _of_each("inflight"),
        ("replica",),
    ),
    Family(
        "replica_connections",
        GAUGE,
        "Open connections to replicas, by state.",
        _connections,
        ("state",),
    ),
    Family(
        "client_connections",
        GAUGE,
        "Open client connections.",
        lambda parts: len(parts.front.clients),
    ),
    Family(
        "requests_under_way",
        GAUGE,
        "Requests under way.",
        lambda parts: len(parts.dispatcher.exchanges),
    ),
    Family(
        "held_body_bytes",
        GAUGE,
        "Body bytes held in memory.",
        lambda parts: parts.front.held_bytes,
    ),
    Family(
        "open_file_limit",
        GAUGE,
        "Open files the process may have.",
        lambda parts: parts.open_files,
    ),
    Family(
        "loop_lag_seconds",
        GAUGE,
        "How late the event loop runs its timers.",
        lambda parts: parts.sweeper.lag_s,
    ),
    Family(
        "access_log_lines_dropped",
        COUNTER,
        "Access log lines lost to a slow or full sink.",
        # Of the log and of those that a reload put away: their last lines may still be waiting.
        lambda parts: sum(log.dropped for log in (*parts.old_logs, parts.log)),
    ),
    Family(
        "replica_waiting",
        GAUGE,
        "Requests that wait at a replica, ours and others'.",
        _of_each("waiting"),
        ("replica",),
    ),
    Family(
        "replica_load",
        GAUGE,
        "Requests at a replica, ours and others', running and waiting.",
        _of_each("load"),
        ("replica",),
    ),
    Family(
        "replica_pending_tokens",
        GAUGE,
        "Uncached prompt tokens sent and not begun.",
        _of_each("pending_tokens"),
        ("replica",),
    ),
    Family(
        "replica_kv_usage_ratio",
        GAUGE,
        "Share of the KV cache in use, as the engine reported it.",
        _of_each("kv_polled"),
        ("replica",),
    ),
    Family(
        "replica_kv_tokens",
        GAUGE,
        "Tokens that fit into the KV cache.",
        _of_each("kv_tokens"),
        ("replica",),
    ),
    Family(
        "replica_ttft_seconds",
        GAUGE,
        "Dispatch to first content, smoothed.",
        _of_each("ttft_s"),
        ("replica",),
    ),
    Family(
        "replica_tpot_seconds",
        GAUGE,
        "Seconds per output token, smoothed.",
        _of_each("tpot_s"),
        ("replica",),
    ),
    Family(
        "replica_breaker",
        GAUGE,
        "Circuit breaker: 0 closed, 1 suspect, 2 half open, 3 open.",
        lambda parts: {
            name: float(BREAKERS.index(word)) for name, word in _breaker_words(parts).items()
        },
        ("replica",),
    ),
    Family("breakers", GAUGE, "Replicas, by circuit breaker.", _breakers, ("state",)),
    Family(
        "panic",
        GAUGE,
        "1: so few replicas of a model are fit that unfit ones are asked, too.",
        lambda parts: {name: float(panics) for name, panics in parts.fleet.panic.items()},
        ("model",),
    ),
    Family(
        "replica_spared_seconds",
        GAUGE,
        "How long a replica that said it is busy is still spared.",
        _spared,
        ("replica",),
    ),
    Family(
        "prefix_blocks",
        GAUGE,
        "Prefix blocks a replica is taken to hold.",
        lambda parts: {r.id: parts.knowledge.prefixes.holding(r) for r in _replicas(parts)},
        ("replica",),
    ),
    Family("prefix_index", COUNTER, "What the prefix index did.", _prefix_index, ("event",)),
    Family(
        "engine_aborts",
        COUNTER,
        "Engines told to stop an attempt that was given up, by what became of it.",
        lambda parts: {
            name: float(getattr(parts.aborter, name)) for name in ("told", "failed", "skipped")
        },
        ("outcome",),
    ),
    Family(
        "polls_failed",
        COUNTER,
        "Polls of engine metrics that told nothing, by what was wrong.",
        lambda parts: parts.fleet.polls_failed,
        ("problem",),
    ),
    Family(
        "signals_odd",
        COUNTER,
        "Figures in engines' metrics that could not be believed, by name.",
        lambda parts: parts.poller.odd,
        ("figure",),
    ),
    Family(
        "priority_ignored",
        COUNTER,
        "Priority numbers in bodies without a meaning in their pool, by its dialect.",
        lambda parts: parts.dispatcher.tenants.judge.ignored,
        ("dialect",),
    ),
    Family(
        "priority_clamped",
        COUNTER,
        "Requests that said more than their ceiling, by where they did and the class they have.",
        _clamped,
        ("source", "class"),
    ),
    Family(
        "stream_silence_seconds",
        GAUGE,
        "The longest that a stream under way has shown its client nothing, by class.",
        lambda parts: silence.by_class(parts.dispatcher.exchanges, monotonic()),
        ("class",),
    ),
    Family(
        "batches_under_way",
        GAUGE,
        "Batches that are not over, and lines of them under way.",
        _batches,
        ("what",),
    ),
    Family(
        "batch_attempts",
        COUNTER,
        "Attempts at lines of batches, by what the answer meant.",
        _batch_attempts,
        ("verdict",),
    ),
    Family(
        "kv_events",
        COUNTER,
        "KV cache events of engines, by what became of them.",
        lambda parts: counts_of(parts.kv_watcher.counters) if parts.kv_watcher else None,
        ("event",),
    ),
    Family(
        "token_questions",
        COUNTER,
        "Questions for a prompt's token ids, by how they were answered.",
        lambda parts: counts_of(parts.tokens.counters) if parts.tokens else None,
        ("answer",),
    ),
)


def _depth(driver: QueueDriver) -> dict[str, float]:
    depths = [queue.depth for queue in driver.pools.queues]
    return {name: float(sum(depth[n] for depth in depths)) for n, name in enumerate(CLASSES)}


def _eldest(driver: QueueDriver) -> dict[str, float]:
    now = monotonic()
    ages = [queue.ages_s(now) for queue in driver.pools.queues]
    return {name: max(age[n] for age in ages) for n, name in enumerate(CLASSES)}


def queue_counts(driver: QueueDriver) -> QueueCounts:
    """Of all pools together, those that are gone included."""
    counts = QueueCounts()
    for counted in (driver.pools.past, *(queue.counts for queue in driver.pools.queues)):
        counts.add(counted)
    return counts


def _counted(what: str) -> Callable[[QueueCounts], Values]:
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
    Family("queue_depth", GAUGE, "Requests that wait for a replica, by class.", _depth, ("class",)),
    Family(
        "queue_eldest_seconds",
        GAUGE,
        "How long the eldest of those that wait has, by class; 0: nobody waits.",
        _eldest,
        ("class",),
    ),
    Family(
        "queue_policy_errors",
        COUNTER,
        "Failures of the order policy; its lines go by arrival from then on.",
        _policy_errors,
        ("policy",),
    ),
)
QUEUE_COUNTS: Final[tuple[Family[QueueCounts], ...]] = (
    Family(
        "queue_passed",
        COUNTER,
        "Requests sent without having waited, by class.",
        _counted("passed"),
        ("class",),
    ),
    Family(
        "queue_queued",
        COUNTER,
        "Requests that began to wait, by class.",
        _counted("queued"),
        ("class",),
    ),
    Family(
        "queue_granted",
        COUNTER,
        "Requests sent after having waited, by class.",
        _counted("granted"),
        ("class",),
    ),
    Family(
        "queue_inverted",
        COUNTER,
        "Requests sent after having waited, while a more urgent one waited, by class.",
        _counted("inverted"),
        ("class",),
    ),
    Family(
        "queue_promoted",
        COUNTER,
        "Requests that waited so long that they went first, by class.",
        _counted("promoted"),
        ("class",),
    ),
    Family(
        "queue_preempted",
        COUNTER,
        "Requests put back for more urgent ones, by class.",
        _counted("preempted"),
        ("class",),
    ),
    Family(
        "queue_dropped",
        COUNTER,
        "Requests that were refused, expired or left before they were sent, by class and reason.",
        _dropped,
        ("class", "reason"),
    ),
)
