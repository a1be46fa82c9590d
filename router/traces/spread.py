"""Arrivals whose times are known to the slot only, spread over it.

Mooncake's times are multiples of 3,000 ms, ten requests on each; BurstGPT's are whole seconds.
Replayed as they stand, every slot begins with a stampede that never was. Within its slot a request
is as likely here as there, so the requests of a slot get sorted uniform times: what a Poisson
process does, given how many came. Must never: change the order of the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import Final

from router.simulator.traffic import Arrival
from router.traces.lines import Lines

GROUP_MAX: Final = 100_000  # requests of one slot, all held at once
_NEAR_S: Final = 0.005  # Mooncake's multiples are up to 3 ms off


def is_on_grid(times: Sequence[float], grid_s: float) -> bool:
    """Whether all times are whole multiples of `grid_s` after the first, as far as one can see."""
    return all((at - times[0] + _NEAR_S) % grid_s <= 2.0 * _NEAR_S for at in times)


def spread(
    lines: Lines, arrivals: Iterable[Arrival], slot_s: float, seed: int
) -> Iterator[Arrival]:
    """Arrivals, which ascend, each somewhere in the `slot_s` seconds after its time."""
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
                "spread_seed=None takes times as they stand"
            )
    yield from _spaced(group, slot_s, rng)


def _spaced(group: list[Arrival], width_s: float, rng: Random) -> Iterator[Arrival]:
    offsets = sorted([rng.random() for _ in group])
    for arrival, offset in zip(group, offsets, strict=True):
        arrival.at += width_s * offset
        yield arrival
