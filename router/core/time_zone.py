"""The local time of a time zone, by which the days of usage and budgets begin.

Local times are seconds, such as those since 1970 in UTC. On the two days in a year on which the
offset changes, the seconds until midnight are wrong by this change until it has happened.

Pure: the time is passed in.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo

UTC_NAME: Final = "UTC"
_SLOT_S: Final = 900.0  # The offset of a time zone changes only at multiples of a quarter hour.


class TimeZone:
    """A time zone by its name in the IANA database."""

    __slots__ = ("_offset_s", "_slot", "_zone", "name")

    def __init__(self, name: str = UTC_NAME) -> None:
        """Raises KeyError, ValueError or OSError if the zone is not known on this machine."""
        self.name = name
        self._zone: ZoneInfo | None = None if name == UTC_NAME else ZoneInfo(name)
        self._slot = -1.0
        self._offset_s = 0.0

    def offset_s(self, wall: float) -> float:
        """Return the seconds by which local time is ahead of UTC. `wall`: seconds since 1970."""
        zone = self._zone
        if zone is None:
            return 0.0
        slot = wall // _SLOT_S
        if slot != self._slot:
            self._slot = slot
            try:
                offset = datetime.fromtimestamp(wall, zone).utcoffset()
            except (ValueError, OverflowError, OSError):
                offset = None  # A wrong clock, of a year that the calendar does not have.
            self._offset_s = 0.0 if offset is None else offset.total_seconds()
        return self._offset_s

    def local(self, wall: float) -> float:
        """Return the local time. `wall`: seconds since 1970."""
        return wall + self.offset_s(wall)
