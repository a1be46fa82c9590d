"""Runs the code of each part in `parts` between marks (a clock or an instruction counter).

A *work* is a function that runs a block of operations and returns the mean cost of one operation,
in the unit of the marks. A cost that is a difference (of two routers, or of two queue depths) is
measured within one block. Must never depend on whether time or instructions are counted.

`Marks`, `Clock`, `Counter`: marks the begin and the end of measured work, for a clock or for
callgrind's instruction counter.

Must never import the router.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from time import thread_time
from typing import Final

from bench.overhead.memory import Router
from bench.overhead.queue_traffic import Traffic as QueueTraffic
from bench.overhead.routing_traffic import Fleet as RoutingFleet, Traffic as RoutingTraffic
from policies.queueing.ticket import Ticket
from router.config.model import Hedging
from router.core.lease import Lease
from router.lab.overhead import shapes

_PAIRS: Final = 1000  # empty pairs of `begin` and `end`, with which their own cost is measured

# The source of a C library that provides callgrind's macros as functions. It also replaces the
# monotonic clock of the process and of its event loop: the clock advances by 4 µs whenever it is
# read. So the machine's speed does not decide which timers expire. The clock begins
# 31 years after the start of the machine: a thread that waits for the GIL until a time that the
# real clock has passed would count each of its tries.
SHIM: Final = """
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <valgrind/callgrind.h>
static long long now_ns = 1000000000000000000;
int clock_gettime(clockid_t clock, struct timespec *found) {
    if (clock != CLOCK_MONOTONIC && clock != CLOCK_MONOTONIC_COARSE)
        return syscall(SYS_clock_gettime, clock, found);
    now_ns += 3815;
    found->tv_sec = now_ns / 1000000000;
    found->tv_nsec = now_ns % 1000000000;
    return 0;
}
void toggle(void) { CALLGRIND_TOGGLE_COLLECT; }
void on(void) { CALLGRIND_START_INSTRUMENTATION; }
void off(void) { CALLGRIND_STOP_INSTRUMENTATION; }
void dump(void) { CALLGRIND_DUMP_STATS; }
"""


class Marks(ABC):
    """Counts the work between `begin` and `end`, minus the cost of the two calls."""

    own = 0.0  # the cost of a pair of `begin` and `end` without work

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def end(self) -> None: ...

    @abstractmethod
    def take(self) -> float:
        """Return the count since the last `take`."""

    def calibrate(self) -> None:
        self.own = 0.0
        for _ in range(_PAIRS):
            self.begin()
            self.end()
        self.own = self.take() / _PAIRS


class Clock(Marks):
    """Measures the CPU time of this thread in µs, which other processes hardly change."""

    def __init__(self) -> None:
        self._began = self._spent = 0.0
        self._pairs = 0
        self.calibrate()

    def begin(self) -> None:
        self._began = thread_time()

    def end(self) -> None:
        self._spent += thread_time() - self._began
        self._pairs += 1

    def take(self) -> float:
        cost = self._spent * 1e6 - self._pairs * self.own
        self._spent, self._pairs = 0.0, 0
        return cost


class Counter(Marks):
    """Counts instructions of this thread.

    The process runs under callgrind with `--collect-atstart=no` and writes to `folder`/out.
    """

    def __init__(self, folder: Path) -> None:
        self._shim = ctypes.CDLL(str(folder / "marks.so"))
        self._toggle = self._shim.toggle
        self._folder = folder
        self._pairs = 0
        self._dumps = 0
        self.switch(True)
        self.calibrate()
        self.switch(False)

    def switch(self, on: bool) -> None:
        """Switch callgrind on or off. While it is off, the process runs ten times as fast."""
        (self._shim.on if on else self._shim.off)()

    def begin(self) -> None:
        self._pairs += 1
        self._toggle()

    def end(self) -> None:
        self._toggle()

    def take(self) -> float:
        self._shim.dump()
        self._dumps += 1
        file = self._folder / f"out.{self._dumps}"
        [totals] = [line for line in file.read_text().splitlines() if line.startswith("totals:")]
        file.unlink()
        cost = float(totals.split()[1]) - self._pairs * self.own
        self._pairs = 0
        return cost


DEPTH = 10  # number of requests that wait in a short queue
DEEP = 100_000
ROUNDS = 4  # how often two works alternate if their difference is measured
AT_REPLICA = 3  # requests that a replica accepts at a time, as with the default of `gates.waiting`


Work = Callable[[Marks, int], Awaitable[float]]


async def json_request(folder: Path) -> Work:
    return _plain(Router(folder), b"")


def _plain(router: Router, header: bytes) -> Work:
    """Measure whole requests, one after the other, which do not wait in the queue."""
    prompt = shapes.Prompt("127.0.0.1:8080")

    async def block(marks: Marks, count: int) -> float:
        for _ in range(count):
            request = prompt.next()
            if header:
                request = request.replace(b"\r\n", b"\r\n" + header + b"\r\n", 1)
            marks.begin()
            await router.one(request)
            marks.end()
        cost = marks.take() / count
        await asyncio.sleep(0)  # lets the timers of the access log and the sweeper run
        return cost

    return block


async def token(folder: Path) -> Work:
    """Measure tokens of one stream; each token arrives in a separate read."""
    router = Router(folder)
    prompt = shapes.Prompt("127.0.0.1:8080", ask=shapes.Ask(1000, 0.0))

    async def block(marks: Marks, count: int) -> float:
        replica = await router.begin(prompt.next())
        replica.data_received(shapes.STREAM_HEAD + shapes.ROLE_CHUNK + shapes.TOKEN_CHUNKS[0])
        for number in range(count):
            await asyncio.sleep(0)  # writes of one turn of the event loop would be combined
            event = shapes.TOKEN_CHUNKS[number % len(shapes.TOKEN_CHUNKS)]
            marks.begin()
            replica.data_received(event)
            marks.end()
        replica.data_received(shapes.LAST_CHUNKS)
        await asyncio.sleep(0)
        if not router.is_idle(0):
            raise RuntimeError("a stream did not end")
        return marks.take() / count

    return block


def _difference(one: Work, other: Work) -> Work:
    async def block(marks: Marks, count: int) -> float:
        cost = 0.0
        for _ in range(ROUNDS):
            # Collect garbage before each block: a collection in only one of them would distort the
            # difference.
            gc.collect()
            cost += await one(marks, count)
            gc.collect()
            cost -= await other(marks, count)
        return cost / ROUNDS

    return block


async def hedging_never(folder: Path) -> Work:
    plain = Router(folder, hedging=Hedging(policy="off"))
    return _difference(_plain(Router(folder), b""), _plain(plain, b""))


async def hedging_armed(folder: Path) -> Work:
    header = b"x-priority: high"
    fixed = Router(folder, hedging=Hedging(policy="fixed", options={"delay_s": 10.0}))
    plain = Router(folder, hedging=Hedging(policy="off"))
    return _difference(_plain(fixed, header), _plain(plain, header))


async def decision_64(folder: Path) -> Work:
    return _decision(64)


async def decision_1024(folder: Path) -> Work:
    return _decision(1024)


def _decision(replicas: int) -> Work:
    fleet = RoutingFleet(replicas, Random(1))
    traffic = RoutingTraffic(fleet, "kv_aware")
    chooser = traffic.chooser
    for _ in range(8 * replicas):  # until `Traffic` has the intended number of running requests
        view = traffic.next()
        replica = chooser.choose(view, fleet.replicas, 0.0)
        traffic.placed(view, replica, chooser.dispatched(view, replica, 0.0))

    async def block(marks: Marks, count: int) -> float:
        for _ in range(count):
            view = traffic.next()
            marks.begin()
            replica = chooser.choose(view, fleet.replicas, 0.0)
            placement = chooser.dispatched(view, replica, 0.0)
            marks.end()
            traffic.placed(view, replica, placement)
        if traffic.metrics.policy_errors:
            raise RuntimeError(f"the policy failed {traffic.metrics.policy_errors} times")
        return marks.take() / count

    return block


async def queue_10(folder: Path) -> Work:
    """Measure the cost of queueing while ten requests wait: the difference of two routers under the
    same load.

    One router's replicas accept so few requests that ten wait; the other's accept all requests.
    """
    clients = 2 * AT_REPLICA + DEPTH
    waiting = await _loaded(Router(folder, clients, max_inflight=AT_REPLICA), clients)
    passing = await _loaded(Router(folder, clients), clients)
    if (waiting.at_replicas, passing.at_replicas) != (clients - DEPTH, clients):
        raise RuntimeError(f"{clients - waiting.at_replicas} requests wait instead of {DEPTH}")
    return _difference(_turning(waiting), _turning(passing))


async def _loaded(router: Router, clients: int) -> Router:
    prompt = shapes.Prompt("127.0.0.1:8080")
    for client in range(clients):
        router.send(prompt.next(), client)
        for _ in range(3):  # a connection is opened, and the queue checks the replicas
            await asyncio.sleep(0)
    return router


def _turning(router: Router) -> Work:
    """Measure a replica's answer, the client's next request, and one turn of the event loop."""
    prompt = shapes.Prompt("127.0.0.1:8080")

    async def block(marks: Marks, count: int) -> float:
        for _ in range(count):
            request = prompt.next()
            marks.begin()
            router.send(request, await router.answer())
            await asyncio.sleep(0)
            marks.end()
        return marks.take() / count

    return block


async def queue_deeper(folder: Path) -> Work:
    """Measure the cost of the queue alone with 100,000 waiting requests, minus that with ten."""
    return _difference(_queue(DEEP), _queue(DEPTH))


def _queue(depth: int) -> Work:
    """Measure the queue alone: a request arrives, another request ends, and a waiting request gets
    its place at the replica.
    """
    traffic = QueueTraffic("fair", 8)
    traffic.fill(depth)
    queue = traffic.queue
    rng = Random(2)
    running: list[tuple[Ticket, Lease]] = list(traffic.leases.items())

    async def block(marks: Marks, count: int) -> float:
        for _ in range(count):
            traffic.now += 0.001
            now = traffic.now
            ticket = traffic.ticket()
            ticket.arrival = now
            spot = rng.randrange(len(running))
            over, lease = running[spot]
            running[spot] = running[-1]
            running.pop()
            marks.begin()
            places = queue.offer(ticket, now)
            if places:  # A replica has room, because no waiting request was worth its cost there.
                queue.sent(ticket, places[0], now)
                running.append((ticket, Lease(places[0], ticket.view.prompt_tokens)))  # type: ignore[arg-type]
            lease.release()
            granted = queue.freed(over.place, now)
            queue.runs.settle(over, over.view.prompt_tokens, over.view.output_tokens, now)
            marks.end()
            running.extend([(each, Lease(each.place, each.view.prompt_tokens)) for each in granted])
        return marks.take() / count

    return block


WORKS: dict[str, Callable[[Path], Awaitable[Work]]] = {
    work.__name__: work
    for work in (
        *(json_request, token, decision_64, decision_1024, queue_10, queue_deeper),
        *(hedging_never, hedging_armed),
    )
}


def with_sums(costs: dict[str, float]) -> dict[str, float]:
    """Return the costs by part. `queue_100k` is the sum of two works."""
    found = dict(costs)
    found["queue_100k"] = found["queue_10"] + found.pop("queue_deeper")
    return found
