"""Evicts waiting requests of large flows, to free connections or memory for a new request.

A flow is the requests of one account member (`FlowIdentity`). The queue decides which request is
evicted (`QueueEvictions`). The evicted requests are answered at the end of the turn of the event
loop, so that no request ends inside the call that evicted it.

Must never: evict a request of a flow that is not larger than the flow of the new request.
"""

from __future__ import annotations

from typing import cast

from policies.facts import RequestView
from policies.queueing.flow_identity import FlowIdentity
from policies.queueing.ticket import Ticket
from router.admission.due import Expired
from router.admission.evictions import GIVE_WAY
from router.admission.pools import Pools
from router.admission.queue import Queue
from router.core.scheduling import Scheduler
from router.dispatch.driver.request import Request


class Evictions:
    """The evictions of one router."""

    def __init__(self, pools: Pools, scheduler: Scheduler) -> None:
        self._pools = pools
        self._scheduler = scheduler
        # Evicted requests that will be answered at the end of the turn of the event loop.
        self._evicted: list[Expired] = []
        # Total bytes of the bodies of `_evicted`, which will be freed at the end of the turn.
        self._freeing = 0

    def relieve(self, flow: FlowIdentity, body_bytes: int, now: float) -> bool:
        """Evict waiting requests of larger flows, to free connections or `body_bytes` of memory.

        Returns whether enough connections or memory will be freed.
        """
        newcomer = Ticket(None, RequestView(body_bytes=body_bytes), flow)
        queues = self._pools.queues
        if not body_bytes:
            queue = max(queues, key=_waiting)
            is_freed = queue.evictions.relieve(newcomer, now)
            self.take(queue)
            return is_freed
        missing = body_bytes - self._freeing
        victims: list[tuple[Queue, Ticket]] = []
        while missing > 0 and len(victims) < GIVE_WAY:
            queue = max(queues, key=_body_bytes)
            victim = queue.evictions.set_aside(newcomer)
            if victim is None:
                break
            victims.append((queue, victim))
            missing -= victim.view.body_bytes
        for queue, victim in reversed(victims):
            queue.evictions.put_back(victim)
        if missing > 0:
            return False
        for queue, victim in victims:
            queue.evictions.evict(victim, now, is_final=True)
            self.take(queue)
        return True

    def take(self, queue: Queue) -> None:
        """Take a queue's evicted requests, and answer them at the end of the event loop's turn."""
        if queue.evictions.evicted:
            if not self._evicted:
                self._scheduler.soon(self._answer)
            for gone in queue.evictions.evicted:
                self._freeing += gone.ticket.view.body_bytes
                self._evicted.append(gone)
            queue.evictions.evicted = []

    def _answer(self) -> None:
        evicted, self._evicted = self._evicted, []
        self._freeing = 0
        for gone in evicted:
            answer_expired(gone)


def answer_expired(expired: Expired) -> None:
    """Send the error to the client of a request that expired or was evicted."""
    request = expired.ticket.request
    if request is not None:
        x = cast(Request, request)
        try:
            x.answer(expired.error)
        except Exception as err:
            x.crashed(err)


def _waiting(queue: Queue) -> int:
    return queue.waiting


def _body_bytes(queue: Queue) -> int:
    return queue.body_bytes
