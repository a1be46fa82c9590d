"""Reads the demand and the running replicas from access logs or other traces, into an `Observed`.

There is one log for each router, given as `FILE` or `REGION=FILE`. The log of a router has the
demand of its region. All logs are read once. Prompt tokens that an engine found in its cache do not
count, because they need no prefill. Must never: hold a log in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os.path import exists
from typing import Final

from router.plan.observed import Observed
from router.plan.sources.replica_sightings import Sightings, by_type
from router.plan.sources.windows import Windows
from router.plan.types_file import Types, measured
from router.simulator.arrival import Arrival
from router.traces import open_trace

_TELL_EVERY: Final = 4096  # requests between two calls of `on_progress`
# Seconds; requests that waited at least this long in the queue are counted as waiting.
_WAITED_S: Final = 1.0


def read(
    logs: Sequence[str],
    window_s: float,
    slo_s: float,
    types: Types | None,
    on_progress: Callable[[float], None] | None = None,
) -> tuple[Observed, Types]:
    """Read the logs. Without `types`, the throughput of a replica is measured in the logs.

    Raises TraceError, OSError, and ValueError for logs that are too short or too long, or that
    allow no measurement.
    """
    windows, sightings = Windows(window_s), Sightings(window_s, slo_s)
    waits = Windows(window_s)  # requests that waited in the queue
    notes: list[str] = []
    for number, log in enumerate(logs):
        region, path = split(log)
        trace = open_trace(path)
        for arrival in trace:
            if on_progress is not None and arrival.number % _TELL_EVERY == 0:
                on_progress((number + trace.share()) / len(logs))
            _count(arrival, trace.zero_s + arrival.at, region, windows, sightings, waits)
        notes += [f"{path}: {count:,} × {what}" for what, count in trace.notes().items()]
    begin, end = windows.bounds()
    demand = windows.series()
    rates = sightings.throughput()
    if types is None:
        known = {model: one.tokens_per_s for model, one in rates.items()}
        if not known:
            raise ValueError(
                "the throughput of a replica cannot be measured: the log has no window with enough "
                "answers within the SLO. Name a file with --types"
            )
        types = measured(known, tuple(dict.fromkeys(place.region for place in demand)))
    running = sightings.running(end)
    kinds = {name: types.type_of(name) for names in running.values() for name in names}
    unknown = sorted(name for name, kind in kinds.items() if kind is None)
    if unknown:
        notes.append(
            f"no type for {len(unknown)} replicas, such as {unknown[0]}: they are not counted "
            "(types[].replicas has the patterns)"
        )
    found = Observed(
        source=", ".join(logs),
        window_s=window_s,
        begin_s=begin * window_s,
        demand=demand,
        running=by_type(running, kinds) if running else None,
        unchanged_s=sightings.unchanged_s(begin, end),
        waiting={
            place: float(series.requests[-1])
            for place, series in waits.series_of(begin, end).items()
        },
        throughput=rates,
        notes=notes,
    )
    return found, types


def split(log: str) -> tuple[str, str]:
    """Return the region and the path of `REGION=FILE`. The region of a bare path is ""."""
    region, is_pair, path = log.partition("=")
    return (region, path) if is_pair and not exists(log) else ("", log)


def _count(
    arrival: Arrival,
    at: float,
    region: str,
    windows: Windows,
    sightings: Sightings,
    waits: Windows,
) -> None:
    logged = arrival.logged
    served = "" if logged is None else logged.model
    place = windows.place(served or arrival.model or "", region)
    cached = 0 if logged is None else logged.cached_tokens or 0
    prompt = max(arrival.prompt_tokens - cached, 0)
    windows.add(place, at, 1.0, prompt, arrival.output_tokens)
    if logged is None:
        return
    if logged.replica and logged.is_ok:
        sightings.add(place, at, logged.replica, prompt + arrival.output_tokens, logged.ttft_s)
    if logged.wait_s >= _WAITED_S:
        waits.add(place, at, 1.0, 0.0, 0.0)
