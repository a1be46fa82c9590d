"""The clock and the timers that request drivers and queue drivers use.

The proxy implements the clock and timers with the event loop, the simulator with a virtual clock.
`Alarm` and `Scheduler` are base classes, so that compiled code calls their methods directly.

Must never: decide what a timer does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from mypy_extensions import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Alarm(ABC):
    """A timer for one call; the time of the call can be changed."""

    __slots__ = ()

    @abstractmethod
    def set(self, when: float) -> None:
        """Schedule the call for `when` (monotonic seconds). This replaces a time set before."""

    @abstractmethod
    def clear(self) -> None:
        """Cancel the scheduled call."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Scheduler(ABC):
    """The clock and the timers of one router."""

    __slots__ = ()

    @abstractmethod
    def now(self) -> float:
        """Return the time in monotonic seconds."""

    @abstractmethod
    def soon(self, act: Callable[[], None]) -> None:
        """Call `act` soon, after the calls that were added before, as `loop.call_soon` does."""

    @abstractmethod
    def alarm(self, act: Callable[[], None]) -> Alarm:
        """Return an alarm that is not set yet."""
