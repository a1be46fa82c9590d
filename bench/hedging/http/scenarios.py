"""The faults of a run and their times: options of the emulated engines, and posted faults.

Plain data. A scenario whose fault begins during the run measures from that moment on; the time
before it, without the warm-up, shows the normal figures.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.hedging.http.traffic import Size

HALF, FULL = 0.5, 0.9  # shares of the rate at which the fleet saturates
# share of the requests that are slow, wherever they are sent; factor on their time
SLOW_SHARE, SLOW_FACTOR = 0.05, 10
FLEET_FACTOR = 1.8  # factor on the time of every engine: half load then acts like a load of 0.9
FREEZE_S, PAUSE_S = 2.0, 0.5  # one engine stalls; all engines are healthy
SLOW_REQUESTS = ("--fault", f"straggle={SLOW_FACTOR}; probability={SLOW_SHARE}")
NOTHING: dict[str, Any] = {}  # no fault


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault posted to one engine, `at` seconds after the begin."""

    at: float
    engine: int | None  # engine number, wraps around beyond the last engine; None: all engines
    fault: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Scenario:
    """`contestants`: keys of `contestants.KINDS`; `faults`: within the measured time."""

    name: str
    title: str
    contestants: tuple[str, ...]
    load: float = HALF
    options: tuple[str, ...] = ()
    has_normal: bool = False
    faults: Callable[[float, float], tuple[Fault, ...]] = lambda since, until: ()

    def measure_from(self, size: Size) -> float:
        return size.warm + (size.normal if self.has_normal else 0.0)

    def until(self, size: Size) -> float:
        return self.measure_from(size) + size.measured


def _frozen(since: float, until: float) -> tuple[Fault, ...]:
    """One engine after the other accepts requests and sends heads, but computes nothing for a
    while.
    """
    faults: list[Fault] = []
    at, engine = since, 0
    while at + FREEZE_S <= until:
        faults += Fault(at, engine, {"freeze": True}), Fault(at + FREEZE_S, engine, NOTHING)
        at, engine = at + FREEZE_S + PAUSE_S, engine + 1
    return tuple(faults)


def _all_slow(since: float, until: float) -> tuple[Fault, ...]:
    return Fault(since, None, {"slow": FLEET_FACTOR}), Fault(until, None, NOTHING)


WITH_AND_WITHOUT = ("adaptive", "off")
PEERS = ("envoy", "haproxy")  # peers need a configured retry timeout
ALL = (*WITH_AND_WITHOUT, "p2c", *PEERS)
HEALTHY = Scenario("healthy", "nothing is wrong", ("p2c",))
SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "slow-requests",
            f"{SLOW_SHARE:.0%} of requests {SLOW_FACTOR} times slower, wherever they go; heads "
            "come at once (vLLM, TensorRT-LLM, TGI)",
            ALL,
            options=SLOW_REQUESTS,
        ),
        Scenario(
            "slow-requests-late-heads",
            "the same, and heads come with the first token (SGLang, llama.cpp)",
            (*WITH_AND_WITHOUT, *PEERS),
            options=(*SLOW_REQUESTS, "--wait-first-token"),
        ),
        Scenario(
            "frozen",
            f"one engine at a time stands still for {FREEZE_S:g} s; heads still come at once",
            ALL,
            has_normal=True,
            faults=_frozen,
        ),
        Scenario(
            "busy",
            "slow requests as above in a fleet that is nearly full",
            WITH_AND_WITHOUT,
            load=FULL,
            options=SLOW_REQUESTS,
        ),
        Scenario(
            "all-slow",
            f"every engine becomes {FLEET_FACTOR:g} times slower",
            WITH_AND_WITHOUT,
            has_normal=True,
            faults=_all_slow,
        ),
    )
}
