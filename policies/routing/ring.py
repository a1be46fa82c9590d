"""A consistent hash ring of replica IDs. Routers that know the same replicas have the same ring.

Source: Karger et al., "Consistent Hashing and Random Trees", STOC 1997; the walk past full replicas
is from Mirrokni, Thorup, Zadimoghaddam, "Consistent Hashing with Bounded Loads", SODA 2018. The
position of a point on the ring depends on the ID of its replica only, not on order, weight, health
or load. So when a replica is added or removed, only its own share of the keys moves.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Set

from xxhash import xxh3_64_intdigest

# Shares of the ring differ by about 1 / sqrt(points). SMG has 150 points per replica, vLLM Router
# 160, KubeAI 256.
POINTS = 128


class Ring:
    """`walk(key)` yields the replica that a key maps to, then the next replicas on the ring."""

    __slots__ = ("_owner", "_points", "ids")

    def __init__(self) -> None:
        self.ids: frozenset[str] = frozenset()
        self._owner: dict[int, str] = {}
        self._points: list[int] = []  # positions on the ring, sorted

    def keep(self, ids: Set[str]) -> None:
        """Remove every replica that is not in `ids` from the ring."""
        gone = self.ids - ids
        if not gone:
            return
        self.ids -= gone
        owner = self._owner
        for id in gone:
            for point in _points_of(id):
                if owner.get(point) == id:
                    del owner[point]
        self._points = [point for point in self._points if point in owner]

    def add(self, ids: Set[str]) -> None:
        new = ids - self.ids
        owner, points = self._owner, self._points
        for id in new:
            for point in _points_of(id):
                if point not in owner:  # with 64 bits, collisions do not occur in practice
                    points.append(point)
                    owner[point] = id
        self.ids |= new
        points.sort()  # quick, because only the new points at the end are unsorted

    def walk(self, key: str) -> Iterator[str]:
        """Yield every replica once, in the order of the ring, starting at the key's position."""
        points, owner = self._points, self._owner
        start = bisect_left(points, _place(key))
        seen: set[str] = set()
        for index in range(start - len(points), start):  # negative indexes wrap around
            id = owner[points[index]]
            if id not in seen:
                seen.add(id)
                yield id


def _points_of(id: str) -> Iterator[int]:
    return (_place(f"{id}#{number}") for number in range(POINTS))


def _place(text: str) -> int:
    return xxh3_64_intdigest(text.encode("utf-8", "surrogatepass"))
