"""Notices jumps of the wall clock, by comparing it with the monotonic clock.

A wall clock is wrong after a boot without a battery-backed clock, until NTP corrects it. A budget
must not be granted again because of such a jump.

Pure: both times are passed in.
"""

from __future__ import annotations

from typing import Final

# A smaller change is the usual correction of a clock.
JUMP_S: Final = 60.0


class WallClock:
    """The difference between the wall clock and the monotonic clock, as it was last seen."""

    __slots__ = ("_offset", "jumped_s")

    def __init__(self) -> None:
        self._offset = 0.0  # 0: not seen yet.
        self.jumped_s = 0.0  # The length of the last jump; below 0: backwards.

    def has_jumped(self, wall: float, now: float) -> bool:
        """Whether the wall clock has jumped since the last call. `now`: monotonic seconds."""
        offset, before = wall - now, self._offset
        self._offset = offset
        if not before or abs(offset - before) < JUMP_S:
            return False
        self.jumped_s = offset - before
        return True
