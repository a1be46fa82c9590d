"""Things by a level that changes often, of which only the highest is asked for.

Things of one level share a bucket. So a change costs the same for ten things and for ten thousand,
and the highest is found without a search: looking down over empty levels takes at most as many
steps as levels were climbed before. Levels are small whole numbers.

A change is only noted. It is made when somebody asks, or when many are noted: levels go up and down
with every request, and the highest is rarely asked for.

Must never: know what a level means.
"""

from __future__ import annotations

from typing import Final

_NOTED: Final = 256  # changes, before they are made though nobody asks


class Ranked:
    """Base of what a ranking holds; in one ranking at a time."""

    __slots__ = ("_bucket", "_is_noted", "_slot", "level")

    def __init__(self) -> None:
        self.level = 0  # 0: it is not in the ranking
        self._is_noted = False  # its level has changed
        self._bucket = 0  # the level at which it is found; 0: at none
        self._slot = 0  # in its bucket


class Ranking:
    """Things by level."""

    __slots__ = ("_levels", "_noted", "_top")

    def __init__(self) -> None:
        self._levels: dict[int, list[Ranked]] = {}
        self._noted: list[Ranked] = []
        self._top = 0  # no level above holds anything

    def move(self, thing: Ranked, level: int) -> None:
        """Put a thing on a level; 0 takes it out."""
        thing.level = level
        if thing._is_noted or level == thing._bucket:
            return
        thing._is_noted = True
        self._noted.append(thing)
        if len(self._noted) >= _NOTED:
            self._settle()

    def largest(self) -> Ranked | None:
        """One of the things on the highest level."""
        if self._noted:
            self._settle()
        while self._top:
            bucket = self._levels.get(self._top)
            if bucket is not None:
                return bucket[-1]
            self._top -= 1
        return None

    def _settle(self) -> None:
        for thing in self._noted:
            thing._is_noted = False
            self._place(thing, thing.level)
        self._noted.clear()

    def _place(self, thing: Ranked, level: int) -> None:
        before = thing._bucket
        if level == before:
            return
        if before:
            bucket = self._levels[before]
            last = bucket.pop()
            if last is not thing:
                bucket[thing._slot] = last
                last._slot = thing._slot
            if not bucket:
                del self._levels[before]
        if level:
            found = self._levels.get(level)
            if found is None:
                found = self._levels[level] = []
            thing._slot = len(found)
            found.append(thing)
            if level > self._top:
                self._top = level
        thing._bucket = level
