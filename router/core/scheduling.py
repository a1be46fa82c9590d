"""Time, as the drivers of requests and of the queue see it: this moment, and calls at a later one.

The proxy has an event loop behind it, the simulator a virtual clock. Base classes, so that compiled
code calls them directly.

Must never: decide what happens then.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from mypy_extensions import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Alarm(ABC):
    """One call at one moment, which can be moved."""

    __slots__ = ()

    @abstractmethod
    def set(self, when: float) -> None:
        """Ring at `when`, in monotonic seconds, instead of whenever it was to ring."""

    @abstractmethod
    def clear(self) -> None:
        """Do not ring."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Scheduler(ABC):
    """The time of one router."""

    __slots__ = ()

    @abstractmethod
    def now(self) -> float:
        """Monotonic seconds."""

    @abstractmethod
    def soon(self, act: Callable[[], None]) -> None:
        """Call at the end of this turn, behind everything that was asked for before."""

    @abstractmethod
    def alarm(self, act: Callable[[], None]) -> Alarm:
        """An alarm that is not set yet."""
