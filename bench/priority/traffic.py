"""The traffic of both parts, in tokens: classes, tenants, documents and their distributions.

Clients of the classes batch and low keep the fleet full. Each sends its next request when the last
one is answered. There are 1.5 clients per slot, and every fourth client is of class low. In
addition, high and normal requests arrive open loop (Poisson), at a share of the fleet's capacity.
Each class has several tenants, and the first sends as many requests as all the others together. A
prompt begins with one of its tenant's documents, which no other tenant uses. All documents together
fit into the fleet's KV caches, but by far not into one engine's.

The part `goals` has two more mixes of clients, and engines of 256 slots.

Pure: the same arguments give the same requests.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log
from random import Random
from typing import Final, NamedTuple

from bench.fleet import capacity
from router.emulator.core.timing import PROFILES, Timing

ENGINES: Final = 8
SLOTS: Final = 20  # slots of each engine: 160 in all
KV_TOKENS: Final = 65_536  # KV cache of each engine, in tokens
PROFILE: Final = "realistic"
CLIENTS: Final = ENGINES * SLOTS * 3 // 2  # at the same time


@dataclass(frozen=True, slots=True)
class Fleet:
    """Identical engines."""

    name: str
    engines: int
    slots: int  # of each engine
    kv_tokens: int  # KV cache of each engine, in tokens
    timing: Timing
    hardware: str  # the model and the accelerator of `timing`, as text


def _one_card(profile: str) -> Timing:
    """The timing of an 8B model on one of the eight cards of a profile, as in `PROFILES`."""
    share = PROFILES[PROFILE].decode_s / PROFILES["llama2-70b-a100x8"].decode_s
    return PROFILES[profile].scaled(share)


SMALL: Final = Fleet(
    "8 x 20 slots", ENGINES, SLOTS, KV_TOKENS, PROFILES[PROFILE], "an 8B model on one A100"
)
# Fewer engines, because a simulation takes time for each of their requests.
LARGE: Final = Fleet(
    "2 x 256 slots", 2, 256, 524_288, _one_card("llama2-70b-h100x8"), "an 8B model on one H100"
)


@dataclass(frozen=True, slots=True)
class Kind:
    """The requests of one class."""

    name: str
    tenants: int
    documents: int  # documents of each tenant
    document_tokens: int
    question: tuple[float, float, int]  # tokens, lognormal: median, sigma, maximum
    output: tuple[float, float, int]
    share: float = 0.0  # share of the rate at which these alone fill the fleet without a cache hit


HIGH: Final = Kind("high", 4, 2, 768, (160.0, 0.5, 800), (48.0, 0.5, 192), 0.08)
NORMAL: Final = Kind("normal", 4, 8, 1024, (240.0, 0.5, 1200), (64.0, 0.5, 256), 0.16)
LOW: Final = Kind("low", 4, 8, 1280, (280.0, 0.5, 1400), (64.0, 0.5, 256))
BATCH: Final = Kind("batch", 4, 16, 1536, (320.0, 0.5, 1600), (64.0, 0.5, 256))
KINDS: Final = (HIGH, NORMAL, LOW, BATCH)
CLASSES: Final = tuple(kind.name for kind in KINDS)
OPEN: Final = (HIGH, NORMAL)
BUSY: Final = frozenset((LOW.name, BATCH.name))  # classes with closed-loop clients
_LAW: Final = 4000  # number of requests from which the mean of a kind is estimated


@dataclass(frozen=True, slots=True)
class Mix:
    """Closed-loop clients, and kinds that arrive open loop."""

    clients: int
    pattern: tuple[Kind, ...]  # the kinds of the first clients; the others repeat the pattern
    open: tuple[Kind, ...]  # each at its share of the fleet's capacity

    def kind(self, client: int) -> Kind:
        """The kind of a client's requests."""
        return self.pattern[client % len(self.pattern)]

    def tenant(self, client: int) -> int:
        """The tenant of a client: every second client of a kind belongs to the first tenant."""
        place = client // len(self.pattern)
        return 0 if place % 2 else 1 + (place // 2) % (BATCH.tenants - 1)


_LOW_AND_BATCH: Final = (LOW, BATCH, BATCH, BATCH)


def saturation(fleet: Fleet) -> Mix:
    """1.5 clients of low and batch per slot, and the open loop of high and normal."""
    return Mix(fleet.engines * fleet.slots * 3 // 2, _LOW_AND_BATCH, OPEN)


def backlog(fleet: Fleet) -> Mix:
    """More clients of every class than there are slots for the class, and no open loop."""
    pattern = 5 * (HIGH,) + 5 * (NORMAL,) + 2 * (LOW,) + 2 * (BATCH,)
    return Mix(len(pattern) * (fleet.engines * fleet.slots * 3 // 10), pattern, ())


MIX: Final = saturation(SMALL)


class Asked(NamedTuple):
    """One request, in tokens."""

    tenant: int  # index within its class, from 0
    document: int  # index within its tenant
    question: int
    output: int


def draw(kind: Kind, rng: Random, tenant: int | None = None) -> Asked:
    """Draw the next request; `tenant`: the request's tenant, if fixed."""
    if tenant is None:
        tenant = 0 if rng.random() < 0.5 else 1 + int(rng.random() * (kind.tenants - 1))
    document = int(rng.random() * kind.documents)
    return Asked(tenant, document, _lognormal(rng, kind.question), _lognormal(rng, kind.output))


def rate(kind: Kind, fleet: Fleet = SMALL) -> float:
    """Requests/s of a kind that arrives open loop."""
    rng = Random(f"law of {kind.name}")
    law = [draw(kind, rng) for _ in range(_LAW)]
    sizes = [(float(kind.document_tokens + one.question), one.output) for one in law]
    engine = capacity.Engine(fleet.timing, fleet.kv_tokens, fleet.slots)
    return kind.share * capacity.saturation(engine, fleet.engines, sizes)


def words() -> str:
    """Describe the traffic as text."""
    return (
        f"{ENGINES} engines of {SLOTS} slots, an 8B model on one A100 with {KV_TOKENS:,} tokens of "
        f"KV cache each, first come first served within an engine. {CLIENTS} clients, a quarter of "
        "them of low and the others of batch, each send one request after the other; high and "
        f"normal come by themselves. {kinds()}"
    )


def kinds() -> str:
    """Describe the requests of each class as text."""
    parts = [
        f"{kind.name}: {kind.tenants} tenants with {kind.documents} documents of "
        f"{kind.document_tokens:,} tokens each, questions of {kind.question[0]:g}, answers of "
        f"{kind.output[0]:g} (medians, lognormal)"
        for kind in KINDS
    ]
    return "; ".join(parts) + ". The first tenant of each class asks for half of it."


def _lognormal(rng: Random, law: tuple[float, float, int]) -> int:
    median, sigma, most = law
    return max(1, min(most, round(exp(rng.gauss(log(median), sigma)))))
