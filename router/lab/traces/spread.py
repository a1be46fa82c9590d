"""Spreads arrivals at random over the interval to which the times of a trace are rounded: the slot.

Mooncake's times are multiples of 3,000 ms, with about ten requests at each time. Without spreading,
each slot would begin with a burst that did not happen. The requests of a slot get sorted uniform
random times, as in a Poisson process of which only the number of requests per slot is known. Must
never: change the order of the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import Final

from router.lab.simulator.traffic import Arrival
from router.lab.traces.lines import Lines

GROUP_MAX: Final = 100_000  # maximum number of requests in one slot; all of them are held in memory
# Tolerance in seconds; Mooncake's times differ from the multiples by up to 3 ms.
_NEAR_S: Final = 0.005


def is_on_grid(times: Sequence[float], grid_s: float) -> bool:
    """Whether the time from the first arrival to each arrival is a multiple of `grid_s` (±
    `_NEAR_S`).
    """
    return all((at - times[0] + _NEAR_S) % grid_s <= 2.0 * _NEAR_S for at in times)


def spread(
    lines: Lines, arrivals: Iterable[Arrival], slot_s: float, seed: int
) -> Iterator[Arrival]:
    """Move each arrival to a random time within `slot_s` seconds after its rounded time.

    `arrivals` must be in order of time.
    """
    rng = Random(seed)
    group: list[Arrival] = []
    for arrival in arrivals:
        if group and arrival.at != group[0].at:
            yield from _spaced(group, min(slot_s, arrival.at - group[0].at), rng)
            group.clear()
        group.append(arrival)
        if len(group) > GROUP_MAX:
            raise lines.error(
                f"more than {GROUP_MAX:,} requests at one time: "
                "set spread_seed=None to keep the times unchanged"
            )
    yield from _spaced(group, slot_s, rng)


def _spaced(group: list[Arrival], width_s: float, rng: Random) -> Iterator[Arrival]:
    offsets = sorted([rng.random() for _ in group])
    for arrival, offset in zip(group, offsets, strict=True):
        arrival.at += width_s * offset
        yield arrival
