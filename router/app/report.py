"""The admin API's reports on resources in use, replicas and hedging."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from router.app import predictions, queued
from router.app.parts import Parts
from router.core.clock import monotonic, time
from router.core.errors import Reason, Source
from router.dispatch.attempts.engine_priority import dialect_of, is_honoured
from router.fleet.replica import Replica
from router.fleet.utilisation import slots_of, utilisation

STATES = (
    *("ready", "unknown", "down", "asleep", "ejected", "half_open"),
    *("standby", "cordoned", "draining", "drained"),
)

# The answers of a replica that need not be its fault: 4xx, and 429 or 503.
_NO_FAULT = (Reason.REPLICA_REFUSED, Reason.REPLICA_BUSY)


def census(parts: Parts) -> dict[str, int]:
    """Return the numbers of resources in use now. Every number is 0 after a stop."""
    everyone = [*parts.fleet.replicas.values(), *parts.fleet.leaving]
    resumption = parts.context.resumption
    replicas = [r for r in everyone if not r.rank]  # The ranks of an address share connections.
    open_ = sum(len(r.pool.all) for r in replicas)
    idle = sum(r.pool.idle for r in replicas)
    return {
        "leases": sum(r.inflight for r in everyone),
        "clients": len(parts.front.clients),
        "exchanges": len(parts.dispatcher.exchanges),
        "tunnels": len(parts.dispatcher.tunnels),
        "queued": queued.waiting(parts.queue),
        "replica_busy": open_ - idle,
        "replica_idle": idle,
        "replica_connecting": sum(r.pool.connecting for r in replicas),
        "replica_waiting": sum(r.pool.waiting for r in replicas),
        "held_bytes": parts.front.held_bytes,
        "retries": parts.context.budget.retries,
        "flows": len(parts.dispatcher.tenants.pending),
        "granted": parts.dispatcher.tenants.under_way,
        "key_places": parts.dispatcher.tenants.at_replicas,
        "aborts": parts.aborter.running,
        "kept_text": 0 if resumption is None else resumption.kept_bytes(),
        "probes": parts.prober.running,
        "polls": parts.poller.running
        + parts.discovery.running
        + sum(addon.running for addon in parts.addons.values()),
        "parties": len(parts.sweeper.parties),
        **{name: n for addon in parts.addons.values() for name, n in addon.held().items()},
    }


def replicas(parts: Parts) -> list[dict[str, Any]]:
    """Return the data of GET /replicas. An unknown value is null."""
    return _described(parts, (*parts.fleet.replicas.values(), *parts.fleet.leaving))


def replica(parts: Parts, r: Replica) -> dict[str, Any]:
    """Return the data of GET /replicas for one replica."""
    return _described(parts, (r,))[0]


def _described(parts: Parts, found: Sequence[Replica]) -> list[dict[str, Any]]:
    closed, failures, now = queued.closed(parts.queue), _failures(parts), monotonic()
    return [_one(parts, r, closed.get(r.id, {}), failures.get(r.id, {}), now) for r in found]


def _one(
    parts: Parts, r: Replica, closed: Mapping[str, str], failures: Mapping[str, int], now: float
) -> dict[str, Any]:
    return {
        **_state(parts, r, now),
        **_served(r),
        **_load(parts, r, closed, now),
        # The present weight, which is below the configured weight in a slow start, and after a
        # hedged copy was faster.
        "weight": r.weight,
        "weight_configured": r.config.weight,
        "served": r.health.served,
        "failed": sum(n for reason, n in failures.items() if reason not in _NO_FAULT),
        "failures": failures,  # Number of attempts that the replica failed, by reason.
        "failures_in_a_row": r.health.failures,
        "races_lost_in_a_row": r.health.races_lost,
        "busy_s": max(0.0, round(r.health.busy_until - now, 3)),
        "ejected_s": max(0.0, round(r.health.ejected_until - now, 3)),
        "ejections": r.health.ejections,
        "connections": {"open": len(r.pool.all), "idle": r.pool.idle},
    }


def _state(parts: Parts, r: Replica, now: float) -> dict[str, Any]:
    """Return what the replica is, and its state."""
    state, left = r.state(now), parts.reclaims.seconds_left(r)
    age_s = max(0.0, now - r.standing.since)
    reclaimed = None if left is None else "a notice says that its machine is reclaimed"
    return {
        "id": r.id,
        "url": r.config.url,
        # The rank of the replica, if the router chooses the rank; else null.
        "data_parallel_rank": r.rank_number if len(r.ranks) > 1 else None,
        **_origin(parts, r),
        "state": state,
        # Why the replica is in this state, and since when (UTC).
        "why": reclaimed or r.why(now) or None,
        "since": _date(time() - age_s),
        "since_s": round(age_s, 3),
        # Requests are sent to it although it is not ready, because too few replicas of its models
        # are.
        "panic": r.is_fit and state not in ("ready", "half_open"),
        "spot": r.is_spot,
        "type": r.config.type or None,
        # Seconds until the machine goes away, according to a notice; null: there is no notice.
        "reclaimed_in_s": left,
        "up": r.health.up,  # The result of the last probes; a cordoned replica is probed, too.
        "breaker": r.health.breaker(now),
    }


def _served(r: Replica) -> dict[str, Any]:
    """Return what the replica serves, and where it is."""
    return {
        "engine": r.engine,
        "priority": {
            "dialect": dialect_of(r).name,
            "honoured": is_honoured(r),
            "last_sent": r.last_priority.decode("ascii") or None,
        },
        "models": sorted(r.models) if r.models is not None else None,
        "region": r.region or None,
        "zone": r.config.zone or None,
        # The measured round-trip time from the router.
        "rtt_ms": round(r.learned.round_trip.seconds * 1000.0, 3) or None,
    }


def _load(parts: Parts, r: Replica, closed: Mapping[str, str], now: float) -> dict[str, Any]:
    """Return what the replica does now, and how fast it is."""
    knowledge = parts.fleet.knowledge
    return {
        "inflight": r.inflight,
        "max_inflight": r.config.max_inflight,
        # How many requests the replica runs at once, as reported by the engine or learned.
        "slots": slots_of(r),
        "slots_reported": r.reports.signals.slots,
        "closed_to": closed,
        "waiting": r.waiting,
        "load": r.load,
        "pending_tokens": r.pending_tokens,
        "kv_usage": r.kv_polled,  # KV cache usage as the engine last reported it.
        # The estimate of the KV cache usage now, used by gates and policies.
        "kv_usage_estimate": r.kv_usage,
        "kv_tokens": r.kv_tokens,
        "prefix_blocks": knowledge.prefixes.holding(r),
        "exact_blocks": None if knowledge.exact is None else knowledge.exact.blocks(r),
        "signals_age_s": round(now - r.reports.at, 3) if r.reports.at else None,
        "ttft_s": r.ttft_s,
        "tpot_s": r.tpot_s,
        "speed": predictions.report(r),  # The learned speed, and the error of predictions.
    }


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).isoformat().replace("+00:00", "Z")


def _failures(parts: Parts) -> dict[str, dict[str, int]]:
    """Return how many attempts each replica has failed, by ID and reason."""
    found: dict[str, dict[str, int]] = {}
    for (replica_id, _, reason), count in parts.metrics.attempts.items():
        if reason.source is Source.REPLICA:
            counts = found.setdefault(replica_id, {})
            counts[reason.value] = counts.get(reason.value, 0) + count
    return found


def _origin(parts: Parts, r: Replica) -> dict[str, str | None]:
    """Return where the replica comes from. `source`: the source of discovery that names it."""
    if r.removed:
        return {"origin": None, "source": None}
    member = parts.origins.discovered.get(r.id)
    if member is not None:
        return {"origin": "discovery", "source": member.source}
    return {"origin": "api" if r.id in parts.origins.added else "file", "source": None}


def classes(parts: Parts) -> str:
    """Return which priority classes clients may request, as text for the log event at start."""
    tenants = parts.dispatcher.tenants
    most = tenants.judge.open_ceiling
    if tenants.requires_keys:
        return "by API key; without a known key 401"
    if tenants.has_keys:
        return f"by API key; without a known key at most {most}"
    return f"no API keys: every client may use class {most}"


# The prompt sizes, in uncached tokens, for which GET /hedging predicts the time to first content.
_PREDICTED = (100, 1_000, 10_000, 100_000)


def hedging(parts: Parts) -> dict[str, Any]:
    """Return the data of GET /hedging. An unknown value and an infinite delay are null."""
    rules, counts = parts.config.hedging, parts.hedge_counts
    return {
        "policy": rules.policy,
        "options": rules.options,
        "dry_run": rules.dry_run,
        "classes": rules.classes,
        "budget_share": rules.budget,
        "budget_tokens": counts.budget_tokens,
        "class_delay_s": rules.delay,
        "hedgeable_share": counts.hedgeable_share,
        "quantile": counts.quantile,
        "utilisation": utilisation(parts.fleet.serving.ready),
        "utilisation_limit": rules.utilisation,
        "counts": {
            "fired": counts.fired,
            "won": counts.won,
            "lost": counts.lost,
            "failed": counts.failed,
            "causes": {why: n for why, n in counts.causes.items() if n},
            "suppressed": {why: n for why, n in counts.suppressed.items() if n},
            "idle": {"fired": counts.idle, "tokens": counts.idle_tokens},
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
        # A second copy is sent when two delays have passed: `delay_factor` times the predicted
        # time, and `delay_s`.
        "models": [
            {
                "model": name or None,
                "stream": streamed,
                "is_warm": ttfts.is_warm,
                "delay_factor": ttfts.ratio,
                "delay_s": ttfts.seconds,
                "predicted_s": {str(n): ttfts.predict(n, 1.0) for n in _PREDICTED},
            }
            for name, streamed, ttfts in parts.context.hedger.times.entries()
        ],
    }
