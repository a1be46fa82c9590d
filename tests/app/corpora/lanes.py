"""Runs many cases on a few apps: each lane runs one case at a time, so every effect has one cause.

Everything that reaches a lane's replica between the start and the end of a case belongs to it.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from typing import Any

from tests.app.corpora.corpus import Case
from tests.harness.replica import HostileReplica
from tests.harness.running import Router, running

LANES = 4
Judge = Callable[[Router, Case], Awaitable[list[str]]]


async def judge_all(
    cases: Iterable[Case],
    judge: Judge,
    make_replica: Callable[[], HostileReplica],
    **config: Any,
) -> list[str]:
    """Run every case through `judge` and return the problems as `id: problem` lines."""
    waiting = deque(cases)
    assert waiting, "no cases"
    found: list[str] = []

    async def lane() -> None:
        async with AsyncExitStack() as stack:
            router = await stack.enter_async_context(running(make_replica(), **config))
            while waiting:
                case = waiting.popleft()
                try:
                    problems = await judge(router, case)
                except AssertionError as err:
                    problems = [str(err)]
                for client in router.clients:
                    client.close()
                router.clients.clear()
                try:
                    await router.quiet()
                except AssertionError as err:
                    problems.append(str(err))
                found.extend(f"{case.id}: {problem}" for problem in problems)
            await _accounted(router, found)

    await asyncio.gather(*(lane() for _ in range(LANES)))
    return found


async def _accounted(router: Router, found: list[str]) -> None:
    """The access log has exactly the requests that the replica received."""
    whole = len(router.replica.requests)
    try:
        async with asyncio.timeout(10):
            while sum(1 for line in router.lines() if line["attempts"]) < whole:
                await asyncio.sleep(0.01)
    except TimeoutError:
        pass
    lines = router.lines()
    dispatched = sum(1 for line in lines if line["attempts"])
    if dispatched < whole:
        found.append(f"access log: {dispatched} requests dispatched, the replica read {whole}")
    found.extend(
        f"access log: {line}"
        for line in lines
        if line["reason"] == "internal" or not line["reason"]
    )


def report(found: list[str]) -> str:
    return f"{len(found)} problems:\n" + "\n".join(sorted(found))
