"""Holds requests without a replica until the first probe of a new replica has ended.

A new replica may serve the model of a request that no other replica serves; the first probe shows
whether the new replica does. Before the probe, an error such as "this model does not exist" could
be wrong. So the request waits, for `WAIT_S` seconds at most. In the same way, a request for an
unknown model waits until the model lists of all replicas were read again, unless they were read a
short time ago (`Table.may_learn`).

Must never: hold a request that has ended, or a request for which a first probe changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from router.core.errors import Reason
from router.core.scheduling import Alarm, Scheduler
from router.dispatch.driver.request import Request
from router.fleet.table.fleet import Fleet

WAIT_S: Final = 2.0
# Maximum number of waiting requests. The bytes of their bodies have their own limit.
_REQUESTS: Final = 10_000
# Errors that the first probe of a new replica may make obsolete.
HELPED: Final = frozenset(
    {
        Reason.MODEL_NOT_FOUND,
        Reason.MODEL_RESTARTING,
        Reason.NO_REPLICA,
        Reason.REGION_NOT_ALLOWED,
    }
)


class FirstProbes:
    """The requests of one router that wait for a first probe."""

    def __init__(self, fleet: Fleet, scheduler: Scheduler) -> None:
        self._fleet = fleet
        self._scheduler = scheduler
        self._waiting: dict[Request, _Wait] = {}
        self._is_woken = False
        fleet.hooks.first_probe = self._decided

    def __len__(self) -> int:
        return len(self._waiting)

    def hold(self, request: Request, retry: Callable[[], None], late: Callable[[], None]) -> bool:
        """Let a request wait. Returns False if no first probe and no read of lists is pending, or
        if too many requests wait.

        `retry` is called after each first probe. `retry` must send the request (and call `forget`),
        hold it again, or end it. `late` is called when the waiting time is over.
        """
        if not self._fleet.may_learn(request.view.model):
            return False
        wait = self._waiting.get(request)
        if wait is None:
            if len(self._waiting) >= _REQUESTS:
                return False
            alarm = self._scheduler.alarm(partial(self._late, request))
            alarm.set(self._scheduler.now() + WAIT_S)
            wait = self._waiting[request] = _Wait(alarm)
        wait.retry, wait.late = retry, late
        return True

    def forget(self, request: Request) -> None:
        """Forget a request that has ended, or whose replica was found."""
        wait = self._waiting.pop(request, None)
        if wait is not None:
            wait.alarm.clear()

    def _decided(self) -> None:
        """Handle the end of a replica's first probe, or of a read of all lists.

        The waiting requests are handled in a later turn of the event loop, because a reload may be
        in progress now.
        """
        if self._waiting and not self._is_woken:
            self._is_woken = True
            self._scheduler.soon(self._wake)

    def _wake(self) -> None:
        self._is_woken = False
        for request, wait in list(self._waiting.items()):
            # The retry of one request may end another request.
            if self._waiting.get(request) is wait:
                _call(wait.retry, request)

    def _late(self, request: Request) -> None:
        wait = self._waiting[request]
        self.forget(request)
        _call(wait.late, request)


def _call(act: Callable[[], None], request: Request) -> None:
    try:
        act()
    except Exception as err:
        request.crashed(err)


class _Wait:
    """The wait of one request for a first probe."""

    def __init__(self, alarm: Alarm) -> None:
        self.alarm = alarm
        self.retry: Callable[[], None]
        self.late: Callable[[], None]
