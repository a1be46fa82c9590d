"""Converts simulated requests to records like those of the load generator."""

from __future__ import annotations

from math import inf
from typing import Any

import msgspec

from bench.fleet.player import DRAIN_S, Played, Record
from router.core.errors import Reason
from router.lab.simulator.outcome import Outcome

NOTHING = {"requests": 0.0, "queried": 0.0, "hits": 0.0, "preemptions": 0.0}


class Outcomes:
    """Records simulated requests; those that arrive within [measure_from, until) are measured."""

    def __init__(self, measure_from: float, until: float = inf) -> None:
        self.records: list[Record] = []
        self.tokens_in_window = 0
        self.served = _Served()
        self._from = measure_from
        self._until = until

    def ended(self, outcome: Outcome) -> None:
        arrival = outcome.arrival
        is_whole = outcome.reason is Reason.OK
        error = "" if is_whole else str(outcome.reason)
        if outcome.ended > self._until + DRAIN_S:
            error = "unanswered"  # the load generator would have stopped waiting
        is_measured = self._from <= arrival.at < self._until
        self.records.append(
            Record(
                due=arrival.at,
                sent=arrival.at,
                ttft=outcome.ttft_s,
                seconds=outcome.ended - arrival.at,
                prompt_tokens=arrival.prompt_tokens,
                output_tokens=arrival.output_tokens if is_whole else 0,
                measured=is_measured,
                error=error,
            )
        )
        if is_whole:
            self._count(outcome)
            if is_measured:
                self.served.add(outcome.replica, arrival.prompt_tokens, outcome.cached_tokens)

    def played(self, measured_s: float, counters: list[list[dict[str, float]]]) -> dict[str, Any]:
        """Return a dict with the same fields as the result of `Player.play`.

        `counters` are the engines' counters at the start and at the end of the measured time.
        """
        self.records.sort(key=lambda record: record.due)
        return _played(self.records, self.tokens_in_window, measured_s, counters)

    def _count(self, outcome: Outcome) -> None:
        """Count the answer's tokens in the measured time, as if its tokens were evenly spaced."""
        pace = outcome.tpot_s or 0.0
        times = (outcome.first + pace * n for n in range(outcome.arrival.output_tokens))
        self.tokens_in_window += sum(self._from <= at < self._until for at in times)


class _Served:
    """Counts measured requests and their tokens for each replica."""

    def __init__(self) -> None:
        self._by_replica: dict[str, dict[str, float]] = {}

    def add(self, replica: str, prompt: int, cached: int) -> None:
        mine = self._by_replica.setdefault(replica, dict(NOTHING))
        mine["requests"] += 1
        mine["queried"] += prompt
        mine["hits"] += cached

    def counters(self) -> list[list[dict[str, float]]]:
        """Return the counts as if the engines' counters had been read before and after the run."""
        after = list(self._by_replica.values())
        return [[NOTHING] * len(after), after]


def _played(
    records: list[Record],
    tokens_in_window: int,
    measured_s: float,
    counters: list[list[dict[str, float]]],
) -> dict[str, Any]:
    result: dict[str, Any] = msgspec.to_builtins(
        Played(records, tokens_in_window, measured_s, 0.0, counters)
    )
    return result
