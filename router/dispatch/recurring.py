"""Runs a check about once a second, only while it has something to look at.

An idle router checks nothing: the check begins with a request, and ends when it is not needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from router.core.clock import monotonic
from router.wire.sweep import NEVER, Sweeper

_EVERY_S: Final = 1.0


class Recurring:
    """A check that repeats; a party of the sweeper."""

    def __init__(self, check: Callable[[float], bool], sweeper: Sweeper) -> None:
        """`check`: gets the monotonic time, and returns whether to check again."""
        self.deadline = NEVER
        self._check = check
        self._sweeper = sweeper

    def watch(self) -> None:
        """Begin to check, if that has not begun."""
        if self.deadline == NEVER:
            self.deadline = monotonic() + _EVERY_S
            self._sweeper.add(self)

    def on_deadline(self, now: float) -> None:
        self.deadline = now + _EVERY_S
        if not self._check(now):
            self.deadline = NEVER
            self._sweeper.discard(self)
