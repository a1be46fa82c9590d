"""Fills the windows for which a source recorded nothing, because they are not windows without
demand.

While Prometheus is down or cannot scrape, it has no samples. If these windows counted as zero, a
seasonal forecast would expect no demand at the same time of the next day. All functions are pure.
Must never: fill the last window, because a plan must not be made from old data only.
"""

from __future__ import annotations

from collections.abc import Sequence


def gaps(recorded: Sequence[bool]) -> list[int]:
    """Return the numbers of the windows to fill, in order.

    A window beside one without samples was recorded only in part, so it is filled, too. The first
    and the last window are never filled.
    """
    return [
        number
        for number in range(1, len(recorded) - 1)
        if not (recorded[number - 1] and recorded[number] and recorded[number + 1])
    ]


def filled(values: Sequence[float], missing: Sequence[int], day: int) -> list[float]:
    """Return the values with each missing one replaced by that of the day before.

    On the first day, the value of the window before is used. `day`: number of windows in a day.
    """
    found = list(values)
    for number in missing:
        found[number] = found[number - day] if number >= day else found[number - 1]
    return found
