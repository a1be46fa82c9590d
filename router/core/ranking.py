"""Stores objects with levels that change often, and returns an object with the highest level.

Levels are small whole numbers. Objects with the same level are in one bucket. So a change costs the
same for ten objects and for ten thousand. `Ranking` stores the highest level. When its bucket is
empty, `largest` tries the next lower levels, one by one; the level takes at most as many steps down
as it was raised before.

`move` only records a change. Recorded changes are applied by the next call of `largest`, or when
there are many, because levels change with every request and the highest level is rarely needed.

Must never: depend on the meaning of a level.
"""

from __future__ import annotations

from typing import Final

_NOTED: Final = 256  # When this many changes are recorded, they are applied.


class Ranked:
    """Base class of the objects in a ranking. An object is in at most one ranking."""

    __slots__ = ("_bucket", "_is_noted", "_slot", "level")

    def __init__(self) -> None:
        self.level = 0  # 0: the object is not in the ranking.
        self._is_noted = False  # A change of this object's level is recorded, but not applied yet.
        self._bucket = 0  # The level of the bucket that holds this object; 0: none.
        self._slot = 0  # The index of this object in its bucket.


class Ranking:
    """Objects ordered by level."""

    __slots__ = ("_levels", "_noted", "_top")

    def __init__(self) -> None:
        self._levels: dict[int, list[Ranked]] = {}
        self._noted: list[Ranked] = []
        self._top = 0  # No object has a higher level than this.

    def move(self, thing: Ranked, level: int) -> None:
        """Set the level of an object. Level 0 removes the object from the ranking."""
        thing.level = level
        if thing._is_noted or level == thing._bucket:
            return
        thing._is_noted = True
        self._noted.append(thing)
        if len(self._noted) >= _NOTED:
            self._settle()

    def largest(self) -> Ranked | None:
        """Return an object with the highest level; `None` if the ranking is empty."""
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
