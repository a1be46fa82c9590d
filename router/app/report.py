"""What a router says of itself: what it holds now, its replicas, its gauges."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any

from router.app import queued, silence
from router.app.parts import Parts
from router.core.urgency import CLASSES
from router.dispatch.engine_priority import dialect_of, is_honoured
from router.fleet.health import BREAKERS
from router.fleet.utilisation import slots_of, utilisation
from router.observe.collector import Gauges, Grid, Reading

_OF_A_REPLICA = (
    ("waiting", "waiting", "Requests that wait at a replica, ours and others'."),
    ("load", "load", "Requests at a replica, ours and others', running and waiting."),
    ("pending_tokens", "pending_tokens", "Uncached prompt tokens sent and not begun."),
    ("kv_polled", "kv_usage_ratio", "Share of the KV cache in use, as the engine reported it."),
    ("kv_tokens", "kv_tokens", "Tokens that fit into the KV cache."),
    ("ttft_s", "ttft_seconds", "Dispatch to first content, smoothed."),
    ("tpot_s", "tpot_seconds", "Seconds per output token, smoothed."),
)
STATES = ("ready", "unknown", "down", "asleep", "ejected", "half_open", "draining")


def census(parts: Parts) -> dict[str, int]:
    """What is in use now; every number is 0 after a stop."""
    replicas = [*parts.fleet.replicas.values(), *parts.fleet.leaving]
    open_ = sum(len(r.pool.all) for r in replicas)
    idle = sum(r.pool.idle for r in replicas)
    return {
        "leases": sum(r.inflight for r in replicas),
        "clients": len(parts.front.clients),
        "exchanges": len(parts.dispatcher.exchanges),
        "tunnels": len(parts.dispatcher.tunnels),
        "queued": queued.waiting(parts.dispatcher.queue),
        "batch_lines": parts.door.lines if parts.door is not None else 0,
        "replica_busy": open_ - idle,
        "replica_idle": idle,
        "replica_connecting": sum(r.pool.connecting for r in replicas),
        "replica_waiting": sum(r.pool.waiting for r in replicas),
        "held_bytes": parts.front.held_bytes,
        "retries": parts.dispatcher.context.budget.retries,
        "flows": len(parts.dispatcher.tenants.pending),
        "granted": parts.dispatcher.tenants.under_way,
        "key_places": parts.dispatcher.tenants.at_replicas,
        "aborts": parts.aborter.running,
        "kept_text": parts.dispatcher.context.store.held,
        "probes": parts.prober.running,
        "polls": parts.poller.running + (parts.kv_watcher.running if parts.kv_watcher else 0),
        "questions": parts.tokens.running if parts.tokens is not None else 0,
        "parties": len(parts.sweeper.parties),
    }


def replicas(parts: Parts) -> list[dict[str, Any]]:
    """For people and scripts: GET /replicas. Unknown is null."""
    now = monotonic()
    exact = parts.knowledge.exact
    closed = queued.closed(parts.dispatcher.queue)
    return [
        {
            "id": r.id,
            "url": r.config.url,
            "state": r.state(now),
            "breaker": r.health.breaker(now),
            "engine": r.engine,
            "priority": {
                "dialect": dialect_of(r).name,
                "honoured": is_honoured(r),
                "last_told": r.priority_told.decode("ascii") or None,
            },
            "models": sorted(r.models) if r.models is not None else None,
            "inflight": r.inflight,
            "max_inflight": r.config.max_inflight,
            "slots": slots_of(r),  # told by the engine, or learned
            "slots_told": r.signals.slots,
            "closed_to": closed.get(r.id, {}),
            "waiting": r.waiting,
            "load": r.load,
            "pending_tokens": r.pending_tokens,
            "kv_usage": r.kv_polled,  # as the engine reported it
            "kv_usage_estimate": r.kv_usage,  # now; what gates, policies and hedging use
            "kv_tokens": r.kv_tokens,
            "prefix_blocks": parts.knowledge.prefixes.holding(r),
            "exact_blocks": exact.entries(r) if exact is not None and r in exact else None,
            "signals_age_s": round(now - r.signals_at, 3) if r.signals_at else None,
            "ttft_s": r.ttft_s,
            "tpot_s": r.tpot_s,
            "weight": r.weight,
            "served": r.served,
            "failures_in_a_row": r.health.failures,
            "races_lost_in_a_row": r.health.races_lost,
            "busy_s": max(0.0, round(r.health.busy_until - now, 3)),
            "ejections": r.health.ejections,
            "connections": {"open": len(r.pool.all), "idle": r.pool.idle},
        }
        for r in (*parts.fleet.replicas.values(), *parts.fleet.leaving)
    ]


def classes(parts: Parts) -> str:
    """For the start-up event: the classes of urgency that a client may claim."""
    tenants = parts.dispatcher.tenants
    most = tenants.judge.open_ceiling
    if tenants.has_keys:
        return f"by API key; without a known key at most {most}"
    return f"unauthenticated: any client may claim {most}"


# Prompts, in uncached tokens, whose time to first content GET /hedging predicts.
_PREDICTED = (100, 1_000, 10_000, 100_000)


def hedging(parts: Parts) -> dict[str, Any]:
    """For people and scripts: GET /hedging. Unknown, and a delay that never ends, is null."""
    rules, counts = parts.config.hedging, parts.hedge_counts
    return {
        "policy": rules.policy,
        "options": rules.options,
        "dry_run": rules.dry_run,
        "classes": rules.classes,
        "budget_share": rules.budget,
        "budget_tokens": counts.budget_tokens,
        "hedgeable_share": counts.hedgeable_share,
        "quantile": counts.quantile,
        "utilisation": utilisation(parts.fleet.ready),
        "utilisation_limit": rules.utilisation,
        "counts": {
            "fired": counts.fired,
            "won": counts.won,
            "lost": counts.lost,
            "failed": counts.failed,
            "suppressed": {why: n for why, n in counts.suppressed.items() if n},
            "tokens": counts.fired_tokens,
            "wasted_tokens": counts.wasted_tokens,
            "saved_s": counts.saved_s,
            "suspects": counts.suspected,
            "policy_errors": counts.policy_errors,
            "dry_run": {
                "fired": counts.would_fire,
                "tokens": counts.would_fire_tokens,
                "won": counts.would_win,
                "saved_s": counts.would_save_s,
            },
        },
        # A copy goes when both have passed: so many times what is predicted, so many seconds.
        "models": [
            {
                "model": name or None,
                "stream": streamed,
                "is_warm": ttfts.is_warm,
                "delay_factor": ttfts.ratio,
                "delay_s": ttfts.seconds,
                "predicted_s": {str(n): ttfts.fit.predict(n) for n in _PREDICTED},
            }
            for name, streamed, ttfts in parts.hedger.plans()
        ],
    }


def gauges(parts: Parts, ready: Callable[[], bool], draining: Callable[[], bool]) -> Gauges:
    fleet = parts.fleet

    def by_state() -> dict[str, float]:
        now = monotonic()
        counts = dict.fromkeys(STATES, 0.0)
        for replica in (*fleet.replicas.values(), *fleet.leaving):
            counts[replica.state(now)] += 1
        return counts

    def connections() -> dict[str, float]:
        held = census(parts)
        return {name: held[f"replica_{name}"] for name in ("idle", "busy", "connecting")}

    return Gauges(
        replicas_by_state=by_state,
        inflight_by_replica=lambda: {r.id: r.inflight for r in fleet.replicas.values()},
        replica_connections_by_state=connections,
        client_connections=lambda: len(parts.front.clients),
        exchanges=lambda: len(parts.dispatcher.exchanges),
        held_body_bytes=lambda: parts.front.held_bytes,
        # Of the log and of those that a reload put away: their last lines may still be waiting.
        access_log_dropped=lambda: sum(log.dropped for log in (*parts.old_logs, parts.log)),
        open_file_limit=lambda: parts.open_files,
        loop_lag_s=lambda: parts.sweeper.lag_s,
        ready=lambda: float(ready()),
        draining=lambda: float(draining()),
        readings=lambda: _readings(parts),
    )


def _readings(parts: Parts) -> Iterator[Reading | Grid]:
    """What the fleet knows of its engines; what is unknown is not shown."""
    replicas = list(parts.fleet.replicas.values())
    for attribute, name, help_text in _OF_A_REPLICA:
        values = {r.id: v for r in replicas if (v := getattr(r, attribute)) is not None}
        yield Reading(f"replica_{name}", help_text, "replica", values)
    now = monotonic()
    breakers = {r.id: r.health.breaker(now) for r in replicas}
    help_text = "Circuit breaker: 0 closed, 1 suspect, 2 half open, 3 open."
    numbers = {name: float(BREAKERS.index(word)) for name, word in breakers.items()}
    yield Reading("replica_breaker", help_text, "replica", numbers)
    counts = dict.fromkeys(BREAKERS, 0.0)
    for word in breakers.values():
        counts[word] += 1.0
    yield Reading("breakers", "Replicas, by circuit breaker.", "state", counts)
    panic = {name: float(is_panicking) for name, is_panicking in parts.fleet.panic.items()}
    help_text = "1: so few replicas of a model are fit that unfit ones are asked, too."
    yield Reading("panic", help_text, "model", panic)
    busy = {r.id: max(0.0, r.health.busy_until - now) for r in replicas}
    help_text = "How long a replica that said it is busy is still spared."
    yield Reading("replica_spared_seconds", help_text, "replica", busy)
    held = {r.id: float(parts.knowledge.prefixes.holding(r)) for r in replicas}
    yield Reading("prefix_blocks", "Prefix blocks a replica is taken to hold.", "replica", held)
    aborts = {name: float(getattr(parts.aborter, name)) for name in ("told", "failed", "skipped")}
    help_text = "Engines told to stop an attempt that was given up, by what became of it."
    yield Reading("engine_aborts", help_text, "outcome", aborts, is_counter=True)
    failed = parts.fleet.polls_failed
    help_text = "Polls of engine metrics that told nothing, by what was wrong."
    yield Reading("polls_failed", help_text, "problem", failed, is_counter=True)
    help_text = "Figures in engines' metrics that could not be believed, by name."
    yield Reading("signals_odd", help_text, "figure", parts.poller.odd, is_counter=True)
    help_text = "Attempts whose replica was not told that they are more or less urgent."
    dropped = {r: float(n) for r, n in parts.metrics.priority_dropped_by_replica.items()}
    yield Reading("priority_dropped", help_text, "replica", dropped, is_counter=True)
    help_text = "Priority numbers in bodies without a meaning in their pool, by its dialect."
    ignored = {why: float(n) for why, n in parts.dispatcher.tenants.judge.ignored.items()}
    yield Reading("priority_ignored", help_text, "dialect", ignored, is_counter=True)
    yield Grid(
        "priority_clamped",
        "Requests that said more than their ceiling, by where they did and the class they have.",
        ("source", "class"),
        {
            (source, name): float(count)
            for source, counted in parts.dispatcher.tenants.judge.clamped.items()
            for name, count in zip(CLASSES, counted, strict=True)
            if count
        },
        is_counter=True,
    )
    help_text = "The longest that a stream under way has shown its client nothing, by class."
    silences = silence.by_class(parts.dispatcher.exchanges, now)
    yield Reading("stream_silence_seconds", help_text, "class", silences)
    yield from queued.readings(parts.dispatcher.queue)
    stats = parts.knowledge.prefixes.stats
    help_text = "What the prefix index did."
    totals = {"lookups": stats.lookups, "hits": stats.hits, "evictions": stats.evictions}
    yield Reading("prefix_index", help_text, "event", totals, is_counter=True)
    if parts.door is not None and parts.door.runner is not None:
        runner = parts.door.runner
        lines = runner.lines
        help_text = "Batches that are not over, and lines of them under way."
        held = {"batches": float(runner.running), "lines": float(lines.under_way)}
        yield Reading("batches_under_way", help_text, "what", held)
        help_text = "Attempts at lines of batches, by what the answer meant."
        ended = {name: float(n) for name, n in lines.ended.items()}
        yield Reading("batch_attempts", help_text, "verdict", ended, is_counter=True)
    if parts.kv_watcher is not None and parts.tokens is not None:
        yield Reading(
            "kv_events",
            "KV cache events of engines, by what became of them.",
            "event",
            counts_of(parts.kv_watcher.counters),
            is_counter=True,
        )
        yield Reading(
            "token_questions",
            "Questions for a prompt's token ids, by how they were answered.",
            "answer",
            counts_of(parts.tokens.counters),
            is_counter=True,
        )


def counts_of(counters: object) -> dict[str, float]:
    return {name: float(getattr(counters, name)) for name in type(counters).__slots__}  # type: ignore[attr-defined]
