"""The scenarios, and their faults: options of the emulated engines, or faults posted to engines.

If the fault of a scenario begins during the run, the measured time begins with the fault. The time
between the warm-up and the fault shows the figures without a fault.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.hedging.http.traffic import Size

HALF, FULL = 0.5, 0.9  # shares of the rate at which the fleet saturates
# The share of requests that are slow on any engine, and how many times longer they take.
SLOW_SHARE, SLOW_FACTOR = 0.05, 10
# How many times longer every step of every engine takes; a load of 0.5 is then like 0.9.
FLEET_FACTOR = 1.8
# Seconds in which one engine stalls, and in which none does until the next one stalls.
FREEZE_S, PAUSE_S = 2.0, 0.5
SLOW_REQUESTS = ("--fault", f"straggle={SLOW_FACTOR}; probability={SLOW_SHARE}")
NOTHING: dict[str, Any] = {}  # ends an engine's fault


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that is posted to an engine `at` seconds after the start of the run."""

    at: float
    engine: int | None  # number of the engine, modulo the number of engines; None means all engines
    fault: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Scenario:
    """`contestants` are keys of `contestants.KINDS`. `faults` gets the start and the end of the
    measured time, and returns the faults to post.
    """

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
    """Freeze one engine after the other for `FREEZE_S`. A frozen engine accepts requests and sends
    response heads, but computes nothing.
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
PEERS = ("envoy", "haproxy")  # routers that need the retry timeout
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
