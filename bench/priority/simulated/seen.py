"""Computes the figures of one run of the part `goals`: times, tokens, longest waits, fairness.

Times and waits are those of requests that arrived in the measured time; tokens are those of answers
that ended in it. Fairness compares only tenants of a class that had a waiting request all the time,
because the other tenants get as much as they ask for. Jain's index of n shares is (sum of x)^2 / (n
* sum of x^2). It is 1 if all shares are equal, and 1/n if one tenant gets everything (R. Jain, D.
Chiu, W. Hawe, DEC TR-301, 1984).

Must never count a request without an answer as fast.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

from bench.fleet.statistics import quantile
from router.core.errors import Reason
from router.lab.simulator.outcome import Outcome

QUANTILES: Final = (0.5, 0.9, 0.99)
# A tenant counts as always waiting if it had a waiting request in this share of the measured time.
ALWAYS: Final = 0.98
_Stay = tuple[float, float]  # start and end of a wait, in seconds


@dataclass(slots=True)
class Run:
    """The figures of one queue configuration with one seed. The keys of the dicts are classes."""

    case: str
    contestant: str
    seed: int
    ttft_s: dict[str, list[float]] = field(default_factory=dict)  # TTFT of each of `QUANTILES`
    requests: dict[str, int] = field(default_factory=dict)
    tokens_s: float = 0.0  # output tokens/s
    # Longest wait in the router's queue.
    longest_wait_s: dict[str, float] = field(default_factory=dict)
    # Jain's index of the served tokens of the tenants that waited all the time.
    jain: dict[str, float] = field(default_factory=dict)
    errors: int = 0


class Seen:
    """Records a simulation's requests; the measured time is from `begin` to `end`, in seconds."""

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
    """Return the number of seconds that at least one of the waits covers."""
    found, until = 0.0, -inf
    for begin, end in sorted(stays):
        found += max(0.0, end - max(begin, until))
        until = max(until, end)
    return found


def jain(shares: Sequence[float]) -> float:
    """Return Jain's index of the shares. It is 1 if all shares are 0, because they are equal."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 1.0
