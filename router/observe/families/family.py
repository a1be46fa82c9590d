"""Declares metrics. A `Family` is one metric, with a function that reads its values:

    Family("queue_depth", GAUGE, "Requests that wait, by class.", read_depths, ("class",))

A module declares a tuple of families that read the numbers of one object. A `Source` consists of
this tuple and the object. `collector` renders all sources. The function is called at each scrape.

Must never: store a number, or fail because a function fails. A family that cannot be read is
omitted, and the error is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)

from router.observe.events import log_event
from router.observe.metrics import OTHER, REPLICAS_MAX, Histogram, label

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"
INFO: Final = "info"

# What the function of a family returns. None: the value is unknown, and the family is omitted. The
# keys of a mapping are values of the label, or tuples with the values of all labels. The values are
# numbers; for a histogram `Histogram`s, and for an info metric texts.
Values = (
    float
    | Mapping[str, float]
    | Mapping[tuple[str, ...], float]
    | Mapping[str, Histogram]
    | Mapping[str, str]
    | None
)
S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Family(Generic[S]):
    """One metric, whose values are read from an object of type `S`."""

    # The metric's name without the prefix `hedgerow_` and a counter's suffix `_total`. A name with
    # `process_` gets no prefix, because all programs have the same metrics of this kind.
    name: str
    kind: str  # COUNTER, GAUGE, HISTOGRAM or INFO
    help: str
    read: Callable[[S], Values]
    # The names of the labels. Of a single label, at most REPLICAS_MAX values are shown; the others
    # are summed under `other`. If a family has several labels, the code that counts must limit the
    # number of their values.
    labels: tuple[str, ...] = ()


def counter(name: str, text: str, read: Callable[[S], Values], *labels: str) -> Family[S]:
    return Family(name, COUNTER, text, read, labels)


def gauge(name: str, text: str, read: Callable[[S], Values], *labels: str) -> Family[S]:
    return Family(name, GAUGE, text, read, labels)


def histogram(name: str, text: str, read: Callable[[S], Values], *labels: str) -> Family[S]:
    return Family(name, HISTOGRAM, text, read, labels)


@dataclass(frozen=True, slots=True)
class Source(Generic[S]):
    """Metric families, and a function that returns the object whose numbers they read.

    The function is called once for each scrape, so a sum for several families is computed once.
    """

    families: Sequence[Family[S]]
    take: Callable[[], S]

    def metrics(self) -> Iterator[Metric]:
        """Yields every family whose values are known; none if the object does not exist."""
        try:
            taken = self.take()
        except Exception as err:
            _log_unreadable(self.families[0].name, err)
            return
        for family in self.families:
            try:
                values = family.read(taken)
            except Exception as err:
                _log_unreadable(family.name, err)
                continue
            if values is not None:
                yield _made(family, values)


def _log_unreadable(name: str, err: Exception) -> None:
    log_event(logging.ERROR, "metric unreadable", key=name, metric=name, error=repr(err))


def _made(family: Family[Any], values: Any) -> Metric:
    prefix = "" if family.name.startswith("process_") else "hedgerow_"
    name, text, unit = prefix + family.name, family.help, _unit(family.name)
    if family.kind == INFO:
        return InfoMetricFamily(name, text, value={key: label(v) for key, v in values.items()})
    if family.kind == HISTOGRAM:
        made = HistogramMetricFamily(name, text, labels=family.labels, unit=unit)
        for key, histogram in values.items():
            buckets = [
                ("+Inf" if bound == float("inf") else str(bound), count)
                for bound, count in histogram.cumulative()
            ]
            made.add_metric((label(key),), buckets, histogram.sum)
        return made
    kind = CounterMetricFamily if family.kind == COUNTER else GaugeMetricFamily
    if not family.labels:
        return kind(name, text, value=float(values), unit=unit)
    labelled = kind(name, text, labels=family.labels, unit=unit)
    for key, value in _merged(values).items():
        labelled.add_metric(key, value)
    return labelled


def _unit(name: str) -> str:
    """Return the unit of a family for OpenMetrics, which is the last part of the family's name."""
    return next((unit for unit in ("seconds", "bytes") if name.endswith(f"_{unit}")), "")


def _merged(values: Mapping[Any, float]) -> dict[tuple[str, ...], float]:
    """Return the values by label values. Values with equal labels are summed.

    Above REPLICAS_MAX label values, the values of the others are summed as well.
    """
    merged: dict[tuple[str, ...], float] = {}
    for key, value in values.items():
        if isinstance(key, str):
            names: tuple[str, ...] = (label(key),)
            if names not in merged and len(merged) >= REPLICAS_MAX:
                names = (OTHER,)
        else:
            names = tuple([label(each) for each in key])
        merged[names] = merged.get(names, 0.0) + value
    return merged
