"""The number an engine is told, to the unit, by the order in which it then serves.

One slot of the engine is free at a time. Requests that the engine gets directly, with a number one
lower and one higher than what the router is to tell, stand around each of the router's.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx

from router.core.urgency import NORMAL, NUMBERS, stepped
from tests.engine import bodies
from tests.engine.fleet import SLOTS, Engine, Hedgerow, configured
from tests.engine.load import CHAT

Engines = tuple[Engine, Engine]

CLASS = 1000  # between the numbers of two classes; normal is 0, vLLM's own default
LONG, SHORT = 600, 6  # tokens: of those that hold the slots, of those that wait for one
FIRST = -100 * CLASS  # whoever holds a slot is not to be put back
WITHIN_S = 60.0

# What a client sends beside a plain request -> the number.
ROUTED: dict[str, tuple[dict[str, str], dict[str, Any], float]] = {
    **{
        f"header {name}": ({"x-priority": name}, {}, (rank - NORMAL) * CLASS)
        for name, rank in NUMBERS.items()
    },
    "nothing": ({}, {}, 0),
    "the engine's own header": ({"x-vllm-priority": str(FIRST)}, {}, 0),
    "a number": ({}, {"priority": 1.4}, -0.6 * CLASS),
    "a user's first": ({"x-priority": "low", "x-user-id": "one"}, {}, CLASS),
    "the same user's second": (
        {"x-priority": "low", "x-user-id": "one"},
        {},
        (stepped(3.0, 1) - NORMAL) * CLASS,
    ),
}


def test_each_class_has_its_number(engines: Engines, tmp_path: Path) -> None:
    engine = engines[0]
    config = {
        "replicas": [{"url": engine.url, "id": engine.name}],
        "keys": {"names_users": True},
        "queue": {"enabled": False},  # the order looked for is the engine's own
    }
    with configured(config, tmp_path) as router:
        order = asyncio.run(served(engine, router))
    for what, (_, _, number) in ROUTED.items():
        before, after = order.index(f"{number - 1:.0f}"), order.index(f"{number + 1:.0f}")
        assert before < order.index(what) < after, f"{what}: {number} in {order}"


async def served(engine: Engine, router: Hedgerow) -> list[str]:
    """What all of them are called, in the order of their ends."""
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
            numbers = {number for _, _, number in ROUTED.values()}
            beside = {n for number in numbers for n in (number - 1, number + 1)}
            for number in beside:
                body = bodies.chat(f"{number}", SHORT, priority=round(number))
                group.create_task(ask(engine.url, f"{number:.0f}", {}, body))
            for count, (name, (headers, more, _)) in enumerate(ROUTED.items(), 1):
                body = bodies.chat(name, SHORT, **more)
                group.create_task(ask(router.url, name, headers, body))
                # One after the other: who of a user's is second must be known.
                await until(engine, running=SLOTS, waiting=len(beside) + count)
            holding[0].cancel()
        for task in holding:
            task.cancel()
        await asyncio.gather(*holding, return_exceptions=True)
    return order


async def until(engine: Engine, *, running: int, waiting: int) -> None:
    async with asyncio.timeout(WITHIN_S):
        while True:
            state = await asyncio.to_thread(engine.state)
            if (state.running, state.waiting) == (running, waiting):
                return
            await asyncio.sleep(0.05)
