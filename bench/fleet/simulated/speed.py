"""Measures the simulator's speed, and whether its memory grows with the number of requests.

A fleet of 1,000 replicas with shared prefixes, at 70 % of the rate that saturates it without cache
hits. The queue and hedging are enabled. A tenth of the requests may be hedged: a second copy may be
sent. A fiftieth of the attempts is slow, so that copies are sent. During a twentieth of the time, a
surge fills the queue. There are two runs, each in its own process; the first has a tenth of the
requests of the second. If memory grew with the number of requests, the longer run would need far
more.
"""

from __future__ import annotations

import resource
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from time import process_time

from bench.findings.found import Found
from bench.fleet.simulated.matrix import SLO
from bench.fleet.simulated.task import Task
from bench.fleet.simulated.worlds import CONFIG, FLEET, World, routed, shared
from bench.overhead.goals import Verdict
from router.config.model import Queue
from router.config.varied import varied
from router.core.text.table import Column, build
from router.lab.simulator.scenario import Straggling, resized
from router.lab.simulator.traffic import Arrival, Traffic
from router.lab.simulator.workloads import Lengths, Mix, PowerUser

REPLICAS = 1000
REQUESTS = 100_000
GROUPS_EACH = 19  # shared prefixes per replica, as in llm-d's benchmark
# Limits: CPU seconds per million requests, peak MB, peak MB of the long run / short run.
GOAL_S, GOAL_MB, GOAL_GROWTH = 150.0, 1024.0, 1.25
LATE = Straggling(share=0.02)  # two percent of the attempts, drawn at random, are slow
SURGE_FROM, SURGE_FOR = 0.5, 0.05  # start and length of the surge, as shares of the simulated time
SURGE = 3.0  # requests/s that the surge adds, as a multiple of the usual rate


@dataclass(frozen=True, slots=True)
class Pace:
    """The speed and memory of one run."""

    policy: str
    requests: int
    events: int
    waited: int  # number of requests that waited in the router's queue
    copies: int
    simulated_s: float
    cpu_s: float
    peak_mb: float  # peak memory of the whole process

    @property
    def per_s(self) -> float:
        return self.requests / self.cpu_s


def run(policy: str, *, seed: int = 1, requests: int = REQUESTS, replicas: int = REPLICAS) -> Found:
    paces = [measure(policy, count, replicas, seed) for count in (requests // 10, requests)]
    last = paces[-1]
    return Found(
        "Speed of the simulator",
        f"{replicas:,} replicas, {GROUPS_EACH * replicas:,} shared prefixes, 70 % load, one core; "
        "peak memory is that of the process, the interpreter and all modules included.",
        build(paces, _columns()),
        verdicts=[
            Verdict(
                "CPU seconds for a million requests, at this pace",
                f"≤ {GOAL_S:g}",
                GOAL_S,
                1e6 / last.per_s,
            ),
            Verdict("peak memory, MB", f"≤ {GOAL_MB:g}", GOAL_MB, last.peak_mb),
            Verdict(
                "memory for ten times the requests",
                f"≤ {GOAL_GROWTH:g} ×",
                GOAL_GROWTH,
                last.peak_mb / paces[0].peak_mb,
            ),
        ],
    )


class Classes:
    """Adds classes to requests: of ten requests, one is high, three are batch, six are normal."""

    def __init__(self, source: Traffic) -> None:
        self.name = source.name
        self.block_tokens = source.block_tokens
        self._source = source

    def __iter__(self) -> Iterator[Arrival]:
        for number, arrival in enumerate(self._source):
            arrival.priority = _CLASSES[number % len(_CLASSES)]
            yield arrival

    def follow(self, ended: Arrival, now: float) -> Iterable[Arrival]:
        return ()  # the traffic of this bench has no conversations


_CLASSES = ("high", *("batch", "normal", "normal") * 3)


def surging(rate: float, seconds: float, seed: int, *, groups: int) -> Classes:
    """Return traffic with shared prefixes, and a surge of one tenant's prompts without common
    prefixes.
    """
    usual = shared(rate, seconds, seed, groups=groups)
    surge = PowerUser(
        rate=SURGE * rate,
        begins_s=SURGE_FROM * seconds,
        duration_s=SURGE_FOR * seconds,
        document_tokens=0,
        question=Lengths(4000.0, 0.5, 12_000),
        output=Lengths(200.0),
        tenant="crowd",
        seed=seed,
    )
    return Classes(Mix(usual, surge))


def task(policy: str, requests: int, replicas: int, seed: int) -> Task:
    groups = GROUPS_EACH * replicas
    world = World(
        name="",
        unit="",
        words="",
        make=partial(shared, groups=groups),
        load=0.7,
        requests=round(requests / (1.0 + SURGE * SURGE_FOR)),
        fleet=replace(
            resized(FLEET, replicas), config=varied(CONFIG, queue=Queue()), straggling=LATE
        ),
    )
    seconds = world.seconds
    return Task(
        policy=policy,
        scenario=routed(world.scenario(seed), policy),
        traffic=partial(surging, world.rate, seconds, seed, groups=groups),
        slo=SLO,
    )


def measure(policy: str, requests: int, replicas: int, seed: int) -> Pace:
    """Simulate in a separate process, whose peak memory is then that of the run."""
    context = get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    job = (theirs, task(policy, requests, replicas, seed))
    process = context.Process(target=_work, args=job, daemon=True)
    process.start()
    theirs.close()
    try:
        pace: Pace = ours.recv()
    finally:
        process.terminate()
        process.join()
        ours.close()
    return pace


def _work(pipe: Connection, task: Task) -> None:
    began = process_time()  # CPU time, which other processes hardly change
    result = task.run()
    cpu_s = process_time() - began
    peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    totals = result.totals
    pipe.send(
        Pace(
            result.policy,
            totals.requests,
            totals.events,
            sum(totals.queues["queued"]),
            totals.hedges.fired,
            totals.seconds,
            cpu_s,
            peak_kb / 1024,
        )
    )


def _columns() -> list[Column[Pace]]:
    return [
        Column("policy", "policy", text=lambda pace: pace.policy),
        Column("requests", "requests", value=lambda pace: pace.requests),
        Column("events", "events", value=lambda pace: pace.events),
        Column("waited", "waited", value=lambda pace: pace.waited),
        Column("copies", "copies", value=lambda pace: pace.copies),
        Column("simulated", "simulated", "s", lambda pace: pace.simulated_s),
        Column("cpu", "CPU", "s", lambda pace: pace.cpu_s),
        Column("per_s", "requests/s", value=lambda pace: pace.per_s),
        Column("events_s", "events/s", value=lambda pace: pace.events / pace.cpu_s),
        Column("peak", "peak", "MB", lambda pace: pace.peak_mb),
    ]
