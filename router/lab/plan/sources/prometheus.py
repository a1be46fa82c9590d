"""Reads the demand and the state of the fleet from Prometheus into an `Observed`.

The counters are Hedgerow's own or an engine's. A window is a step of `query_range`: the increase of
a counter over the window that ends at the step. The first increase of a new series is unknown to
Prometheus, so it is not counted. Of the demand of class batch only a share counts (`Types.batch`).
Must never: make a plan from old data only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from router.lab.plan.observed import Observed, Place, Series
from router.lab.plan.sources import prometheus_fleet
from router.lab.plan.sources.gaps import filled, gaps
from router.lab.plan.sources.prometheus_api import Prometheus, PrometheusError, Sampled
from router.lab.plan.sources.question import Question
from router.lab.plan.types_file import Types
from router.lab.replay.report.words import seconds

_DAY_S = 86400.0


def read(server: Prometheus, question: Question, now_s: float, types: Types) -> Observed:
    """Read the demand and the state of the fleet from the server.

    `now_s`: seconds since 1970. Raises PrometheusError, also if there is no demand, and ValueError
    for an unknown exporter.
    """
    names = question.names
    width_s = question.window_s
    end_s = now_s // width_s * width_s
    count = max(1, int(question.history_s // width_s))
    begin_s = end_s - count * width_s

    def increases(counter: str) -> list[Sampled]:
        return server.query_range(question.increase(counter), begin_s + width_s, end_s, width_s)

    def by_place(found: Sequence[Sampled], batch: float = types.batch) -> dict[Place, list[float]]:
        sums: dict[Place, list[float]] = {}
        for one in found:
            values = sums.setdefault(question.place(one), [0.0] * count)
            share = batch if question.is_batch(one) else 1.0
            for number, value in _windows(one, begin_s, width_s, count):
                values[number] += share * max(value, 0.0)
        return sums

    counted = increases(names.requests)
    recorded = [False] * count
    for one in counted:
        for number, _ in _windows(one, begin_s, width_s, count):
            recorded[number] = True
    if not recorded[-1]:
        raise _not_recorded(server, question, now_s, is_old=any(recorded))
    requests = by_place(counted, 1.0)
    prompt, cached, output = (
        by_place(increases(counter)) for counter in (names.prompt, names.cached, names.output)
    )
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
    begin = _begin(demand, recorded)
    missing = gaps(recorded[begin:])
    day = max(1, round(_DAY_S / width_s))
    demand = {
        place: Series(
            *(
                filled(values[begin:], missing, day)
                for values in (series.requests, series.prompt, series.output)
            )
        )
        for place, series in demand.items()
    }
    running, notes = prometheus_fleet.running(server, question, now_s, types)
    if missing:
        notes.append(
            f"{len(missing):,} windows of {seconds(width_s)} without samples, or beside such a "
            "window: the values of the day before are used"
        )
    return Observed(
        source=f"Prometheus, {question.counters}",
        window_s=width_s,
        begin_s=begin_s + begin * width_s,
        demand=demand,
        running=running,
        unchanged_s=prometheus_fleet.unchanged_s(server, question, now_s),
        waiting=prometheus_fleet.waiting(server, question, now_s, demand),
        notes=[*notes, *(f"Prometheus warns: {text}" for text in server.warnings)],
    )


def _not_recorded(
    server: Prometheus, question: Question, now_s: float, *, is_old: bool
) -> PrometheusError:
    """Return the error for a last window without samples."""
    name = question.selected(question.names.requests)
    window = seconds(question.window_s)
    if server.query(f"count({name})", now_s):
        return PrometheusError(
            f"{name} has samples, but no two of them in the last window of {window}: wait for "
            "more samples, or choose a longer --window"
        )
    if is_old:
        return PrometheusError(
            f"no sample of {name} in the last window of {window}: Prometheus does not scrape it "
            "any more, and a plan from old data would be wrong"
        )
    return PrometheusError(
        f"no series {name}: Prometheus does not scrape it, it has counted no request yet, or "
        "--match or --counters is wrong"
    )


def _windows(one: Sampled, begin_s: float, width_s: float, count: int) -> list[tuple[int, float]]:
    """Return the value of each window for which the server has one, by number of the window."""
    numbered = [(round((at - begin_s) / width_s) - 1, value) for at, value in one.samples]
    return [(number, value) for number, value in numbered if 0 <= number < count]


def _begin(demand: Mapping[Place, Series], recorded: Sequence[bool]) -> int:
    """Return the number of the first window of the demand.

    It is the first window with any demand. If the server recorded nothing in the window before, it
    recorded the first window only in part; then the next window is the first, if there is one.
    """
    begin = min(
        number
        for series in demand.values()
        for number, (requests, tokens) in enumerate(
            zip(series.requests, series.tokens, strict=True)
        )
        if requests or tokens
    )
    is_partial = begin > 0 and not recorded[begin - 1]
    return begin + (is_partial and begin + 1 < len(recorded) and recorded[begin + 1])
