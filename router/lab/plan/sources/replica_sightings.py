"""Finds the running replicas in a log, and measures the throughput of a replica.

A replica is running if it answered in one of the last `LATELY` windows. A replica that first
answered after the begin of the log was started; a replica that no longer answers was stopped. All
functions are pure. Must never: call the throughput of a fleet that was never full a capacity.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from router.lab.plan.observed import Measured, Place
from router.lab.plan.types_file import Types

LATELY: Final = 2  # a replica runs if it answered in one of this many last windows
IN_SLO: Final = 0.95  # share of the answered requests of a window that must meet the TTFT SLO
ANSWERS_MIN: Final = 20  # minimum number of answered requests of a window that is compared
# A window with at least this share of the measured throughput shows whether the replicas were full.
NEAR: Final = 0.9
BUSY: Final = 0.95  # this quantile of the windows' throughputs is the throughput of a replica
REPLICAS_MAX: Final = 10_000


class _Window:
    """The answers of one model in one region and window."""

    __slots__ = ("answered", "in_slo", "replicas", "tokens", "waited")

    def __init__(self) -> None:
        self.answered = 0
        self.in_slo = 0
        self.waited = 0  # number of answers within the SLO that waited in the router's queue
        self.tokens = 0.0
        self.replicas: set[str] = set()

    @property
    def is_in_slo(self) -> bool:
        return self.in_slo >= IN_SLO * self.answered

    @property
    def is_full(self) -> bool:
        """Whether the replicas had no room for some of the requests."""
        return self.in_slo - self.waited < IN_SLO * self.answered


class Sightings:
    """Collects the answers of replicas during a pass over a log.

    `slo_s`: the SLO of the time to first token, in seconds.
    """

    def __init__(self, width_s: float, slo_s: float) -> None:
        self._width_s = width_s
        self._slo_s = slo_s
        # First and last window of each replica.
        self._seen: dict[Place, dict[str, tuple[int, int]]] = {}
        self._types: dict[str, str] = {}  # The stated type of each replica.
        self._windows: dict[Place, dict[int, _Window]] = {}

    def add(
        self,
        place: Place,
        at: float,
        replica: str,
        kind: str,
        tokens: float,
        ttft_s: float | None,
        *,
        waited: bool = False,
    ) -> None:
        """Count an answer of a replica of the type `kind`; "": the log does not state its type.

        `place`: the model, and the region of the replica. `ttft_s` None: the answer is not a
        stream, and counts as within the SLO. `waited`: the request waited in the router's queue.
        """
        number = int(at // self._width_s)
        seen = self._seen.setdefault(place, {})
        if replica in seen or len(seen) < REPLICAS_MAX:
            first, last = seen.get(replica, (number, number))
            seen[replica] = (min(first, number), max(last, number))
            self._types[replica] = kind
        window = self._windows.setdefault(place, {}).setdefault(number, _Window())
        window.answered += 1
        is_in_slo = ttft_s is None or ttft_s <= self._slo_s
        window.in_slo += is_in_slo
        window.waited += is_in_slo and waited
        window.tokens += tokens
        window.replicas.add(replica)

    def running(self, end: int, types: Types) -> dict[Place, dict[str, int]]:
        """Return the number of replicas that run at the beginning of window number `end`, by type.

        Replicas without a known type are not counted (`unknown`).
        """
        found: dict[Place, dict[str, int]] = {}
        for place, seen in self._seen.items():
            counts = found.setdefault(place, {})
            for name, (_, last) in seen.items():
                kind = types.type_of(self._types[name])
                if kind is not None and last >= end - LATELY:
                    counts[kind] = counts.get(kind, 0) + 1
        return found

    def regions(self, demand: Iterable[Place]) -> tuple[str, ...]:
        """Return the regions of the replicas, and of the places with demand."""
        return tuple(dict.fromkeys(place.region for place in (*self._seen, *demand)))

    def unknown(self, end: int, types: Types) -> list[str]:
        """Return the running replicas whose type is not in the types file, in order."""
        return sorted(
            {
                name
                for seen in self._seen.values()
                for name, (_, last) in seen.items()
                if last >= end - LATELY and types.type_of(self._types[name]) is None
            }
        )

    def unchanged_s(self, begin: int, end: int) -> dict[Place, float]:
        """Return the seconds since the last start or stop; absent if the log shows none."""
        found = {}
        for place, seen in self._seen.items():
            starts = [first for first, _ in seen.values() if first > begin + LATELY]
            stops = [last + 1 for _, last in seen.values() if last < end - LATELY]
            if starts or stops:
                found[place] = max(end - max([*starts, *stops]), 0) * self._width_s
        return found

    def throughput(self) -> dict[str, Measured]:
        """Return the throughput of one replica, by model.

        It is measured in the busiest windows within the SLO.
        """
        by_model: dict[str, list[tuple[float, _Window]]] = {}
        for place, windows in self._windows.items():
            rates = by_model.setdefault(place.model, [])
            for window in windows.values():
                if window.answered >= ANSWERS_MIN:
                    replica_s = len(window.replicas) * self._width_s
                    rates.append((window.tokens / replica_s, window))
        return {model: measured for model, rates in by_model.items() if (measured := _busy(rates))}


def _busy(rates: list[tuple[float, _Window]]) -> Measured | None:
    ranked = sorted((rate, window.answered) for rate, window in rates if window.is_in_slo)
    if not ranked or ranked[-1][0] <= 0.0:
        return None
    rate, answered = ranked[min(len(ranked) - 1, int(BUSY * len(ranked)))]
    was_full = any(window.is_full and other >= NEAR * rate for other, window in rates)
    return Measured(rate, len(ranked), answered, was_full)
