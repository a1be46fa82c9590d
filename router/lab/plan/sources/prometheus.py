"""Reads the demand and the state of the fleet from Prometheus into an `Observed`.

The counters are Hedgerow's own or an engine's. A window is a step of `query_range`: the increase of
a counter over the window that ends at the step. The first increase of a new series is unknown to
Prometheus, so it is not counted. Of the demand of class batch only a share counts (`Types.batch`).
Must never: make a plan from old data only.

Reads the state of the fleet from Prometheus: running replicas, changes, waiting requests.

Must never: guess the type of a replica.

`gaps`, `filled`: fills the windows for which a source recorded nothing, because they are not
windows without demand.

While Prometheus is down or cannot scrape, it has no samples. If these windows counted as zero, a
seasonal forecast would expect no demand at the same time of the next day. All functions are pure.
Must never: fill the last window, because a plan must not be made from old data only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from router.lab.plan.observed import Observed, Place, Series
from router.lab.plan.sources.prometheus_api import Prometheus, PrometheusError, Sampled
from router.lab.plan.sources.question import TYPE, Question
from router.lab.plan.types_file import Types
from router.lab.replay.report.words import seconds


def gaps(recorded: Sequence[bool]) -> list[int]:
    """Return the numbers of the windows to fill, in order.

    A window beside one without samples was recorded only in part, so it is filled, too. The first
    and the last window are never filled.
    """
    return [
        number
        for number in range(1, len(recorded) - 1)
        if not (recorded[number - 1] and recorded[number] and recorded[number + 1])
    ]


def filled(values: Sequence[float], missing: Sequence[int], day: int) -> list[float]:
    """Return the values with each missing one replaced by that of the day before.

    On the first day, the value of the window before is used. `day`: number of windows in a day.
    """
    found = list(values)
    for number in missing:
        found[number] = found[number - day] if number >= day else found[number - 1]
    return found


_CHANGES_S = 86400.0  # seconds; only changes within this time are examined
_STEP_S = 300.0  # seconds between two samples of the number of replicas, at most


def _running(
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


def _unchanged_s(server: Prometheus, question: Question, now_s: float) -> dict[Place, float]:
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


def _waiting(
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
    running, notes = _running(server, question, now_s, types)
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
        unchanged_s=_unchanged_s(server, question, now_s),
        waiting=_waiting(server, question, now_s, demand),
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
