"""What goes wrong in a run, and when: options of the emulated engines, and faults posted to them.

Plain data. A scenario in which something goes wrong at a moment measures from that moment on; what
came before it, warm-up aside, tells what is normal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.hedging.http.traffic import Size

HALF, FULL = 0.5, 0.9  # of the rate at which the fleet saturates
SLOW_SHARE, SLOW_FACTOR = 0.05, 10  # of requests, wherever they go; times as long
FLEET_FACTOR = 1.8  # every engine so many times as slow: at half load, as full as at 0.9
SLOW_REQUESTS = ("--fault", f"straggle={SLOW_FACTOR}; probability={SLOW_SHARE}")
NOTHING: dict[str, Any] = {}  # no fault


@dataclass(frozen=True, slots=True)
class Fault:
    """Posted to one engine (`engine` None: to all), `at` seconds after the first request could."""

    at: float
    engine: int | None
    fault: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Scenario:
    """`contestants`: by the keys of `contestants.KINDS`; the first of them is judged."""

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
    """The first engine takes requests and sends heads, but does nothing; it thaws at the end."""
    return Fault(since, 0, {"freeze": True}), Fault(until, 0, NOTHING)


def _all_slow(since: float, until: float) -> tuple[Fault, ...]:
    return Fault(since, None, {"slow": FLEET_FACTOR}), Fault(until, None, NOTHING)


WITH_AND_WITHOUT = ("adaptive", "off")
ALL = (*WITH_AND_WITHOUT, "p2c", "envoy", "haproxy")
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
            ALL,
            options=(*SLOW_REQUESTS, "--wait-first-token"),
        ),
        Scenario(
            "frozen",
            "one engine stops in the middle of everything; heads still come at once",
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
