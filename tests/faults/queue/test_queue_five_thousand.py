"""Thousands of waiting connections: all are answered, in order, with little memory each.

Connections that disconnect are removed at once.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from router.core.urgency import CLASSES, NORMAL
from tests.examples import ALL
from tests.harness.crowd import Crowd, needs_files, reaches
from tests.harness.emulated import emulated
from tests.harness.messages import chat, request
from tests.harness.process import RouterProcess, serving, write_config
from tests.harness.queueing import Turnstile, counts, queue, waiting
from tests.harness.replica import HostileReplica, eventually
from tests.harness.running import long_scenario, running

MANY = 5000 if ALL else 1000
GROUP = MANY // 10
SLOTS = 8  # slots of the engine
BYTES_EACH = 16 * 1024  # maximum bytes for a connection, its request and its place in the queue

# No request becomes more urgent by waiting, however slow the machine is.
QUEUE = (
    "priority: {ceiling: critical}\n"
    "queue:\n  enabled: true\n  policy: fifo\n  order: strict\n"
    "  batch_becomes_normal_after: 0s\nclasses:\n"
    + "".join(f"  {name}: {{wait: 7200, starvation: 7200}}\n" for name in CLASSES)
)


def resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


async def waiting_in(router: RouterProcess) -> int:
    client = await router.client(admin=True)
    await client.send(request("/queue", "Connection: close"))
    told = (await client.recv_response()).json()
    client.close()
    return int(told["waiting"])


@long_scenario
async def test_they_wait_are_answered_and_keep_their_order(tmp_path: Path) -> None:
    """Ten groups of requests of five classes are served by class, and within a class by group."""
    needs_files(MANY)
    turnstile = Turnstile()
    async with HostileReplica(turnstile) as hostile:
        config = tmp_path / "config.yaml"
        write_config(config, hostile.url, each="max_inflight: 1", extra=QUEUE)
        names = ("batch", "normal", "critical", "low", "high")
        groups = [range(start, start + GROUP) for start in range(1, MANY + 1, GROUP)]
        async with serving(config) as router:
            crowd = Crowd(router.port)
            await crowd.connect(1)
            crowd.send([0], lambda _: chat(tag="0"))
            await hostile.wait_for_requests(1)
            before = resident_bytes(router.child.pid)
            for place, group in enumerate(groups):
                priority = names[place % len(names)]
                await crowd.connect(GROUP)
                crowd.send(group, lambda n, p=priority: chat(tag=str(n), priority=p))  # type: ignore[misc]
                while await waiting_in(router) < (place + 1) * GROUP:
                    await asyncio.sleep(0.02)
            each = (resident_bytes(router.child.pid) - before) / MANY
            print(f"{each / 1024:.1f} KiB for each of {MANY} that wait")
            assert each < BYTES_EACH
            assert not crowd.answered
            turnstile.open(MANY + 1)
            await crowd.all_answered(MANY + 1)
            assert set(crowd.statuses.values()) == {200}
            assert sorted(crowd.answered) == list(range(MANY + 1))
            assert len(crowd.open) == MANY + 1, "each may ask again"
            await crowd.close()
    assert len(turnstile.tags) == MANY + 1
    order = [(int(tag) - 1) // GROUP for tag in turnstile.tags[1:]]
    wanted = sorted(range(len(groups)), key=lambda g: (CLASSES.index(names[g % 5]), g))
    assert order == [group for group in wanted for _ in range(GROUP)]


@long_scenario
async def test_half_of_them_leave_and_are_gone_in_the_same_turn() -> None:
    """All slots of the engine are taken: a departed request is never sent, the others are
    answered.
    """
    needs_files(2 * MANY)
    async with (
        emulated("vllm", max_num_seqs=SLOTS, speed=10.0) as engine,
        running(engine.url, replica={"max_inflight": SLOTS}, queue=queue()) as router,
    ):

        def asked() -> int:
            """Requests that the engine has received."""
            return engine.engine.stats.asked

        long = Crowd(router.port)
        await long.connect(SLOTS)
        long.send(range(SLOTS), lambda _: chat(max_tokens=60_000, ignore_eos=True))
        await eventually(lambda: asked() == SLOTS, "the engine is full")
        crowd = Crowd(router.port)
        await crowd.connect(MANY)
        crowd.send(range(MANY), lambda _: chat(max_tokens=1))
        await reaches(lambda: waiting(router), MANY, "wait")

        front = router.app.parts.front
        crowd.leave(range(0, MANY, 2))
        turns = 0
        while waiting(router) > MANY // 2:
            await asyncio.sleep(0)
            here = sum(not client.transport.is_closing() for client in front.clients)
            assert waiting(router) == here - SLOTS, "in no turn does one wait who has left"
            turns += 1
        assert turns
        assert counts(router, "left")[NORMAL] == MANY // 2
        assert len(router.app.parts.dispatcher.exchanges) == MANY // 2 + SLOTS
        assert asked() == SLOTS

        long.leave(range(SLOTS))
        await crowd.all_answered(MANY // 2)
        assert sorted(crowd.answered) == list(range(1, MANY, 2))
        assert set(crowd.statuses.values()) == {200}
        assert asked() == SLOTS + MANY // 2, "nobody was sent who had left"
        assert counts(router, "granted")[NORMAL] == MANY // 2
        await crowd.close()
        await long.close()
