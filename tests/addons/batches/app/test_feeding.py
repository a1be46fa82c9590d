"""How lines of a batch are sent to the fleet: enough to keep it busy, never too many, after urgent
requests.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from openai import AsyncOpenAI

from router.addons.batches.run.sending import AHEAD
from router.config.model import BatchClass, Classes, Queue
from router.core.urgency import BATCH, NORMAL
from router.dispatch.queueing.queue_driver import QueueDriver
from tests.addons.batches.app.helpers import held, open_door, sdk, submit, until
from tests.addons.batches.lines import jsonl, line, numbered
from tests.harness.behaviours import json_ok
from tests.harness.emulated import Emulated, emulated
from tests.harness.messages import completion, json_response
from tests.harness.replica import ReplicaConnection, eventually
from tests.harness.running import Router, long_scenario, scenario

SLOTS = 8  # slots of each engine
LINES = 400
ENOUGH = 0.95  # required share of the throughput of engines that are always busy


def work() -> list[dict[str, Any]]:
    """Batch lines of 24 to 72 output tokens."""
    return [line(f"r{n}", max_tokens=24 + n % 49, ignore_eos=True) for n in range(LINES)]


@asynccontextmanager
async def two_engines() -> AsyncIterator[list[Emulated]]:
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(emulated("vllm", speed=1.0, max_num_seqs=SLOTS))
            for _ in range(2)
        ]


class Meter:
    """Tokens per second of the engines' own clocks, between two moments."""

    def __init__(self, engines: list[Emulated]) -> None:
        self._cores = [each.engine.core for each in engines]
        self._from = [(core.generation_tokens, core.clock) for core in self._cores]

    def rate(self) -> float:
        return sum(
            (core.generation_tokens - tokens) / (core.clock - clock)
            for core, (tokens, clock) in zip(self._cores, self._from, strict=True)
        )

    @property
    def done(self) -> int:
        return sum(core.finished for core in self._cores)


async def rate_of(engines: list[Emulated]) -> float:
    """The token rate in the middle of the work, without its beginning and its end."""
    begun = Meter(engines).done
    async with asyncio.timeout(60):
        while Meter(engines).done < begun + LINES // 5:
            await asyncio.sleep(0.005)
        meter = Meter(engines)
        while meter.done < begun + LINES * 4 // 5:
            await asyncio.sleep(0.005)
        return meter.rate()


async def directly(engines: list[Emulated]) -> float:
    """The token rate if each engine always has twice as many requests as slots."""
    left = work()

    async def ask(client: httpx.AsyncClient, url: str) -> None:
        while left:
            body = left.pop(0)["body"]
            answer = await client.post(f"{url}/v1/chat/completions", json=body, timeout=60)
            assert answer.status_code == 200, answer.text

    async with httpx.AsyncClient(limits=httpx.Limits(max_connections=None)) as client:
        rate = asyncio.create_task(rate_of(engines))
        await asyncio.gather(*(ask(client, each.url) for each in engines for _ in range(2 * SLOTS)))
        return await rate


def queue_of(router: Router) -> QueueDriver:
    found = router.app.parts.queue
    assert found is not None
    return found


@long_scenario
async def test_alone_it_fills_the_fleet_and_floods_nothing(tmp_path: Path) -> None:
    async with two_engines() as engines:
        most = await directly(engines)
        async with (
            open_door(
                tmp_path,
                *(each.url for each in engines),
                queue=Queue(enabled=True),
                polling={"interval_s": 0.25},
            ) as router,
            sdk(router) as client,
        ):
            deepest = 0

            async def watch() -> None:
                nonlocal deepest
                while True:
                    deepest = max(deepest, queue_of(router).pools.waiting)
                    await asyncio.sleep(0.01)

            watcher = asyncio.create_task(watch())
            reached = 0.0
            for _ in range(3):  # other programs on the machine may slow down a batch
                rate = asyncio.create_task(rate_of(engines))
                batch = await submit(client, jsonl(*work()))
                reached = await rate
                batch = await until(client, batch.id)
                assert batch.request_counts is not None
                assert batch.request_counts.completed == LINES
                if reached >= ENOUGH * most:
                    break
            watcher.cancel()
            assert reached >= ENOUGH * most, f"{reached / most:.3f} of what engines can do"
            # A next line is always queued, but never more lines than the queue can use.
            assert 0 < deepest <= AHEAD


@long_scenario
async def test_whoever_is_in_a_hurry_goes_first(tmp_path: Path) -> None:
    async with (
        two_engines() as engines,
        open_door(
            tmp_path,
            *(each.url for each in engines),
            queue=Queue(enabled=True),
            polling={"interval_s": 0.25},
        ) as router,
        sdk(router) as client,
        sdk(router, "somebody") as person,
    ):
        batch = await submit(client, jsonl(*work()))
        queue = queue_of(router).pools.of("m")
        await eventually(lambda: queue.depth[BATCH] >= AHEAD // 2, "lines wait")
        asked = 20
        for _ in range(asked):
            await ask(person)
        assert (await client.batches.retrieve(batch.id)).status == "in_progress"
        counts = queue.counts
        assert counts.passed[NORMAL] + counts.granted[NORMAL] == asked
        # By class weight, one grant in five goes to a batch line while urgent requests always wait.
        assert counts.inverted[BATCH] <= asked // 4, "lines went first"
        await client.batches.cancel(batch.id)
        await until(client, batch.id)


async def ask(client: AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": "now"}], max_tokens=4
    )
    assert answer.choices


@scenario
async def test_without_a_queue_the_answers_tell(tmp_path: Path) -> None:
    """A replica with a few slots that refuses further requests: its limit is found without a flood
    of requests.
    """
    slots, inside, refused = 6, 0, 0

    async def behave(connection: ReplicaConnection) -> None:
        nonlocal inside, refused
        while await connection.recv_request():
            if inside >= slots:
                refused += 1
                await connection.send(json_response({}, 429, "Retry-After: 0"))
                continue
            inside += 1
            await asyncio.sleep(0.005)
            inside -= 1
            await connection.send(completion())

    async with (
        open_door(tmp_path, behave, queue=Queue(enabled=False), batches={"attempts": 1}) as router,
        sdk(router) as client,
    ):
        batch = await until(client, (await submit(client, numbered(200))).id)
        assert batch.request_counts is not None
        assert batch.request_counts.completed == 200
        assert refused < 100


@scenario
async def test_what_other_clients_queue_as_batch_does_not_keep_lines_out(tmp_path: Path) -> None:
    go = asyncio.Event()

    async with (
        open_door(
            tmp_path,
            held(go),
            queue=Queue(enabled=True),
            replica={"max_inflight": 1},
        ) as router,
        sdk(router) as client,
        sdk(router, "somebody") as other,
    ):
        queue = queue_of(router).pools.of("m")
        flood = [
            asyncio.create_task(
                other.chat.completions.create(
                    model="m",
                    messages=[{"role": "user", "content": "x"}],
                    extra_headers={"x-priority": "batch"},
                )
            )
            for _ in range(AHEAD + 10)
        ]
        await eventually(lambda: queue.depth[BATCH] > AHEAD, "others' requests wait")
        before = queue.depth[BATCH]
        batch = await submit(client, numbered(50))
        await eventually(lambda: queue.depth[BATCH] > before, "lines wait with them")
        go.set()
        await until(client, batch.id)
        await asyncio.gather(*flood)


@scenario
async def test_a_full_queue_is_waited_for(tmp_path: Path) -> None:
    async with (
        open_door(
            tmp_path,
            json_ok,
            classes=Classes(batch=BatchClass(depth=3)),
            replica={"max_inflight": 1},
            batches={"attempts": 1},
        ) as router,
        sdk(router) as client,
    ):
        batch = await until(client, (await submit(client, numbered(20))).id)
        assert batch.request_counts is not None
        assert batch.request_counts.completed == 20
        assert queue_of(router).pools.of("m").counts.dropped["queue_full"][BATCH] > 0
