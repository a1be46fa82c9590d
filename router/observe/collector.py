"""Renders the router's numbers for Prometheus: counters from `Metrics`, gauges read when asked.

prometheus_client only formats here: its objects are built per scrape, family by family, so that a
scrape can be cut into small pieces between which the event loop serves tokens (`render`).

Must never: register anything in prometheus_client's global registry, emit a family outside
`hedgerow_*`, or fail as a whole because one gauge does.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from typing import TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector as CollectorBase

from router.observe.events import log_event
from router.observe.hedge_counts import HedgeCounts
from router.observe.hedge_families import hedging_families
from router.observe.metrics import (
    OTHER,
    REPLICAS_MAX,
    TOKEN_KINDS,
    Histogram,
    Metrics,
    label,
)
from router.observe.tenant_families import tenant_families

PIECE_SAMPLES = 200  # formatted between two turns of the event loop; about 5 us each
_EOF = b"# EOF\n"  # ends an OpenMetrics text
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

Number = Callable[[], float | None]  # None: unknown, and then nothing is shown
Numbers = Callable[[], Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Reading:
    """One family that somebody else counts: its numbers by the values of one label."""

    name: str  # without `hedgerow_` (and a counter's `_total`)
    help: str
    label: str
    values: Mapping[str, float]
    is_counter: bool = False


@dataclass(frozen=True, slots=True)
class Grid:
    """The same by several labels, each of which has few values: they are not held to a number."""

    name: str
    help: str
    labels: tuple[str, ...]
    values: Mapping[tuple[str, ...], float]
    is_counter: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    """What others own and the scrape reads; whatever is not given is not shown."""

    replicas_by_state: Numbers | None = None
    inflight_by_replica: Numbers | None = None
    replica_connections_by_state: Numbers | None = None  # "idle", "busy"
    client_connections: Number | None = None  # open now
    exchanges: Number | None = None  # requests under way
    held_body_bytes: Number | None = None
    access_log_dropped: Number | None = None  # lines since the start
    open_file_limit: Number | None = None
    loop_lag_s: Number | None = None
    ready: Number | None = None  # 1 or 0
    draining: Number | None = None  # 1 or 0
    readings: Callable[[], Iterable[Reading | Grid]] | None = None  # what the fleet knows


class Collector(CollectorBase):
    """A prometheus_client collector over `Metrics` and `Gauges`, alone in a registry of its own."""

    def __init__(
        self,
        metrics: Metrics,
        gauges: Gauges | None = None,
        hedging: HedgeCounts | None = None,
    ) -> None:
        self._metrics = metrics
        self._gauges = gauges or Gauges()
        self._hedging = hedging
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Nothing: a registration must not read gauges that are not there yet."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Every family, each read at one instant."""
        yield from self._requests()
        yield from self._attempts()
        if self._hedging is not None:
            yield from hedging_families(self._hedging)
        yield from self._totals()
        yield from self._config()
        yield from self._read_gauges()
        yield from self._read_readings()
        yield from _process()

    async def render(self, accept: str = "") -> tuple[bytes, str]:
        """The text and its content type, as the Accept header asks.

        Lets the event loop run after every family and every PIECE_SAMPLES of a large one: a scrape
        of a thousand replicas takes 20 ms, a piece about one. A thread would be worse: each of its
        turns holds the GIL for 5 ms.
        """
        encode, content_type = choose_encoder(accept)
        parts = []
        ended = False
        for family in self.collect():
            for piece in _pieces(family):
                text = encode(_OneFamily(piece))
                if text.endswith(_EOF):
                    text, ended = text[: -len(_EOF)], True
                parts.append(text if piece is family else _without_header(text))
                await asyncio.sleep(0)
        if ended:
            parts.append(_EOF)
        return b"".join(parts), content_type

    def _requests(self) -> Iterator[Metric]:
        kinds = [(kind, counts) for kind, counts in self._metrics.kinds.items() if counts.ends]
        requests = CounterMetricFamily(
            "hedgerow_requests",
            "Requests ended, by route kind, reason of the end and status sent.",
            labels=("kind", "reason", "status"),
        )
        for kind, counts in kinds:
            for (reason, status), count in counts.ends.items():
                requests.add_metric((kind, reason.value, str(status)), count)
        yield requests

        duration = HistogramMetricFamily(
            "hedgerow_request_duration_seconds",
            "From the request's first byte to the end of its answer.",
            labels=("kind",),
            unit="seconds",
        )
        for kind, counts in kinds:
            _add_histogram(duration, kind, counts.duration)
        yield duration
        ttft = HistogramMetricFamily(
            "hedgerow_request_ttft_seconds",
            "From the request's first byte to the first content event sent to the client.",
            labels=("kind",),
            unit="seconds",
        )
        for kind, counts in kinds:
            if any(counts.ttft.counts):
                _add_histogram(ttft, kind, counts.ttft)
        yield ttft

        classes = self._metrics.classes
        yield _by_class(
            "hedgerow_class_ttft_seconds",
            "The same of streams that generate, by class of urgency; `none`: they name none.",
            {name: counts.ttft for name, counts in classes.items()},
        )
        yield _by_class(
            "hedgerow_class_tpot_seconds",
            "Seconds per output token after the first, of streams, by class of urgency.",
            {name: counts.tpot for name, counts in classes.items()},
        )
        yield _by_class(
            "hedgerow_class_duration_seconds",
            "From the first byte to the end, of those that ended well, by class of urgency.",
            {name: counts.duration for name, counts in classes.items()},
        )
        yield _by_class(
            "hedgerow_queue_wait_seconds",
            "From arrival to dispatch, of requests that waited in the queue, by class of urgency.",
            {name: counts.wait for name, counts in classes.items()},
        )

        received = CounterMetricFamily(
            "hedgerow_request_body_bytes",
            "Body bytes received from clients.",
            labels=("kind",),
            unit="bytes",
        )
        sent = CounterMetricFamily(
            "hedgerow_response_body_bytes",
            "Body bytes sent to clients.",
            labels=("kind",),
            unit="bytes",
        )
        for kind, counts in kinds:
            received.add_metric((kind,), counts.bytes_in)
            sent.add_metric((kind,), counts.bytes_out)
        yield received
        yield sent

        models = CounterMetricFamily(
            "hedgerow_model_requests",
            "Requests ended, by model; the first hundred models, then `other`.",
            labels=("model",),
        )
        named = {name: float(count) for name, count in self._metrics.models.items()}
        if self._metrics.models_other:
            named[OTHER] = named.get(OTHER, 0) + self._metrics.models_other
        for name, requests_count in _merged(named).items():
            models.add_metric((name,), requests_count)
        yield models
        tokens = CounterMetricFamily(
            "hedgerow_model_tokens",
            "Tokens told or counted, by model and kind; cached ones are prompt tokens too.",
            labels=("model", "kind"),
        )
        for name, counted in self._metrics.tokens.items():
            for kind, number in zip(TOKEN_KINDS, counted, strict=True):
                tokens.add_metric((label(name), kind), number)
        yield tokens
        yield from tenant_families(self._metrics.usage)

    def _attempts(self) -> Iterator[Metric]:
        attempts = CounterMetricFamily(
            "hedgerow_attempts",
            "Attempts ended, by replica, kind and reason of the end.",
            labels=("replica", "attempt", "reason"),
        )
        for (replica, kind, reason), count in self._metrics.attempts.items():
            attempts.add_metric((label(replica), kind, reason.value), count)
        yield attempts
        retries = CounterMetricFamily(
            "hedgerow_retries",
            "Retries sent, by how the attempt before ended.",
            labels=("cause",),
        )
        for cause, count in self._metrics.retries_by_cause.items():
            retries.add_metric((cause.value,), count)
        yield retries
        continuations = CounterMetricFamily(
            "hedgerow_continuations",
            "Streams that broke after content, by whether another replica went on or why not.",
            labels=("outcome",),
        )
        for outcome, count in self._metrics.continuations.items():
            continuations.add_metric((outcome,), count)
        yield continuations
        ejections = CounterMetricFamily(
            "hedgerow_replica_ejections",
            "Replicas taken out after failures in a row.",
            labels=("replica",),
        )
        for replica, count in self._metrics.ejections_by_replica.items():
            ejections.add_metric((label(replica),), count)
        yield ejections

    def _totals(self) -> Iterator[Metric]:
        metrics = self._metrics
        for name, help_text, value in (
            (
                "client_connections_accepted",
                "Client connections accepted.",
                metrics.client_connections,
            ),
            (
                "replica_connections_opened",
                "Connections opened to replicas.",
                metrics.connections_opened,
            ),
            (
                "replica_connections_reused",
                "Attempts sent on a kept connection.",
                metrics.connections_reused,
            ),
            (
                "replica_connections_stale",
                "Kept connections found dead when used.",
                metrics.connections_stale,
            ),
            (
                "policy_errors",
                "Picks a routing policy failed at and a random choice replaced.",
                metrics.policy_errors,
            ),
            (
                "retry_budget_exhausted",
                "Retries not sent because too many were under way.",
                metrics.retry_budget_exhausted,
            ),
            (
                "priority_refused",
                "Answers by which an engine was found to know no priority.",
                metrics.priority_refused,
            ),
            (
                "streams_committed_early",
                "Streams that got 200 and comments before any content.",
                metrics.streams_committed_early,
            ),
        ):
            yield CounterMetricFamily(f"hedgerow_{name}", help_text, value=value)

    def _config(self) -> Iterator[Metric]:
        metrics = self._metrics
        reloads = CounterMetricFamily(
            "hedgerow_config_reloads", "Configuration reloads, by result.", labels=("result",)
        )
        reloads.add_metric(("ok",), metrics.reloads_ok)
        reloads.add_metric(("failed",), metrics.reloads_failed)
        yield reloads
        yield GaugeMetricFamily(
            "hedgerow_config_reload_success",
            "1 if the last reload was taken over, 0 if the configuration before it stayed.",
            value=float(metrics.last_reload_ok),
        )
        yield InfoMetricFamily(
            "hedgerow_config",
            "The configuration in force.",
            value={"hash": label(metrics.config_hash)},
        )

    def _read_gauges(self) -> Iterator[Metric]:
        gauges = self._gauges
        for name, help_text, label_name, numbers in (
            ("replicas", "Replicas, by state.", "state", gauges.replicas_by_state),
            (
                "replica_inflight",
                "Attempts under way, by replica.",
                "replica",
                gauges.inflight_by_replica,
            ),
            (
                "replica_connections",
                "Open connections to replicas, by state.",
                "state",
                gauges.replica_connections_by_state,
            ),
        ):
            values = _read(name, numbers)
            if values is not None:
                family = GaugeMetricFamily(f"hedgerow_{name}", help_text, labels=(label_name,))
                for value_label, value in _merged(values).items():
                    family.add_metric((value_label,), value)
                yield family
        for name, help_text, number in (
            ("client_connections", "Open client connections.", gauges.client_connections),
            ("requests_under_way", "Requests under way.", gauges.exchanges),
            ("held_body_bytes", "Body bytes held in memory.", gauges.held_body_bytes),
            ("open_file_limit", "Open files the process may have.", gauges.open_file_limit),
            ("loop_lag_seconds", "How late the event loop runs its timers.", gauges.loop_lag_s),
            ("ready", "1 if the router takes requests.", gauges.ready),
            ("draining", "1 if the router is draining.", gauges.draining),
        ):
            reading = _read(name, number)
            if reading is not None:
                yield GaugeMetricFamily(f"hedgerow_{name}", help_text, value=reading)
        dropped = _read("access_log_dropped", gauges.access_log_dropped)
        if dropped is not None:
            yield CounterMetricFamily(
                "hedgerow_access_log_lines_dropped",
                "Access log lines lost to a slow or full sink.",
                value=dropped,
            )

    def _read_readings(self) -> Iterator[Metric]:
        for reading in _read("readings", self._gauges.readings) or ():
            kind = CounterMetricFamily if reading.is_counter else GaugeMetricFamily
            if isinstance(reading, Grid):
                names, values = reading.labels, reading.values
            else:
                names = (reading.label,)
                values = {(name,): value for name, value in _merged(reading.values).items()}
            family = kind(f"hedgerow_{reading.name}", reading.help, labels=names)
            for labels, value in values.items():
                family.add_metric(labels, value)
            yield family


def _pieces(family: Metric) -> Iterator[Metric]:
    """The family, cut into copies that hold at most PIECE_SAMPLES samples each."""
    samples = family.samples
    family.samples = samples[:PIECE_SAMPLES]
    yield family
    for start in range(PIECE_SAMPLES, len(samples), PIECE_SAMPLES):
        piece = copy(family)
        piece.samples = samples[start : start + PIECE_SAMPLES]
        yield piece


def _without_header(text: bytes) -> bytes:
    """The samples only: HELP and TYPE stand before the first of them, once per family."""
    while text.startswith(b"#"):
        text = text[text.index(b"\n") + 1 :]
    return text


class _OneFamily(CollectorBase):
    """What an encoder takes for a registry, holding a single family."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterable[Metric]:
        return (self._family,)


T = TypeVar("T")


def _read(name: str, gauge: Callable[[], T] | None) -> T | None:
    if gauge is None:
        return None
    try:
        return gauge()
    except Exception as err:
        log_event(logging.ERROR, "gauge unreadable", key=name, gauge=name, error=repr(err))
        return None


def _merged(values: Mapping[str, float]) -> dict[str, float]:
    """At most REPLICAS_MAX label values; the rest, and those that look alike, are summed."""
    merged: dict[str, float] = {}
    for name, value in values.items():
        name = label(name)
        if name not in merged and len(merged) >= REPLICAS_MAX:
            name = OTHER
        merged[name] = merged.get(name, 0) + value
    return merged


def _by_class(name: str, text: str, histograms: Mapping[str, Histogram]) -> Metric:
    """A histogram of seconds by class of urgency; a class of which nothing came is left out."""
    family = HistogramMetricFamily(name, text, labels=("class",), unit="seconds")
    for urgency, histogram in histograms.items():
        if any(histogram.counts):
            _add_histogram(family, urgency, histogram)
    return family


def _add_histogram(family: HistogramMetricFamily, label_value: str, histogram: Histogram) -> None:
    buckets = [
        ("+Inf" if bound == float("inf") else str(bound), count)
        for bound, count in histogram.cumulative()
    ]
    family.add_metric((label_value,), buckets, histogram.sum)


def _process() -> Iterator[Metric]:
    yield CounterMetricFamily(
        "hedgerow_process_cpu_seconds",
        "CPU time of this process, user and system.",
        value=time.process_time(),
        unit="seconds",
    )
    resident = resident_bytes()
    if resident is not None:
        yield GaugeMetricFamily(
            "hedgerow_process_resident_memory_bytes",
            "Resident memory of this process.",
            value=resident,
            unit="bytes",
        )


def resident_bytes() -> int | None:
    """Resident memory of this process; None where there is no /proc."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except OSError:
        return None
