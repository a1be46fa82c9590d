"""Things by a level that changes often, of which only the highest is asked for.

Things of one level share a bucket. So a change costs the same for ten things and for ten thousand,
and the highest is found without a search: looking down over empty levels takes at most as many
steps as levels were climbed before. Levels are small whole numbers.

Must never: know what a level means.
"""

from __future__ import annotations


class Ranked:
    """Base of what a ranking holds; in one ranking at a time."""

    __slots__ = ("level", "slot")

    def __init__(self) -> None:
        self.level = 0  # 0: it is not in the ranking
        self.slot = 0  # in its bucket


class Ranking:
    """Things by level."""

    __slots__ = ("_levels", "_top")

    def __init__(self) -> None:
        self._levels: dict[int, list[Ranked]] = {}
        self._top = 0  # no level above holds anything

    def move(self, thing: Ranked, level: int) -> None:
        """Put a thing on a level; 0 takes it out."""
        before = thing.level
        if level == before:
            return
        if before:
            bucket = self._levels[before]
            last = bucket.pop()
            if last is not thing:
                bucket[thing.slot] = last
                last.slot = thing.slot
            if not bucket:
                del self._levels[before]
        if level:
            found = self._levels.get(level)
            if found is None:
                found = self._levels[level] = []
            thing.slot = len(found)
            found.append(thing)
            if level > self._top:
                self._top = level
        thing.level = level

    def largest(self) -> Ranked | None:
        """One of the things on the highest level."""
        while self._top:
            bucket = self._levels.get(self._top)
            if bucket is not None:
                return bucket[-1]
            self._top -= 1
        return None
