"""Drains replicas whose machines are reclaimed, and moves requests that would not end in time.

A notice names replicas and the time until their machine goes away. After the notice, the replicas
get no new request (`Duty.DRAINING`). Once a second, their requests are examined
(`dispatch/reclaim.py`).
A replica that went down after its notice and is up again runs on a new machine, so it returns to
the duty that it had before. A false notice ends when the operator uncordons the replica.

Must never: end a request, or decide whether a request is moved.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from time import monotonic
from typing import Final

from router.config.model import Spot
from router.dispatch.exchange import Exchange
from router.dispatch.reclaim import move_requests
from router.fleet.membership import UNCORDON, Duty, duty_after
from router.fleet.replica import Replica
from router.fleet.spot.notice import UNSTATED, Notice
from router.fleet.table import Fleet
from router.observe.events import log_event

_LOOK_S: Final = 1.0  # Seconds between two examinations of the requests.
ADMIN: Final = "admin"  # The source of a notice from the admin API.
RESTART: Final = "restart"  # The process before this one passed a notice on.
SOURCES: Final = (ADMIN, "file", "aws", "gcp", "azure", RESTART)


class Reclaim:
    """One replica whose machine is reclaimed. Times are monotonic seconds."""

    __slots__ = ("before", "due", "is_over", "was_down")

    def __init__(self, due: float, before: int) -> None:
        self.due = due  # The time when the machine goes away.
        self.before = before  # The replica's duty before the notice.
        self.is_over = False  # `due` has passed, and the unfinished requests are counted.
        self.was_down = False  # The replica was seen down after the notice.


class Reclaims:
    """All reclaims of one router, and their counts. Call `stop` at the end."""

    def __init__(
        self,
        rules: Spot,
        fleet: Fleet,
        exchanges: Collection[Exchange],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`exchanges`: the running requests. The caller adds and removes them."""
        self.rules = rules
        self.notices = dict.fromkeys(SOURCES, 0)  # Number of replicas in notices, by source.
        self.moved = {"requeued": 0, "continued": 0}
        self.left = 0  # Requests that were still running when their machine went away.
        self._fleet = fleet
        self._exchanges = exchanges
        self._loop = loop
        self._reclaims: dict[Replica, Reclaim] = {}
        self._timer: asyncio.TimerHandle | None = None

    def noticed(self, notice: Notice, source: str) -> None:
        """Applies a notice. `source`: one of SOURCES."""
        for replica in [*self._fleet.replicas.values()]:
            if _is_meant(notice, replica):
                self.reclaim(replica, notice.seconds, source)

    def reclaim(self, replica: Replica, seconds: float, source: str) -> None:
        """Drains a replica whose machine goes away after `seconds`; UNSTATED: `spot.notice`.

        If several notices name a replica, the earliest time counts.
        """
        now = monotonic()
        due = now + (self.rules.notice_s if seconds == UNSTATED else seconds)
        self.notices[source] += 1
        known = self._reclaims.get(replica)
        if known is None:
            self._reclaims[replica] = Reclaim(due, replica.duty)
        else:
            known.due = min(known.due, due)
        log_event(
            logging.WARNING,
            "replica reclaimed",
            key=None,
            replica=replica.id,
            source=source,
            seconds=round(due - now, 3),
            inflight=replica.inflight,
        )
        self._fleet.set_duty(replica, Duty.DRAINING)
        self._move(replica, now)
        replica.give_up()  # Requests that wait for a connection leave.
        self._arm()

    def seconds_left(self, replica: Replica) -> float | None:
        """Returns the seconds until the machine goes away; `None`: there is no notice."""
        known = self._reclaims.get(replica)
        return None if known is None else max(0.0, known.due - monotonic())

    def duty_before(self, replica: Replica) -> int:
        """Returns the duty that the replica has without a notice."""
        known = self._reclaims.get(replica)
        return replica.duty if known is None else known.before

    def passes(self, replica: Replica, successor: Replica) -> None:
        """Applies the notice for a replica to the object that replaces it at a reload."""
        known = self._reclaims.get(replica)
        if known is not None:
            self._reclaims[successor] = Reclaim(known.due, known.before)

    def decided(self, replica: Replica, action: str) -> None:
        """Records an action of the operator on a replica.

        `action`: one of `membership.ACTIONS`. `uncordon` ends the notice. Any other action also
        applies to the new machine of the replica.
        """
        known = self._reclaims.get(replica)
        if known is not None and action == UNCORDON:
            del self._reclaims[replica]
        elif known is not None:
            known.before = duty_after(action, known.before)

    def stop(self) -> None:
        self._reclaims.clear()
        self._arm()

    def _arm(self) -> None:
        if self._reclaims and self._timer is None:
            self._timer = self._loop.call_later(_LOOK_S, self._look)
        elif not self._reclaims and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        now = monotonic()
        for replica, reclaim in [*self._reclaims.items()]:
            if replica.inflight:
                self._move(replica, now)
            if reclaim.due <= now and not reclaim.is_over:
                reclaim.is_over = True
                self.left += replica.inflight
            if replica.removed:
                if not replica.inflight:
                    del self._reclaims[replica]
            elif not replica.health.up:
                reclaim.was_down = True
            elif reclaim.was_down:
                del self._reclaims[replica]
                self._fleet.set_duty(replica, reclaim.before)
        self._arm()

    def _move(self, replica: Replica, now: float) -> None:
        due = self._reclaims[replica].due - self.rules.margin_s
        moves = move_requests(self._exchanges, replica, due, now)
        self.moved["requeued"] += moves.requeued
        self.moved["continued"] += moves.continued


def _is_meant(notice: Notice, replica: Replica) -> bool:
    if notice.replicas:
        return replica.id in notice.replicas
    if notice.node:
        return replica.config.node == notice.node
    return replica.is_spot
