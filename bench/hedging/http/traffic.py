"""The requests of a run: a fifth is urgent, and so is a fifth of all prompt tokens.

No two prompts share a prefix, so that an engine computes the whole prompt for every copy of a
request. This is the most expensive case for hedging, and the engines' counters show the cost
directly. Arrivals are Poisson. Pure: the same arguments give the same script.

`Fault`, `Scenario`: the scenarios, and their faults: options of the emulated engines, or faults
posted to engines.

If the fault of a scenario begins during the run, the measured time begins with the fault. The time
between the warm-up and the fault shows the figures without a fault.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from bench.fleet import capacity, engines
from bench.fleet.script import Conversation, Script, Turn, text
from bench.fleet.workloads import arrivals, lognormal

URGENT = "high"  # class of the requests that may be hedged; the other requests have no class
# Share of urgent requests. It is also their share of the prompt tokens, as all prompts have the
# same length distribution.
URGENT_SHARE = 0.2
PROMPT = (3000.0, 0.5, 9000)  # tokens, lognormal: median, sigma, maximum
OUTPUT = 32
LAW_REQUESTS = 4000  # number of requests from which the mean lengths are estimated


@dataclass(frozen=True, slots=True)
class Size:
    """Lengths of a run in seconds."""

    warm: float = 12.0  # not measured, because the router must first learn the usual times
    normal: float = 15.0  # before a fault begins; shows the figures without a fault
    measured: float = 40.0

    @classmethod
    def quick(cls) -> Size:
        return cls(warm=6.0, normal=3.0, measured=6.0)


def _request(rng: Random, at: float) -> Conversation:
    urgency = URGENT if rng.random() < URGENT_SHARE else ""
    key = f"{rng.getrandbits(64):016x}"
    words = text(rng, lognormal(rng, *PROMPT), key)
    return Conversation(at, "", (Turn(words, OUTPUT),), urgency, key)


def saturation(spec: engines.Spec) -> float:
    """Requests/s of this kind at which the fleet saturates (`bench.fleet.capacity`)."""
    rng = Random(0)
    law = tuple(_request(rng, 0.0) for _ in range(LAW_REQUESTS))
    return capacity.saturation(spec.engine(), spec.count, Script(law, 0.0, 0.0).sizes())


def script(rate: float, seed: int, measure_from: float, until: float) -> Script:
    """Return a script of `rate` requests/s up to `until`, measured from `measure_from` on
    (seconds).
    """
    rng = Random(f"hedging {seed}")
    requests = []
    for at in arrivals(rng, rate):
        if at >= until:
            break
        requests.append(_request(rng, at))
    return Script(tuple(requests), measure_from, until)


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
