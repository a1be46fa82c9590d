"""Declares `Metrics`' counters as Prometheus metrics: of requests, attempts, connections, tenants.

The usage of tenants is summed over all priority classes: /metrics is read every few seconds, so it
must not have too many time series. GET /usage returns the usage of more tenants, by class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Final

from router.observe.families.family import INFO, Family, counter, gauge, histogram
from router.observe.metrics import (
    TOKEN_KINDS,
    ClassCounts,
    Histogram,
    KindCounts,
    Metrics,
    ModelEnds,
    SloCounts,
    TokenCounts,
)
from router.observe.tenant_usage import OTHERS, TenantUsage, Used, together


def _kinds(metrics: Metrics) -> dict[str, KindCounts]:
    return {kind: counts for kind, counts in metrics.kinds.items() if counts.ends}


def _ends(
    counted: Mapping[str, KindCounts] | Mapping[str, ModelEnds],
) -> dict[tuple[str, ...], float]:
    return {
        (name, reason.value, str(status)): count
        for name, counts in counted.items()
        for (reason, status), count in counts.ends.items()
    }


def _filled(histograms: dict[str, Histogram]) -> dict[str, Histogram]:
    return {name: each for name, each in histograms.items() if any(each.counts)}


def _models(metrics: Metrics) -> dict[tuple[str, ...], float]:
    return {key: float(counts.requests) for key, counts in metrics.models.items()}


def _tokens(
    counted: Iterable[tuple[tuple[str, ...], TokenCounts]],
) -> dict[tuple[str, ...], float]:
    return {
        (*key, kind): float(getattr(counts, kind))
        for key, counts in counted
        for kind in TOKEN_KINDS
    }


def _attempts(metrics: Metrics) -> dict[tuple[str, ...], float]:
    return {(name, kind, why.value): n for (name, kind, why), n in metrics.attempts.items()}


def _slos(metrics: Metrics, count: Callable[[SloCounts], int]) -> dict[tuple[str, ...], float]:
    return {
        (name, slo): count(counts)
        for name, each in metrics.classes.items()
        if each.slo_whole.requests
        for slo, counts in (
            ("ttft", each.slo_ttft),
            ("tpot", each.slo_tpot),
            ("all", each.slo_whole),
        )
    }


def _gains(metrics: Metrics, gain: Callable[[ClassCounts], float]) -> dict[str, float]:
    return {n: gain(each) for n, each in metrics.classes.items() if each.slo_whole.requests}


def _estimates(metrics: Metrics, count: Callable[[ClassCounts], float]) -> dict[str, float]:
    return {n: count(each) for n, each in metrics.classes.items() if each.estimates}


FAMILIES: Final[tuple[Family[Metrics], ...]] = (
    counter(
        "requests",
        "Requests ended, by route kind, reason of the end and status sent.",
        lambda m: _ends(_kinds(m)),
        "kind",
        "reason",
        "status",
    ),
    histogram(
        "request_duration_seconds",
        "From the request's first byte to the end of its answer.",
        lambda m: {kind: counts.duration for kind, counts in _kinds(m).items()},
        "kind",
    ),
    histogram(
        "request_ttft_seconds",
        "From the request's first byte to the first content event sent to the client.",
        lambda m: _filled({kind: counts.ttft for kind, counts in _kinds(m).items()}),
        "kind",
    ),
    histogram(
        "class_ttft_seconds",
        "Time to first content of generating streams, by priority class; `none`: no class.",
        lambda m: _filled({name: counts.ttft for name, counts in m.classes.items()}),
        "class",
    ),
    histogram(
        "class_tpot_seconds",
        "Time per output token of streams whose client read all the time, by priority class.",
        lambda m: _filled({name: counts.tpot for name, counts in m.classes.items()}),
        "class",
    ),
    histogram(
        "class_duration_seconds",
        "From the first byte to the end, of successful requests, by priority class.",
        lambda m: _filled({name: counts.duration for name, counts in m.classes.items()}),
        "class",
    ),
    counter(
        "slo_requests",
        "Requests to which an SLO applied, by class. `all`: every SLO that applies to the request.",
        lambda m: _slos(m, lambda counts: counts.requests),
        "class",
        "slo",
    ),
    counter(
        "slo_met",
        "Requests that met the SLO, by class.",
        lambda m: _slos(m, lambda counts: counts.met),
        "class",
        "slo",
    ),
    counter(
        "gain_achieved",
        "Output tokens before their deadlines, times the weight of the class, by class.",
        lambda m: _gains(m, lambda counts: counts.gain_achieved),
        "class",
    ),
    counter(
        "gain_attainable",
        "The same if every token had come before its deadline, of failed requests as well.",
        lambda m: _gains(m, lambda counts: counts.gain_attainable),
        "class",
    ),
    counter(
        "ttft_estimates",
        "Streams with an estimated TTFT that was compared with the actual one, by class.",
        lambda m: _estimates(m, lambda counts: counts.estimates),
        "class",
    ),
    counter(
        "ttft_estimates_kept",
        "Of these streams, those whose TTFT was within the 90 % interval, by class.",
        lambda m: _estimates(m, lambda counts: counts.estimates_kept),
        "class",
    ),
    counter(
        "ttft_estimate_width_seconds",
        "Sum of the widths of the 90 % intervals of these streams, by class.",
        lambda m: _estimates(m, lambda counts: counts.estimate_width_s),
        "class",
    ),
    histogram(
        "queue_wait_seconds",
        "Each wait of a request in the queue that ended with a dispatch, by priority class.",
        lambda m: _filled({name: counts.wait for name, counts in m.classes.items()}),
        "class",
    ),
    counter(
        "request_body_bytes",
        "Body bytes received from clients.",
        lambda m: {kind: counts.bytes_in for kind, counts in _kinds(m).items()},
        "kind",
    ),
    counter(
        "response_body_bytes",
        "Body bytes sent to clients.",
        lambda m: {kind: counts.bytes_out for kind, counts in _kinds(m).items()},
        "kind",
    ),
    counter(
        "model_requests",
        "Requests ended, by model, region that the client prefers, and class; models after the "
        "first hundred count as `other`.",
        _models,
        "model",
        "region",
        "class",
    ),
    counter(
        "model_tokens",
        "Tokens reported or counted, by model, region that the client prefers, class and kind; "
        "cached ones are also prompt tokens.",
        lambda m: _tokens(m.models.items()),
        "model",
        "region",
        "class",
        "kind",
    ),
    counter(
        "model_ends",
        "Requests ended, by model, reason of the end and status sent. A target of a split with a "
        "pool is the model `model@pool`.",
        lambda m: _ends(m.model_ends),
        "model",
        "reason",
        "status",
    ),
    histogram(
        "model_ttft_seconds",
        "Time to first content of generating streams, by model.",
        lambda m: _filled({name: counts.ttft for name, counts in m.model_ends.items()}),
        "model",
    ),
    counter(
        "replica_tokens",
        "Tokens reported or counted, by the replica that answered and kind; cached ones are also "
        "prompt tokens.",
        lambda m: _tokens(((name,), each) for name, each in m.tokens_by_replica.items()),
        "replica",
        "kind",
    ),
    counter(
        "attempts",
        "Attempts ended, by replica, kind and reason of the end.",
        _attempts,
        "replica",
        "attempt",
        "reason",
    ),
    counter(
        "retries",
        "Retries sent, by how the previous attempt ended.",
        lambda m: {cause.value: count for cause, count in m.retries_by_cause.items()},
        "cause",
    ),
    counter(
        "fallbacks",
        "Requests that went to a fallback of their model, by the condition.",
        lambda m: m.fallbacks_by_cause,
        "cause",
    ),
    counter(
        "replica_ejections",
        "Ejections of replicas after failures, or errors that other replicas do not give.",
        lambda m: m.ejections_by_replica,
        "replica",
    ),
    counter(
        "priority_dropped",
        "Attempts that were sent without their priority.",
        lambda m: m.priority_dropped_by_replica,
        "replica",
    ),
    counter(
        "client_connections_accepted",
        "Client connections accepted.",
        lambda m: m.client_connections,
    ),
    counter(
        "replica_connections_opened",
        "Connections opened to replicas.",
        lambda m: m.connections_opened,
    ),
    counter(
        "replica_connections_reused",
        "Attempts sent on a reused connection.",
        lambda m: m.connections_reused,
    ),
    counter(
        "replica_connections_stale",
        "Idle connections that the replica had closed when they were reused.",
        lambda m: m.connections_stale,
    ),
    counter(
        "policy_errors",
        "Failures of a routing policy; a random choice was used instead.",
        lambda m: m.policy_errors,
    ),
    counter(
        "retry_budget_exhausted",
        "Retries not sent because too many were under way.",
        lambda m: m.retry_budget_exhausted,
    ),
    counter(
        "priority_refused",
        "Responses that showed that an engine does not accept a priority.",
        lambda m: m.priority_refused,
    ),
    counter(
        "streams_committed_early",
        "Streams that got 200 and comments before any content.",
        lambda m: m.streams_committed_early,
    ),
    counter(
        "config_reloads",
        "Configuration reloads, by result.",
        lambda m: {"ok": m.reloads.ok, "failed": m.reloads.failed},
        "result",
    ),
    gauge(
        "config_reload_success",
        "1 if the last reload succeeded, 0 if the previous configuration stayed in use.",
        lambda m: float(m.reloads.last_is_ok),
    ),
    Family(
        "config",
        INFO,
        "The hash of the configuration in use.",
        lambda m: {"hash": m.reloads.config_hash},
    ),
)


# The number of tenants with their own time series. They are the first tenants that sent a request,
# so that the set of series does not change.
NAMED: Final = 200


def named(usage: TenantUsage) -> dict[str, Used]:
    """Return the usage by tenant. All tenants without their own time series are summed."""
    tenants = usage.tenants
    found = {name: together(tenants[name]) for name in islice(tenants, NAMED)}
    for name in islice(tenants, NAMED, None):
        others = found.setdefault(OTHERS, Used())
        for used in tenants[name].values():
            others.add(used)
    return found


def _tokens_of_tenants(tenants: dict[str, Used]) -> dict[tuple[str, ...], float]:
    return {
        (name, kind): number
        for name, used in tenants.items()
        for kind, number in (
            ("prompt", used.prompt),
            ("output", used.output),
            ("cached", used.cached),
        )
    }


TENANTS: Final[tuple[Family[dict[str, Used]], ...]] = (
    counter(
        "tenant_requests",
        f"Generation requests, by the name of their key: the first {NAMED} names.",
        lambda tenants: {name: used.requests for name, used in tenants.items()},
        "tenant",
    ),
    counter(
        "tenant_tokens",
        "Tokens used, by the name of the key and kind; cached ones are also prompt tokens.",
        _tokens_of_tenants,
        "tenant",
        "kind",
    ),
    counter(
        "tenant_cost",
        "Cost of the tokens by `usage.prices`, by the name of the key.",
        lambda tenants: {name: used.cost for name, used in tenants.items() if used.is_priced},
        "tenant",
    ),
)
