"""Reads the state of the fleet from Prometheus: running replicas, changes, waiting requests.

Must never: guess the type of a replica.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from router.lab.plan.observed import Place, Series
from router.lab.plan.sources.prometheus_api import Prometheus, Sampled
from router.lab.plan.sources.question import TYPE, Question
from router.lab.plan.types_file import Types

_CHANGES_S = 86400.0  # seconds; only changes within this time are examined
_STEP_S = 300.0  # seconds between two samples of the number of replicas, at most


def running(
    server: Prometheus, question: Question, now_s: float, types: Types
) -> tuple[dict[Place, dict[str, int]] | None, list[str]]:
    """Return the running replicas by place and type (None: unknown), and notes for the report."""
    query = question.running
    series = server.query(query, now_s) if query else []
    if not series:
        return None, []
    found: dict[Place, dict[str, int]] = {}
    unknown: dict[str, int] = {}
    for one in series:
        counts = found.setdefault(question.place(one), {})
        stated, number = one.labels.get(TYPE, ""), round(one.last)
        kind = types.type_of(stated)
        if kind is not None:
            counts[kind] = counts.get(kind, 0) + number
        elif number:
            unknown[stated] = unknown.get(stated, 0) + number
    notes = [
        f"no type {stated!r} in the types file: {number} replicas are not counted"
        for stated, number in sorted(unknown.items())
    ]
    return found, notes


def unchanged_s(server: Prometheus, question: Question, now_s: float) -> dict[Place, float]:
    """Return the seconds since the last change of the number of replicas.

    A place is absent if the number did not change in the last day.
    """
    query = question.running
    if not query:
        return {}
    last: dict[Place, float] = {}
    step_s = min(question.window_s, _STEP_S)
    for one in server.query_range(query, now_s - _CHANGES_S, now_s, step_s):
        for (_, before), (at, after) in zip(one.samples, one.samples[1:], strict=False):
            if before != after:
                place = question.place(one)
                last[place] = max(last.get(place, 0.0), at)
    return {place: max(0.0, now_s - at) for place, at in last.items()}


def waiting(
    server: Prometheus, question: Question, now_s: float, demand: Mapping[Place, Series]
) -> dict[Place, float]:
    """Return the number of waiting requests.

    The queues of routers do not state models and regions. Their requests are divided among all
    places in proportion to the requests of the history.
    """
    answers: Sequence[Sampled] = server.query(question.waiting, now_s)
    if question.names.waiting_by_model:
        return {question.place(one): one.last for one in answers}
    requests = {place: sum(series.requests) for place, series in demand.items()}
    everything = sum(requests.values())
    return {
        place: one.last * count / everything
        for one in answers
        for place, count in requests.items()
        if everything > 0.0
    }
