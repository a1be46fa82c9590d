"""Drains replicas whose machines are reclaimed, and moves requests that would not end in time.

A notice names replicas and the time until their machine goes away. After the notice, the replicas
get no new request (`Duty.DRAINING`). Once a second, their requests are examined
(`dispatch/reclaim.py`).

A replica that went down after its notice and is up again runs on a new machine, so it returns to
the duty that it had before. A false notice ends when the operator uncordons the replica, or when
the metadata service that announced it withdraws it before the announced time.

Must never: end a request, decide whether a request is moved, or move a request to a replica that
the same notice names.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from router.config.model import Spot
from router.core.clock import monotonic
from router.dispatch.exchange import Exchange
from router.dispatch.reclaim import move_requests
from router.fleet.membership import UNCORDON, Duty, duty_after
from router.fleet.notice import UNSTATED, Notice
from router.fleet.replica import Replica
from router.fleet.table.fleet import Fleet
from router.observe.events import log_event

_LOOK_S: Final = 1.0  # Seconds between two examinations of the requests.
ADMIN: Final = "admin"  # The source of a notice from the admin API.
SOURCES: Final = (ADMIN, "file", "aws", "gcp", "azure")


class Reclaim:
    """One replica whose machine is reclaimed. Times are monotonic seconds."""

    __slots__ = ("before", "due", "is_over", "is_passed_on", "sources", "was_down")

    def __init__(self, due: float, before: int) -> None:
        self.due = due  # The time when the machine goes away.
        self.before = before  # The replica's duty before the notice.
        self.sources: set[str] = set()  # The sources whose notices are not withdrawn.
        self.is_over = False  # `due` has passed, and the unfinished requests are counted.
        self.was_down = False  # The replica was seen down after the notice.
        # Only the process before this one knows the notice from its source.
        self.is_passed_on = False


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
        replicas = self._meant(notice)
        if not replicas:
            log_event(logging.WARNING, "spot notice names no replica", key=source, source=source)
        self._announce(replicas, notice.seconds, source)

    def reclaim(self, replica: Replica, seconds: float, source: str) -> None:
        """Drains a replica whose machine goes away after `seconds`; UNSTATED: `spot.notice`.

        If several notices name a replica, the earliest time counts. A time that has passed does not
        count any more, because the machine has not gone away.
        """
        self._announce([replica], seconds, source)

    def continues(self, replica: Replica, seconds: float, sources: Iterable[str]) -> None:
        """Applies the notices of a replica that were announced to the process before this one."""
        for source in sources:
            self._announce([replica], seconds, source)
        self._reclaims[replica].is_passed_on = True

    def ended_before(self, replica: Replica, duty: int) -> None:
        """Ends a reclaim that has ended in the process before this one. `duty`: as it was there.

        A notice that this process got from its source remains.
        """
        known = self._reclaims[replica]
        if known.is_passed_on:
            known.before = duty
            self._return(replica)
            self._arm()

    def sources_of(self, replica: Replica) -> tuple[str, ...]:
        """Return the sources that announce the reclaim of a replica that has a notice."""
        return tuple(sorted(self._reclaims[replica].sources))

    def _announce(self, replicas: Sequence[Replica], seconds: float, source: str) -> None:
        now = monotonic()
        due = now + (self.rules.notice_s if seconds == UNSTATED else seconds)
        # All replicas of the notice are drained before the first request is moved. Otherwise
        # requests would be moved to a replica that goes away as well.
        for replica in replicas:
            self.notices[source] += 1
            known = self._reclaims.get(replica)
            if known is None:
                known = self._reclaims[replica] = Reclaim(due, replica.standing.duty)
            known.due = due if known.due <= now else min(known.due, due)
            known.is_over = known.is_over and known.due <= now
            known.sources.add(source)
            known.is_passed_on = False
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
        self._move(replicas, now)
        for replica in replicas:
            replica.give_up()  # Requests that wait for a connection leave.
        self._arm()

    def withdrawn(self, notice: Notice, source: str) -> None:
        """Ends a notice that its source no longer reports.

        A replica returns to service when no other source announces its reclaim. A metadata service
        may also remove a notice because the machine goes away now. So after the time of the notice,
        the replica stays drained.
        """
        now = monotonic()
        for replica in self._meant(notice):
            known = self._reclaims.get(replica)
            if known is None or known.due <= now:
                continue
            known.sources.discard(source)
            if not known.sources:
                log_event(logging.WARNING, "reclaim withdrawn", key=None, replica=replica.id)
                self._return(replica)
        self._arm()

    def _meant(self, notice: Notice) -> list[Replica]:
        return [r for r in self._fleet.members if _is_meant(notice, r)]

    def _return(self, replica: Replica) -> None:
        """Ends the reclaim of a replica, which returns to the duty that it had before."""
        self._fleet.set_duty(replica, self._reclaims.pop(replica).before)

    def seconds_left(self, replica: Replica) -> float | None:
        """Return the seconds until the machine goes away; `None`: there is no notice."""
        known = self._reclaims.get(replica)
        return None if known is None else max(0.0, known.due - monotonic())

    def duty_before(self, replica: Replica) -> int:
        """Return the duty that the replica has without a notice."""
        known = self._reclaims.get(replica)
        return replica.standing.duty if known is None else known.before

    def passes(self, replica: Replica, successor: Replica) -> None:
        """Applies the notice for a replica to the object that replaces it at a reload."""
        known = self._reclaims.get(replica)
        if known is not None:
            passed = self._reclaims[successor] = Reclaim(known.due, known.before)
            passed.sources, passed.is_over = known.sources, known.is_over
            passed.is_passed_on = known.is_passed_on

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
        self._move([r for r in self._reclaims if any(rank.inflight for rank in r.ranks)], now)
        for replica, reclaim in [*self._reclaims.items()]:
            if reclaim.due <= now and not reclaim.is_over:
                reclaim.is_over = True
                self.left += sum(rank.inflight for rank in replica.ranks)
            if replica.removed:
                if not any(rank.inflight for rank in replica.ranks):
                    del self._reclaims[replica]
            elif not replica.health.up:
                reclaim.was_down = True
            elif reclaim.was_down:
                self._return(replica)
        self._arm()

    def _move(self, replicas: Sequence[Replica], now: float) -> None:
        margin_s = self.rules.margin_s
        dues = {
            rank: self._reclaims[replica].due - margin_s
            for replica in replicas
            for rank in replica.ranks
        }
        if dues:
            moves = move_requests(self._exchanges, dues, now)
            self.moved["requeued"] += moves.requeued
            self.moved["continued"] += moves.continued


def _is_meant(notice: Notice, replica: Replica) -> bool:
    if notice.replicas:
        return replica.id in notice.replicas
    if notice.node:
        return replica.config.node == notice.node
    return replica.is_spot
