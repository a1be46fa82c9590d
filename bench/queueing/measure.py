"""Measures the CPU time of the queue's steps in µs, with the garbage collector off.

A result is the minimum over several blocks of operations. Times are CPU times of the thread, so
that other processes do not count. The same block is also measured without the queue, and its time
is subtracted. Without the queue, a block only counts requests at replicas (takes and releases
leases).
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from random import Random
from time import thread_time

from bench.queueing.traffic import Replica, Traffic
from policies.queueing.ticket import Ticket
from router.core.lease import Lease

_BLOCK = 2000


def dispatch_us(
    policy: str, depth: int, blocks: int, *, replicas: int = 8, prefixes: bool = False
) -> tuple[float, float]:
    """Return the CPU µs of a request that waits while `depth` others wait.

    The first value is for its arrival and for the grant of a free place. The second value is for
    the settlement of its cost at its end.
    """
    traffic = Traffic(policy, replicas, prefixes=prefixes)
    traffic.fill(depth)
    queue = traffic.queue
    rng = Random(2)
    running: list[tuple[Ticket, Lease]] = list(traffic.leases.items())

    def served() -> None:
        for ticket, index in zip(tickets, ends, strict=True):
            now = ticket.arrival
            places = queue.offer(ticket, now)
            if places:
                place = places[0]
                running.append((ticket, Lease(place, ticket.view.prompt_tokens)))  # type: ignore[arg-type]
                queue.sent(ticket, place, now)
            spot = index % len(running)
            over, lease = running[spot]
            running[spot] = running[-1]
            running.pop()
            lease.release()
            over_all.append(over)
            granted = queue.freed(over.place, now)
            running.extend([(each, Lease(each.place, each.view.prompt_tokens)) for each in granted])

    others: list[tuple[Ticket, Lease]] = []
    spare = Replica(0)

    def bare() -> None:
        for ticket, index in zip(tickets, ends, strict=True):
            others.append((ticket, Lease(spare, ticket.view.prompt_tokens)))
            spot = index % len(others)
            over, lease = others[spot]
            others[spot] = others[-1]
            others.pop()
            lease.release()
            none.append(over)

    def settled() -> None:
        for ticket in over_all:
            queue.settle(ticket, ticket.view.prompt_tokens, ticket.view.output_tokens, traffic.now)

    found, settles = [], []
    for _ in range(blocks):
        tickets = [traffic.ticket() for _ in range(_BLOCK)]
        for number, ticket in enumerate(tickets):
            ticket.arrival = traffic.now + 0.001 * number
        traffic.now += 0.001 * _BLOCK
        ends = [rng.randrange(1 << 30) for _ in range(_BLOCK)]
        over_all: list[Ticket] = []
        none: list[Ticket] = []
        found.append(_cpu_s(served) - _cpu_s(bare))
        settles.append(_cpu_s(settled))
    return 1e6 * min(found) / _BLOCK, 1e6 * min(settles) / _BLOCK


def beside_us(blocks: int, *, replicas: int = 8) -> float:
    """Return the CPU µs of an arrival while the queue is empty and one of the replicas is full."""
    traffic = Traffic("fair", replicas)
    queue = traffic.queue
    full = traffic.fleet.replicas[0]
    leases = [Lease(full, 10_000) for _ in range(3)]
    queue.freed(full, traffic.now)

    def offered() -> None:
        for ticket in tickets:
            queue.offer(ticket, ticket.arrival)

    def looped() -> None:
        for ticket in tickets:
            ticket.arrival  # noqa: B018  (what a loop costs)

    found = []
    for _ in range(blocks):
        tickets = [traffic.ticket() for _ in range(_BLOCK)]
        found.append(_cpu_s(offered) - _cpu_s(looped))
    for lease in leases:
        lease.release()
    return 1e6 * min(found) / _BLOCK


def pass_us(blocks: int, *, replicas: int = 8) -> tuple[float, float]:
    """Return the CPU µs of a request that finds a replica with room and an empty queue.

    The first value is for its arrival, the second for everything up to its end.
    """
    traffic = Traffic("fair", replicas)
    queue = traffic.queue

    def offered() -> None:
        for ticket in tickets:
            queue.offer(ticket, ticket.arrival)

    def looped() -> None:
        for ticket in tickets:
            ticket.arrival  # noqa: B018  (what a loop costs)

    def served() -> None:
        for ticket in tickets:
            now = ticket.arrival
            place = queue.offer(ticket, now)[0]
            lease = Lease(place, ticket.view.prompt_tokens)  # type: ignore[arg-type]
            queue.sent(ticket, place, now)
            lease.begun()
            queue.shown(ticket)
            queue.freed(place, now)
            lease.release()
            queue.settle(ticket, ticket.view.prompt_tokens, ticket.view.output_tokens, now)
            queue.freed(place, now)

    spare = Replica(0)

    def bare() -> None:
        for ticket in tickets:
            lease = Lease(spare, ticket.view.prompt_tokens)
            lease.begun()
            lease.release()

    offers, wholes = [], []
    for _ in range(blocks):
        tickets = [traffic.ticket() for _ in range(_BLOCK)]
        offers.append(_cpu_s(offered) - _cpu_s(looped))
        wholes.append(_cpu_s(served) - _cpu_s(bare))
    return 1e6 * min(offers) / _BLOCK, 1e6 * min(wholes) / _BLOCK


def waiting_bytes(depth: int, *, prefixes: bool = False) -> float:
    """Return the bytes per waiting request: its ticket, and its entries in the queue."""
    traffic = Traffic("fair", 8, prefixes=prefixes)
    gc.collect()
    tracemalloc.start()
    try:
        traffic.fill(depth)
        gc.collect()
        return tracemalloc.get_traced_memory()[0] / depth
    finally:
        tracemalloc.stop()


def _cpu_s(block: Callable[[], None]) -> float:
    gc.collect()
    gc.disable()
    try:
        begin = thread_time()
        block()
        return thread_time() - begin
    finally:
        gc.enable()
