"""The requests of a run: every fifth one is urgent, and so is a fifth of all prompt tokens.

No two prompts share anything, so that every copy of a request costs its whole prompt again: the
dearest case for hedging, and the one in which what it costs can be read off the engines' counters.
Arrivals are Poisson. Pure: the same arguments, the same script.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from bench.fleet import capacity, engines
from bench.fleet.prose import text
from bench.fleet.script import Conversation, Script, Turn
from bench.fleet.workloads import arrivals, lognormal

URGENT = "high"  # the class that may be hedged; all others name none
URGENT_SHARE = 0.2  # of the requests, and, as lengths have one law, of the prompt tokens
PROMPT = (3000.0, 0.5, 9000)  # lognormal: median, sigma, most
OUTPUT = 32
LAW_REQUESTS = 4000  # from which the mean request is learned


@dataclass(frozen=True, slots=True)
class Size:
    """How long a run is, in seconds."""

    warm: float = 12.0  # nothing is measured: hedging learns what is usual
    normal: float = 15.0  # where something goes wrong later: measured as the time before
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
    """Requests/s of this kind at which the fleet is full (`bench.fleet.capacity`)."""
    rng = Random(0)
    law = tuple(_request(rng, 0.0) for _ in range(LAW_REQUESTS))
    return capacity.saturation(spec.engine(), spec.count, Script(law, 0.0, 0.0).sizes())


def script(rate: float, seed: int, measure_from: float, until: float) -> Script:
    """`rate` requests/s until `until`; those due from `measure_from` on are measured."""
    rng = Random(f"hedging {seed}")
    requests = []
    for at in arrivals(rng, rate):
        if at >= until:
            break
        requests.append(_request(rng, at))
    return Script(tuple(requests), measure_from, until)
