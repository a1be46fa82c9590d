"""Reads the demand and the running replicas from access logs, into an `Observed`.

There is one log for each router, given as `FILE` or `REGION=FILE`. Demand counts for the region
that the client prefers, and a replica for its own region, as the access log states them. `REGION`
is the region of all lines that state none. All logs are read once. Prompt tokens that an engine
found in its cache do not count, because they need no prefill. Of the demand of class batch only a
share counts (`Types.batch`). Must never: hold a log in memory.

`Windows`: counts requests and tokens in windows of equal length, by model and region.

Windows begin at multiples of their length, so that several logs have the same windows. The first
and the last window of a source are incomplete, and are left out if other windows remain. Must
never: hold a request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from os.path import exists
from typing import Final

from router.core.urgency import BATCH, CLASSES
from router.lab.plan.observed import Observed, Place, Series
from router.lab.plan.sources.replica_sightings import Sightings
from router.lab.plan.types_file import BATCH_SHARE, Types, measured
from router.lab.simulator.arrival import Arrival
from router.lab.traces import Trace

PLACES_MAX: Final = 1000  # maximum pairs of a model and a region; further models count as `OTHER`
OTHER: Final = "other"
WINDOWS_MAX: Final = 100_000  # maximum windows of one series: ten weeks, if a window is one minute


class Windows:
    """The sums of requests and tokens of each window. `width_s`: the length of a window."""

    def __init__(self, width_s: float) -> None:
        self.width_s = width_s
        self._counts: dict[Place, dict[int, list[float]]] = {}
        self._first = self._last = 0

    def place(self, model: str, region: str) -> Place:
        """Return the model and the region under which requests are counted.

        Beyond `PLACES_MAX`, the model is `OTHER`.
        """
        place = Place(model, region)
        if place in self._counts or len(self._counts) < PLACES_MAX:
            return place
        return Place(OTHER, region)

    def add(self, place: Place, at: float, requests: float, prompt: float, output: float) -> None:
        """Count requests at `at`, in seconds of the source's clock.

        Raises ValueError if the source is too long for windows of this length.
        """
        number = int(at // self.width_s)
        if not self._counts:
            self._first = self._last = number
        self._first, self._last = min(self._first, number), max(self._last, number)
        if self._last - self._first >= WINDOWS_MAX:
            raise ValueError(f"more than {WINDOWS_MAX:,} windows: choose a longer --window")
        counts = self._counts.setdefault(place, {})
        sums = counts.setdefault(number, [0.0, 0.0, 0.0])
        sums[0] += requests
        sums[1] += prompt
        sums[2] += output

    def bounds(self) -> tuple[int, int]:
        """Return the numbers of the first complete window, and of the window after the last one."""
        first, end = self._first, self._last + 1
        return (first + 1, end - 1) if end - first > 2 else (first, end)

    def series(self) -> dict[Place, Series]:
        """Return the complete windows by model and region; all series have the same length."""
        return self.series_of(*self.bounds())

    def series_of(self, first: int, end: int) -> dict[Place, Series]:
        """Return the windows from number `first` up to, but not including, number `end`."""
        return {place: _series(counts, range(first, end)) for place, counts in self._counts.items()}


def _series(counts: dict[int, list[float]], numbers: Iterable[int]) -> Series:
    rows = [counts.get(number, [0.0, 0.0, 0.0]) for number in numbers]
    return Series([row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows])


_TELL_EVERY: Final = 4096  # requests between two calls of `on_progress`
# Seconds; shorter waits in the queue do not count.
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
    batch = BATCH_SHARE if types is None else types.batch
    notes: list[str] = []
    for number, log in enumerate(logs):
        region, path = split(log)
        trace = Trace(path)
        for arrival in trace:
            if on_progress is not None and arrival.number % _TELL_EVERY == 0:
                on_progress((number + trace.share()) / len(logs))
            _count(arrival, trace.zero_s + arrival.at, region, batch, windows, sightings, waits)
        notes += [f"{path}: {count:,} × {what}" for what, count in trace.notes().items()]
    begin, end = windows.bounds()
    demand = windows.series()
    rates = sightings.throughput()
    at_least: frozenset[str] = frozenset()
    if types is None:
        at_least = frozenset(model for model, one in rates.items() if not one.was_full)
        known = {model: one.tokens_per_s for model, one in rates.items()}
        if not known:
            raise ValueError(
                "the throughput of a replica cannot be measured: the log has no window with enough "
                "answers within the SLO. Name a file with --types"
            )
        types = measured(known, sightings.regions(demand))
    running = sightings.running(end, types)
    unknown = sightings.unknown(end, types)
    if unknown:
        notes.append(
            f"no type for {len(unknown)} replicas, such as {unknown[0]}: they are not counted "
            "(the type of a replica is configured in the router: replicas[].type)"
        )
    found = Observed(
        source=", ".join(logs),
        window_s=window_s,
        begin_s=begin * window_s,
        demand=demand,
        running=running or None,
        unchanged_s=sightings.unchanged_s(begin, end),
        waiting={
            place: series.requests[-1] for place, series in waits.series_of(begin, end).items()
        },
        throughput=rates,
        at_least=at_least,
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
    batch: float,
    windows: Windows,
    sightings: Sightings,
    waits: Windows,
) -> None:
    logged = arrival.logged
    assert logged is not None  # the reader of access logs sets it
    is_batch = arrival.priority == CLASSES[BATCH]
    home = logged.client_region or region
    place = windows.place(logged.model or arrival.model or "", home)
    cached = logged.cached_tokens or 0
    prompt, output = max(arrival.prompt_tokens - cached, 0), arrival.output_tokens
    share = batch if is_batch else 1.0
    windows.add(place, at, 1.0, share * prompt, share * output)
    waited = logged.wait_s >= _WAITED_S and not is_batch
    if logged.replica and logged.is_ok:
        sightings.add(
            Place(place.model, logged.region or region),
            at,
            logged.replica,
            logged.replica_type,
            prompt + output,
            logged.ttft_s,
            waited=waited,
        )
    if waited:
        # By Little's law, the sum is the mean number of requests that waited at the same time.
        waits.add(place, at, logged.wait_s / waits.width_s, 0.0, 0.0)
