"""Spreads arrivals with rounded times at random over the rounding interval, the slot.

Mooncake's times are multiples of 3,000 ms, with about ten requests each; BurstGPT's are whole
seconds. Without spreading, each slot would begin with a burst that did not happen. The requests of
a slot get sorted uniform random times, the distribution of a Poisson process with a given count.
Must never: change the order of the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import Final

from router.simulator.traffic import Arrival
from router.traces.lines import Lines

GROUP_MAX: Final = 100_000  # maximum number of requests in one slot, which are all held at once
_NEAR_S: Final = 0.005  # tolerance; Mooncake's times differ from the multiples by up to 3 ms


def is_on_grid(times: Sequence[float], grid_s: float) -> bool:
    """Whether all times are multiples of `grid_s` after the first, within the tolerance."""
    return all((at - times[0] + _NEAR_S) % grid_s <= 2.0 * _NEAR_S for at in times)


def spread(
    lines: Lines, arrivals: Iterable[Arrival], slot_s: float, seed: int
) -> Iterator[Arrival]:
    """Move each arrival to a random time within `slot_s` seconds after its own.

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
