"""The requests of a run: a fifth is urgent, and so is a fifth of all prompt tokens.

No two prompts share a prefix, so that an engine computes the whole prompt for every copy of a
request. This is the most expensive case for hedging, and the engines' counters show the cost
directly. Arrivals are Poisson. Pure: the same arguments give the same script.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from bench.fleet import capacity, engines
from bench.fleet.prose import text
from bench.fleet.script import Conversation, Script, Turn
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
