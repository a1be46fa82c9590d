"""The figures of one run of the part `goals`: times, tokens, longest waits, and fairness.

Requests that arrived in the measured time count for times and waits, answers that ended in it for
tokens. Fairness compares the tenants of a class that had a waiting request all the time: others
get what they ask for. Jain's index of n shares is (sum of x)^2 / (n * sum of x^2): 1 if all are
equal, 1/n if one has everything (R. Jain, D. Chiu, W. Hawe, DEC TR-301, 1984).

Must never: count a request without an answer as fast.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

from bench.fleet.statistics import quantile
from router.core.errors import Reason
from router.simulator.outcome import Outcome

QUANTILES: Final = (0.5, 0.9, 0.99)
# A tenant waits all the time if a request of it waits in this share of the measured time.
ALWAYS: Final = 0.98
_Stay = tuple[float, float]  # seconds: the beginning and the end of a wait


@dataclass(slots=True)
class Run:
    """The figures of one contestant under one seed. Plain values, by class where there are many."""

    case: str
    contestant: str
    seed: int
    ttft_s: dict[str, list[float]] = field(default_factory=dict)  # at `QUANTILES`
    requests: dict[str, int] = field(default_factory=dict)
    tokens_s: float = 0.0  # output tokens
    longest_wait_s: dict[str, float] = field(default_factory=dict)  # in the router's queue
    # Jain's index over the served tokens of the tenants that waited all the time.
    jain: dict[str, float] = field(default_factory=dict)
    errors: int = 0


class Seen:
    """A recorder for the time from `begin` to `end`."""

    def __init__(self, begin: float, end: float) -> None:
        self._begin = begin
        self._end = end
        self._ttfts: dict[str, array[float]] = {}
        self._waits: dict[str, float] = {}
        self._stays: dict[str, dict[str, list[_Stay]]] = {}
        self._served: dict[str, dict[str, int]] = {}
        self._output = 0
        self._errors = 0

    def ended(self, outcome: Outcome) -> None:
        arrival = outcome.arrival
        name, tenant = arrival.priority, arrival.tenant
        is_ok = outcome.reason is Reason.OK
        waited_s = max(0.0, outcome.queued_s)
        if not is_ok and outcome.queued_s < 0.0:
            waited_s = outcome.ended - arrival.at
        if self._begin <= arrival.at < self._end:
            ttft_s = outcome.ttft_s if is_ok else None
            self._ttfts.setdefault(name, array("d")).append(inf if ttft_s is None else ttft_s)
            self._waits[name] = max(self._waits.get(name, 0.0), waited_s)
            self._errors += not is_ok
        stay = (max(arrival.at, self._begin), min(arrival.at + waited_s, self._end))
        if stay[0] < stay[1]:
            self._stays.setdefault(name, {}).setdefault(tenant, []).append(stay)
        if is_ok and self._begin <= outcome.ended < self._end:
            self._output += arrival.output_tokens
            served = self._served.setdefault(name, {})
            tokens = arrival.prompt_tokens + arrival.output_tokens
            served[tenant] = served.get(tenant, 0) + tokens

    def run(self, case: str, contestant: str, seed: int) -> Run:
        seconds = self._end - self._begin
        found = Run(case, contestant, seed, tokens_s=self._output / seconds, errors=self._errors)
        for name, ttfts in self._ttfts.items():
            ranked = sorted(ttfts)
            found.ttft_s[name] = [quantile(ranked, q) or 0.0 for q in QUANTILES]
            found.requests[name] = len(ranked)
            found.longest_wait_s[name] = self._waits[name]
        for name, stays in self._stays.items():
            served = self._served.get(name, {})
            always = [t for t, waits in stays.items() if covered_s(waits) >= ALWAYS * seconds]
            if len(always) > 1:
                found.jain[name] = jain([float(served.get(tenant, 0)) for tenant in always])
        return found


def covered_s(stays: Iterable[_Stay]) -> float:
    """Return the seconds in which at least one of the stays lasted."""
    found, until = 0.0, -inf
    for begin, end in sorted(stays):
        found += max(0.0, end - max(begin, until))
        until = max(until, end)
    return found


def jain(shares: Sequence[float]) -> float:
    """Return Jain's index. If nobody has anything, all have the same: 1."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 1.0
