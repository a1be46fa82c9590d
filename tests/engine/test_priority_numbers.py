"""The priority number sent to an engine, checked to seconds by the engine's order of service.

All requests wait while the engine's core is stopped and its slots are taken; then one slot becomes
free at a time. For each of the router's requests, the engine also gets direct requests with a
slightly lower and a slightly higher number than expected. vLLM's number is a virtual deadline in
tenths of a second.
"""

import asyncio
from pathlib import Path
from time import time
from typing import Any

import httpx

from router.core.urgency import NORMAL, stepped
from router.fleet.engines.common.priority import CRITICAL_AHEAD_S, EPOCH
from tests.engine.loads import bodies
from tests.engine.loads.load import CHAT
from tests.engine.machine.cores import stopped
from tests.engine.machine.fleet import SLOTS, Engine, Engines, Hedgerow, configured

CLASS_S = 300.0  # seconds between the deadlines of two classes
PER_S = 10  # units of a priority number per second
# Seconds by which direct requests are earlier or later; the router's requests arrive within
# LATER_S.
EARLIER_S, LATER_S = 1.0, 5.0
LONG, SHORT = 900, 3  # output tokens of requests that hold the slots, and of waiting requests
FIRST = -(2**31)  # a request that holds a slot must not be preempted
WITHIN_S = 60.0

# Fields sent with a plain request -> seconds by which its deadline is later than that of class
# normal.
ROUTED: dict[str, tuple[dict[str, str], dict[str, Any], float]] = {
    "header critical": ({"x-priority": "critical"}, {}, -2 * CLASS_S - CRITICAL_AHEAD_S),
    "header high": ({"x-priority": "high"}, {}, -CLASS_S),
    "header batch": ({"x-priority": "batch"}, {}, 2 * CLASS_S),
    "nothing": ({}, {}, 0.0),
    "vLLM's neutral number": ({}, {"priority": 0}, 0.0),
    "vLLM's number for later": ({}, {"priority": 10}, CLASS_S),
    "the engine's own header": ({"x-vllm-priority": str(FIRST)}, {}, 0.0),
    "a user's first": ({"x-priority": "low", "x-user-id": "one"}, {}, CLASS_S),
    "the same user's second": (
        {"x-priority": "low", "x-user-id": "one"},
        {},
        (stepped(3.0, 1) - NORMAL) * CLASS_S,
    ),
}


def test_each_class_has_its_number(engines: Engines, tmp_path: Path) -> None:
    engine = engines[0]
    config = {
        "replicas": [{"url": engine.url, "id": engine.name}],
        "keys": {"names_users": True},
        "priority": {"ceiling": "critical"},
        "queue": {"enabled": False},  # only the engine's own order is tested
    }
    with configured(config, tmp_path) as router:
        order = asyncio.run(served(engine, router))
    for what, (_, _, later_s) in ROUTED.items():
        before, after = order.index(f"{what} earlier"), order.index(f"{what} later")
        assert before < order.index(what) < after, f"{what}: {later_s} in {order}"


async def served(engine: Engine, router: Hedgerow) -> list[str]:
    """Names of all requests, in the order of their ends."""
    order: list[str] = []
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=WITHIN_S, limits=limits) as http:

        async def ask(url: str, name: str, headers: dict[str, str], body: dict[str, Any]) -> None:
            answer = await http.post(f"{url}{CHAT}", json=body, headers=headers)
            assert answer.status_code == 200, answer.text
            order.append(name)

        holding = [
            asyncio.create_task(
                ask(engine.url, "", {}, bodies.chat(f"holds {n}", LONG, priority=FIRST))
            )
            for n in range(SLOTS)
        ]
        await until(engine, running=SLOTS, waiting=0)
        async with asyncio.TaskGroup() as group:
            with stopped(engine):
                for count, (name, (headers, more, later_s)) in enumerate(ROUTED.items(), 1):
                    now = time() - EPOCH
                    for word, seconds in (("earlier", -EARLIER_S), ("later", LATER_S)):
                        number = round(PER_S * (now + later_s + seconds))
                        beside = bodies.chat(f"{name} {word}", SHORT, priority=number)
                        group.create_task(ask(engine.url, f"{name} {word}", {}, beside))
                    body = bodies.chat(name, SHORT, **more)
                    # Each request has its own user: further requests of one user get a later
                    # number.
                    whose = {"x-user-id": name.replace(" ", "-"), **headers}
                    group.create_task(ask(router.url, name, whose, body))
                    # One after the other, so that the order of one user's requests is known.
                    await until_sent(http, router, count)
            await until(engine, running=SLOTS, waiting=3 * len(ROUTED))
            holding[0].cancel()
        assert not any(task.done() for task in holding[1:]), "more slots were free than one"
        for task in holding:
            task.cancel()
        await asyncio.gather(*holding, return_exceptions=True)
    return order


async def until_sent(http: httpx.AsyncClient, router: Hedgerow, count: int) -> None:
    """Return when the router has sent `count` requests to the engine."""
    async with asyncio.timeout(WITHIN_S):
        while (await http.get(f"{router.admin}/replicas")).json()[0]["inflight"] < count:
            await asyncio.sleep(0.05)


async def until(engine: Engine, *, running: int, waiting: int) -> None:
    async with asyncio.timeout(WITHIN_S):
        while True:
            state = await asyncio.to_thread(engine.state)
            if (state.running, state.waiting) == (running, waiting):
                return
            await asyncio.sleep(0.05)
