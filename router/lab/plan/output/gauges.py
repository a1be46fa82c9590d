"""Publishes a plan as Prometheus gauges, for an autoscaler.

`hedgerow_plan_desired_replicas` is the number of replicas that an autoscaler should set. An old
plan must not be used, so queries should compare `hedgerow_plan_timestamp_seconds` with the current
time.

`GaugeServer`: serves the gauges of the newest plan over HTTP, for Prometheus or KEDA's metrics-api
scaler.

Before the first plan, /metrics has no series. Must never: make a plan, or wait for one.
"""

from __future__ import annotations

from collections.abc import Iterator
from threading import Thread
from typing import Any, Final

from prometheus_client import CollectorRegistry, Gauge, generate_latest, start_http_server
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from router.lab.plan.decision.advise import REACTIVE
from router.lab.plan.planning import Planned

DESIRED: Final = "hedgerow_plan_desired_replicas"
_POOL: Final = ("model", "region", "type")
_PLACE: Final = ("model", "region")


def registry(made: Planned, at_s: float) -> CollectorRegistry:
    """Return the gauges of a plan. `at_s`: when the plan was made, in seconds since 1970."""
    found = CollectorRegistry()
    advice = made.advice
    desired = Gauge(DESIRED, "Replicas that the plan advises.", _POOL, registry=found)
    reactive = Gauge(
        "hedgerow_plan_reactive_replicas",
        "Replicas that the reactive rule asks for.",
        _POOL,
        registry=found,
    )
    present = Gauge(
        "hedgerow_plan_current_replicas",
        "Replicas that ran when the plan was made.",
        _POOL,
        registry=found,
    )
    for pool in advice.pools:
        labels = (pool.id.place.model, pool.id.place.region, pool.id.type)
        desired.labels(*labels).set(pool.planned)
        if pool.reactive is not None:
            reactive.labels(*labels).set(pool.reactive)
        if pool.now is not None:
            present.labels(*labels).set(pool.now)
    error = Gauge(
        "hedgerow_plan_forecast_error_ratio",
        "Error of the forecast on held-out windows (WAPE), as a share.",
        _PLACE,
        registry=found,
    )
    fallback = Gauge(
        "hedgerow_plan_fallback",
        "1 if the reactive rule decides, because the forecast is not trusted.",
        _PLACE,
        registry=found,
    )
    peak = Gauge(
        "hedgerow_plan_demand_tokens_per_second",
        "Peak of the demand that the plan must serve, with the waiting requests.",
        _PLACE,
        registry=found,
    )
    short = Gauge(
        "hedgerow_plan_unserved_ratio",
        "Share of the demand above the utilisation limit, in the worst window.",
        _PLACE,
        registry=found,
    )
    batch = Gauge(
        "hedgerow_plan_batch_share_ratio",
        "Share of the slots that class batch may use until the next plan (classes.batch.slots).",
        _PLACE,
        registry=found,
    )
    for place in advice.places:
        at = place.place
        if place.batch_share is not None:
            batch.labels(at.model, at.region).set(place.batch_share)
        if place.forecast.error is not None:
            error.labels(at.model, at.region).set(place.forecast.error)
        fallback.labels(at.model, at.region).set(place.binding == REACTIVE)
        peak.labels(at.model, at.region).set(place.peak)
        short.labels(at.model, at.region).set(place.short)
    cost = Gauge("hedgerow_plan_cost_per_hour", "Cost of the planned replicas.", registry=found)
    cost.set(advice.cost("planned") or 0.0)
    time = Gauge(
        "hedgerow_plan_timestamp_seconds",
        "When the plan was made, in seconds since 1970.",
        registry=found,
    )
    time.set(at_s)
    return found


def text(made: Planned, at_s: float) -> str:
    """Return the gauges in Prometheus' text format, for node_exporter's textfile collector."""
    return generate_latest(registry(made, at_s)).decode()


class GaugeServer:
    """The HTTP server of the gauges. Set `plan` to publish a plan.

    The constructor begins to listen, and raises OSError if it cannot.
    """

    def __init__(self, host: str, port: int) -> None:
        self.plan: CollectorRegistry | None = None
        registry = CollectorRegistry()
        registry.register(_Newest(self))
        self._server: Any
        self._thread: Thread
        self._server, self._thread = start_http_server(port, host, registry)

    @property
    def port(self) -> int:
        port: int = self._server.server_port
        return port

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Newest(Collector):
    def __init__(self, server: GaugeServer) -> None:
        self._server = server

    def collect(self) -> Iterator[Metric]:
        plan = self._server.plan
        if plan is not None:
            yield from plan.collect()
