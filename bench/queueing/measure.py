"""CPU of the queue's steps, in microseconds: the median of several blocks, the garbage collector off.

A dispatch is everything the queue does for a request that waits: its arrival, the release of the
one it replaces, its grant. Leases are taken and given back outside of what is timed as far as they
can be; the cost of the loop itself is taken off.
"""

from __future__ import annotations

import gc
from random import Random
from statistics import median
from time import perf_counter

from bench.queueing.traffic import Replica, Traffic
from policies.queueing.ticket import Ticket

_BLOCK = 2000


def dispatch_us(
    policy: str, depth: int, blocks: int, *, replicas: int = 8, prefixes: bool = False
) -> float:
    """Of one that waits among `depth` others: offer, release of another (settle, freed), grant."""
    traffic = Traffic(policy, replicas, prefixes=prefixes)
    traffic.fill(depth)
    queue = traffic.queue
    rng = Random(2)
    found = []
    running: list[Ticket] = list(traffic.leases)
    gc.collect()
    gc.disable()
    try:
        for _ in range(blocks + 1):
            spent = 0.0
            for _ in range(_BLOCK):
                traffic.now += 0.001
                now = traffic.now
                ticket = traffic.ticket()
                begin = perf_counter()
                places = queue.offer(ticket, now)
                spent += perf_counter() - begin
                if places:
                    place = places[0]
                    assert isinstance(place, Replica)
                    traffic.lease(ticket, place)
                    begin = perf_counter()
                    queue.sent(ticket, place, now)
                    spent += perf_counter() - begin
                    running.append(ticket)
                index = rng.randrange(len(running))
                over, running[index] = running[index], running[-1]
                running.pop()
                traffic.leases.pop(over).release()
                begin = perf_counter()
                queue.settle(over, over.tokens, over.output, now)
                granted = queue.freed(over.place, now)
                spent += perf_counter() - begin
                for other in granted:
                    traffic.lease(other, other.place)
                    running.append(other)
            found.append(spent / _BLOCK)
    finally:
        gc.enable()
    return 1e6 * (median(found[1:]) - 3 * _timer_s())


def pass_us(blocks: int, *, replicas: int = 8, parts: bool = False) -> tuple[float, float]:
    """Of one that finds an open replica and nobody waiting: (offer alone, all of it to its end)."""
    traffic = Traffic("fair", replicas)
    queue = traffic.queue
    offers, wholes = [], []
    gc.collect()
    gc.disable()
    try:
        for _ in range(blocks + 1):
            offer_s = rest_s = 0.0
            for _ in range(_BLOCK):
                traffic.now += 0.001
                now = traffic.now
                ticket = traffic.ticket()
                begin = perf_counter()
                places = queue.offer(ticket, now)
                offer_s += perf_counter() - begin
                place = places[0]
                assert isinstance(place, Replica)
                traffic.lease(ticket, place)
                begin = perf_counter()
                queue.sent(ticket, place, now)
                rest_s += perf_counter() - begin
                lease = traffic.leases.pop(ticket)
                lease.begun()
                begin = perf_counter()
                queue.shown(ticket)
                queue.freed(place, now)
                rest_s += perf_counter() - begin
                lease.release()
                begin = perf_counter()
                queue.settle(ticket, ticket.tokens, ticket.output, now)
                queue.freed(place, now)
                rest_s += perf_counter() - begin
            offers.append(offer_s / _BLOCK)
            wholes.append((offer_s + rest_s) / _BLOCK)
    finally:
        gc.enable()
    timer_s = _timer_s()
    return 1e6 * (median(offers[1:]) - timer_s), 1e6 * (median(wholes[1:]) - 4 * timer_s)


def _timer_s() -> float:
    """What asking the time twice adds to what lies between."""
    found = []
    for _ in range(2000):
        begin = perf_counter()
        found.append(perf_counter() - begin)
    return median(found)
