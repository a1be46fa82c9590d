"""Requests that wait for the first probe of a replica, because no other replica can take them.

A replica that was just added may serve their model: its first probe tells. Until then an answer
such as "this model does not exist" would be wrong, so a request waits, for `WAIT_S` at most.

Must never: hold a request that is over, or one that no first probe can help.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from router.core.errors import Reason
from router.fleet.table import Fleet

if TYPE_CHECKING:
    from router.dispatch.exchange import Exchange

WAIT_S: Final = 2.0
_REQUESTS: Final = 10_000  # at once; their bodies have a limit of their own
# Why a request finds no replica, where a first probe may change that.
HELPED: Final = frozenset({Reason.MODEL_NOT_FOUND, Reason.MODEL_RESTARTING, Reason.NO_REPLICA})


class FirstProbes:
    """The requests of one router that wait for a first probe."""

    def __init__(self, fleet: Fleet, loop: asyncio.AbstractEventLoop) -> None:
        self._fleet = fleet
        self._loop = loop
        self._waiting: dict[Exchange, _Wait] = {}
        self._is_woken = False
        fleet.on_first_probe = self._decided

    def __len__(self) -> int:
        return len(self._waiting)

    def hold(self, exchange: Exchange, again: Callable[[], None], late: Callable[[], None]) -> bool:
        """Let a request wait. False: no first probe is awaited, or too many requests wait.

        After each first probe `again` is called, which finds a replica and begins (`forget`), or
        holds the request once more, or ends it. `late` is called when its time is up.
        """
        if not self._fleet.awaits_probe:
            return False
        wait = self._waiting.get(exchange)
        if wait is None:
            if len(self._waiting) >= _REQUESTS:
                return False
            timer = self._loop.call_later(WAIT_S, self._late, exchange)
            wait = self._waiting[exchange] = _Wait(timer)
        wait.again, wait.late = again, late
        return True

    def forget(self, exchange: Exchange) -> None:
        """The request is over, or has found its replica."""
        wait = self._waiting.pop(exchange, None)
        if wait is not None:
            wait.timer.cancel()

    def _decided(self) -> None:
        """A first probe is over. A reload may be under way, so the requests wait for its end."""
        if self._waiting and not self._is_woken:
            self._is_woken = True
            self._loop.call_soon(self._wake)

    def _wake(self) -> None:
        self._is_woken = False
        for exchange, wait in list(self._waiting.items()):
            if self._waiting.get(exchange) is wait:  # one may end another
                wait.again()

    def _late(self, exchange: Exchange) -> None:
        wait = self._waiting[exchange]
        self.forget(exchange)
        wait.late()


class _Wait:
    """One request's wait."""

    def __init__(self, timer: asyncio.TimerHandle) -> None:
        self.timer = timer
        self.again: Callable[[], None]
        self.late: Callable[[], None]
