"""Declares metrics: a `Family` beside the numbers that it shows.

    Family("queue_depth", GAUGE, "Requests that wait, by class.", read_depths, ("class",))

A module that owns numbers has a tuple of families over them. `Source` joins this tuple with the
object whose numbers the families read. `collector` renders all sources. `read` is called at each
scrape.

Must never: store a number, or fail because `read` fails. A family that cannot be read is left out
and logged.
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

# None: the value is unknown, and nothing is shown. A mapping has the value of the label as its key,
# or a tuple with the values of all labels. For a histogram its values are `Histogram`s; for an info
# they are texts by label.
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
    """One metric over the numbers of an `S`."""

    name: str  # the metric's name without `hedgerow_`, and without a counter's `_total`
    kind: str  # COUNTER, GAUGE, HISTOGRAM or INFO
    help: str
    read: Callable[[S], Values]
    # At most REPLICAS_MAX values of a single label are shown; the rest is summed as `other`.
    # Several labels must have closed sets of values, or be limited where they are counted.
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Source(Generic[S]):
    """Families, and a call that returns the object whose numbers they read.

    The call is made once for each scrape, so a sum that several families show is computed once.
    """

    families: Sequence[Family[S]]
    take: Callable[[], S]

    def metrics(self) -> Iterator[Metric]:
        """Every currently known family. A source whose object does not exist shows nothing."""
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
    name, text, unit = f"hedgerow_{family.name}", family.help, _unit(family.name)
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
    """OpenMetrics: the unit of a family, which is the end of its name."""
    return next((unit for unit in ("seconds", "bytes") if name.endswith(f"_{unit}")), "")


def _merged(values: Mapping[Any, float]) -> dict[tuple[str, ...], float]:
    """Values by label values. Values of equal labels are summed, as are values above the limit."""
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
