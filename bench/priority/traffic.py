"""Draws the requests of the bench, in tokens: classes, tenants, documents and their distributions.

An engine's slots are the requests that it can run at a time. Clients of the classes batch and low
keep all slots busy: there are 1.5 clients per slot, and each sends its next request when the last
one is answered. Every fourth client is of class low. In addition, requests of the classes high and
normal arrive in a Poisson process (open loop), at a share of the fleet's capacity. Each class has
several tenants, and the first tenant sends as many requests as the others of the class together. A
prompt begins with one of its tenant's documents, which no other tenant uses. All documents together
fit into the fleet's KV caches, but not into the cache of one engine.

The part `goals` has two more mixes of clients, and engines of 256 slots.

Pure: the same arguments give the same requests.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log
from random import Random
from typing import Final, NamedTuple

from bench.fleet import capacity
from router.lab.emulator.core.timing import PROFILES, Timing

ENGINES: Final = 8
SLOTS: Final = 20  # requests that each engine can run at a time
KV_TOKENS: Final = 65_536  # KV cache of each engine, in tokens
PROFILE: Final = "realistic"
CLIENTS: Final = ENGINES * SLOTS * 3 // 2  # number of closed-loop clients


@dataclass(frozen=True, slots=True)
class Fleet:
    """A fleet of identical engines."""

    name: str
    engines: int
    slots: int  # requests that each engine can run at a time
    kv_tokens: int  # KV cache of each engine, in tokens
    timing: Timing
    hardware: str  # the model and the accelerator of `timing`, as text


def _one_card(profile: str) -> Timing:
    """The timing of an 8B model on one of the eight GPUs of a profile, scaled as in `PROFILES`."""
    share = PROFILES[PROFILE].decode_s / PROFILES["llama2-70b-a100x8"].decode_s
    return PROFILES[profile].scaled(share)


SMALL: Final = Fleet(
    "8 x 20 slots", ENGINES, SLOTS, KV_TOKENS, PROFILES[PROFILE], "an 8B model on one A100"
)
# Only two engines, because every running request makes the simulation slower.
LARGE: Final = Fleet(
    "2 x 256 slots", 2, 256, 524_288, _one_card("llama2-70b-h100x8"), "an 8B model on one H100"
)


@dataclass(frozen=True, slots=True)
class Kind:
    """The distribution of the requests of one class."""

    name: str
    tenants: int
    documents: int  # number of documents of each tenant
    document_tokens: int
    question: tuple[float, float, int]  # tokens, lognormal: median, sigma, maximum
    output: tuple[float, float, int]
    # Arrival rate, as a share of the rate at which only such requests fill the fleet without hits.
    share: float = 0.0


HIGH: Final = Kind("high", 4, 2, 768, (160.0, 0.5, 800), (48.0, 0.5, 192), 0.08)
NORMAL: Final = Kind("normal", 4, 8, 1024, (240.0, 0.5, 1200), (64.0, 0.5, 256), 0.16)
LOW: Final = Kind("low", 4, 8, 1280, (280.0, 0.5, 1400), (64.0, 0.5, 256))
BATCH: Final = Kind("batch", 4, 16, 1536, (320.0, 0.5, 1600), (64.0, 0.5, 256))
KINDS: Final = (HIGH, NORMAL, LOW, BATCH)
CLASSES: Final = tuple(kind.name for kind in KINDS)
OPEN: Final = (HIGH, NORMAL)
BUSY: Final = frozenset((LOW.name, BATCH.name))  # classes with closed-loop clients
_LAW: Final = 4000  # number of requests from which the mean lengths of a kind are estimated


@dataclass(frozen=True, slots=True)
class Mix:
    """A number of closed-loop clients, and kinds of requests that arrive in a Poisson process."""

    clients: int
    pattern: tuple[Kind, ...]  # the kinds of the first clients; later clients repeat the pattern
    open: tuple[Kind, ...]  # kinds that arrive in a Poisson process, each at its `share`

    def kind(self, client: int) -> Kind:
        """The kind of a client's requests."""
        return self.pattern[client % len(self.pattern)]

    def tenant(self, client: int) -> int:
        """The tenant's number: every second client of a kind belongs to the first tenant."""
        place = client // len(self.pattern)
        return 0 if place % 2 else 1 + (place // 2) % (BATCH.tenants - 1)


_LOW_AND_BATCH: Final = (LOW, BATCH, BATCH, BATCH)


def saturation(fleet: Fleet) -> Mix:
    """1.5 clients of low and batch per slot, and Poisson arrivals of high and normal."""
    return Mix(fleet.engines * fleet.slots * 3 // 2, _LOW_AND_BATCH, OPEN)


def backlog(fleet: Fleet) -> Mix:
    """Clients of every class, more than the slots that the class gets; no Poisson arrivals."""
    pattern = 5 * (HIGH,) + 5 * (NORMAL,) + 2 * (LOW,) + 2 * (BATCH,)
    return Mix(len(pattern) * (fleet.engines * fleet.slots * 3 // 10), pattern, ())


MIX: Final = saturation(SMALL)


class Asked(NamedTuple):
    """One request; `question` and `output` are in tokens."""

    tenant: int  # number of the tenant within its class, from 0
    document: int  # number of the document within its tenant, from 0
    question: int
    output: int


def draw(kind: Kind, rng: Random, tenant: int | None = None) -> Asked:
    """Draw a request. If `tenant` is None, the tenant is drawn too."""
    if tenant is None:
        tenant = 0 if rng.random() < 0.5 else 1 + int(rng.random() * (kind.tenants - 1))
    document = int(rng.random() * kind.documents)
    return Asked(tenant, document, _lognormal(rng, kind.question), _lognormal(rng, kind.output))


def rate(kind: Kind, fleet: Fleet = SMALL) -> float:
    """Arrival rate in requests/s of a kind that arrives in a Poisson process."""
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
