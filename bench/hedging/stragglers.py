"""Draws the times at which an engine is slow: slow steps, or long requests of another client.

A slow engine delays every request that is sent to it meanwhile. The times depend only on the seed,
so that all compared configurations meet the same slow engines. Pure: the same arguments give the
same times. Must never depend on a router or a policy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class Spell:
    """A time from `at` to `until`, in seconds, in which one place is slow: a replica or a node."""

    place: int  # number of the replica or node, from 0
    at: float
    until: float


def spells(seed: str, places: int, until_s: float, share: float, length_s: float) -> list[Spell]:
    """Return slow times of `length_s` seconds, which cover the share `share` of each place's time.

    The pauses between slow times are exponential, and independent of the pauses at other places.
    Slow times at one place never overlap. Raises ValueError for a share that is not above 0 and
    below 1.
    """
    if not (0.0 < share < 1.0 and length_s > 0.0):
        raise ValueError("share must be above 0 and below 1, length_s above 0")
    pause_s = length_s * (1.0 / share - 1.0)
    found = [
        spell
        for place in range(places)
        for spell in _at(Random(f"spells {seed} {place}"), place, until_s, pause_s, length_s)
    ]
    return sorted(found, key=lambda spell: (spell.at, spell.place))


def _at(
    rng: Random, place: int, until_s: float, pause_s: float, length_s: float
) -> Iterator[Spell]:
    at = rng.expovariate(1.0 / pause_s)
    while at < until_s:
        yield Spell(place, at, at + length_s)
        at += length_s + rng.expovariate(1.0 / pause_s)
