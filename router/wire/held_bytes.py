"""Counts the bytes of one connection that are in memory, as a part of `Front.held_bytes`."""

from __future__ import annotations

from router.wire.front import Front


class HeldBytes:
    """The bytes of the request's body, and those of an unfinished head and of early data."""

    __slots__ = ("_body", "_front", "early")

    def __init__(self, front: Front) -> None:
        self._front = front
        self._body = 0
        self.early = 0

    def count_body(self, size: int) -> int:
        """Sets the bytes of the body. Returns how many bytes all connections hold too many."""
        front = self._front
        front.held_bytes += size - self._body
        self._body = size
        return front.held_bytes - front.bodies_total

    def count_early(self, size: int) -> int:
        """Sets the bytes of an unfinished head and of early data. Returns the same as `count_body`,
        or 0 if the connection does not hold more than before."""
        front = self._front
        grown = size - self.early
        front.held_bytes += grown
        self.early = size
        return front.held_bytes - front.bodies_total if grown > 0 else 0

    def release_body(self) -> None:
        self._front.held_bytes -= self._body
        self._body = 0

    def release(self) -> None:
        """Releases all bytes of the connection."""
        self.release_body()
        self._front.held_bytes -= self.early
        self.early = 0
