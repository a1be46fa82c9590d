"""Reads the demand and the state of the fleet from Prometheus into an `Observed`.

The counters are Hedgerow's own or an engine's. A window is a step of `query_range`: the increase of
a counter over the window that ends at the step. Must never: need a counter that older versions of
an exporter do not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from router.fleet.engines.common.counters import Counters
from router.fleet.engines.common.registry import ENGINES
from router.plan.choices import HEDGEROW
from router.plan.observed import Observed, Place, Series
from router.plan.sources.prometheus_api import Prometheus, PrometheusError, Sampled

MODEL, REGION, TYPE = "model", "region", "type"  # labels of the series in the answers


COUNTERS: Final[Mapping[str, Counters]] = {
    HEDGEROW: Counters(
        model="model",
        requests="hedgerow_model_requests_total",
        prompt='hedgerow_model_tokens_total{kind="prompt"}',
        cached='hedgerow_model_tokens_total{kind="cached"}',
        output='hedgerow_model_tokens_total{kind="output"}',
        waiting="hedgerow_queue_depth",
        waiting_by_model=False,
    ),
    **{name: one.counters for name, one in ENGINES.items() if one.counters is not None},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The data to read."""

    counters: str = HEDGEROW  # a key of `COUNTERS`
    window_s: float
    history_s: float
    region_label: str = ""  # the label with the region; "": there is none
    # PromQL for the number of running replicas, by model and optionally type and region.
    running_query: str = ""


def read(server: Prometheus, question: Question, now_s: float, usual_type: str) -> Observed:
    """Read the demand and the state of the fleet from the server.

    `now_s`: seconds since 1970; `usual_type`: the type of replicas without a type label. Raises
    PrometheusError, also if there is no demand, and ValueError for an unknown exporter.
    """
    if question.counters not in COUNTERS:
        known = ", ".join(COUNTERS)
        raise ValueError(f"--counters: {question.counters!r} is unknown; allowed: {known}")
    names = COUNTERS[question.counters]
    width_s = question.window_s
    end_s = now_s // width_s * width_s
    count = max(1, int(question.history_s // width_s))
    begin_s = end_s - count * width_s

    def increases(counter: str) -> dict[Place, list[float]]:
        query = f"sum by ({_by(question, names)}) (increase({counter}[{round(width_s)}s]))"
        found = server.query_range(query, begin_s + width_s, end_s, width_s)
        return {
            _place(one, question, names): _values(one, begin_s, width_s, count) for one in found
        }

    requests, prompt, output = map(increases, (names.requests, names.prompt, names.output))
    cached = increases(names.cached)
    none = [0.0] * count
    demand = {
        place: Series(
            requests.get(place, none),
            [
                max(all_ - hits, 0.0)
                for all_, hits in zip(prompt.get(place, none), cached.get(place, none), strict=True)
            ],
            output.get(place, none),
        )
        for place in sorted({*requests, *prompt, *output})
    }
    if not any(any(series.requests) or any(series.tokens) for series in demand.values()):
        raise PrometheusError(
            f"no demand: {names.requests} did not increase in the last "
            f"{question.history_s / 3600.0:g} h"
        )
    recorded = _without_empty_start(demand)
    windows = max(len(series.requests) for series in recorded.values())
    return Observed(
        source=f"Prometheus, {question.counters}",
        window_s=width_s,
        begin_s=end_s - windows * width_s,
        demand=recorded,
        running=_running(server, question, names, end_s, usual_type),
        unchanged_s=_unchanged(server, question, names, end_s),
        waiting=_waiting(server, question, names, end_s, demand),
    )


def _running(
    server: Prometheus, question: Question, names: Counters, at_s: float, usual_type: str
) -> dict[Place, dict[str, int]] | None:
    query = _running_query(question, names)
    if not query:
        return None
    found: dict[Place, dict[str, int]] = {}
    for one in server.query(query, at_s):
        counts = found.setdefault(_place(one, question, names), {})
        kind = one.labels.get(TYPE) or usual_type
        counts[kind] = counts.get(kind, 0) + round(one.last)
    return found


def _unchanged(
    server: Prometheus, question: Question, names: Counters, at_s: float
) -> dict[Place, float]:
    """Return the seconds since the last change of the number of replicas.

    Only the last day is examined.
    """
    query = _running_query(question, names)
    if not query:
        return {}
    last: dict[Place, float] = {}
    step_s = min(question.window_s, 300.0)
    for one in server.query_range(query, at_s - 86400.0, at_s, step_s):
        for (_, before), (at, after) in zip(one.samples, one.samples[1:], strict=False):
            if before != after:
                place = _place(one, question, names)
                last[place] = max(last.get(place, 0.0), at)
    return {place: at_s - at for place, at in last.items()}


def _running_query(question: Question, names: Counters) -> str:
    if question.running_query or not names.running:
        return question.running_query
    return f"count by ({_by(question, names)}) ({names.running})"


def _waiting(
    server: Prometheus,
    question: Question,
    names: Counters,
    at_s: float,
    demand: Mapping[Place, Series],
) -> dict[Place, float]:
    """Return the number of waiting requests.

    The queue of a router is counted for every model of its region.
    """
    by = [names.model] if names.waiting_by_model else []
    by += [question.region_label] if question.region_label else []
    grouped = f" by ({', '.join(by)})" if by else ""
    answers = server.query(f"sum{grouped} ({names.waiting})", at_s)
    if names.waiting_by_model:
        return {_place(one, question, names): one.last for one in answers}
    of = {one.labels.get(question.region_label, ""): one.last for one in answers}
    return {place: of[place.region] for place in demand if place.region in of}


def _by(question: Question, names: Counters) -> str:
    return ", ".join(filter(None, (names.model, question.region_label)))


def _place(one: Sampled, question: Question, names: Counters) -> Place:
    model = one.labels.get(names.model) or one.labels.get(MODEL, "")
    region = one.labels.get(question.region_label or REGION, "")
    return Place(model, region)


def _values(one: Sampled, begin_s: float, width_s: float, count: int) -> list[float]:
    """Return the value of each window; 0 if the server has none."""
    values = [0.0] * count
    for at, value in one.samples:
        number = round((at - begin_s) / width_s) - 1
        if 0 <= number < count:
            values[number] = max(value, 0.0)
    return values


def _without_empty_start(demand: dict[Place, Series]) -> dict[Place, Series]:
    """Return the windows from the first one with any demand.

    Before this window, the server recorded nothing.
    """
    begin = min(
        number
        for series in demand.values()
        for number, (requests, tokens) in enumerate(
            zip(series.requests, series.tokens, strict=True)
        )
        if requests or tokens
    )
    return {
        place: Series(series.requests[begin:], series.prompt[begin:], series.output[begin:])
        for place, series in demand.items()
    }
