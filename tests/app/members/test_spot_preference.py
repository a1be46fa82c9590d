"""Batch requests prefer spot replicas, and critical requests prefer other replicas."""

from router.config.model import Priority
from tests.harness.behaviours import json_ok
from tests.harness.messages import chat
from tests.harness.running import Router, running, scenario

FIRST = "round_robin"
OPEN = Priority(ceiling="critical")


async def served(router: Router, priority: str, count: int = 4) -> list[int]:
    """Return how many of `count` requests of a class each replica served."""
    before = [len(replica.requests) for replica in router.replicas]
    for _ in range(count):
        assert (await router.ask(chat(f"x-priority: {priority}"))).status == 200
    return [len(r.requests) - n for r, n in zip(router.replicas, before, strict=True)]


@scenario
async def test_the_classes_and_their_replicas() -> None:
    async with running(json_ok, json_ok, policy=FIRST, priority=OPEN) as router:
        assert await served(router, "batch") == [2, 2]  # no replica is spot
        router.change(replicas=(router.at(0), router.at(1, spot=True)))
        await router.app.reload()
        assert await served(router, "batch") == [0, 4]
        assert await served(router, "critical") == [4, 0]
        assert await served(router, "normal") == [2, 2]
        await router.admin("/replicas/r1/cordon", "POST")
        assert await served(router, "batch") == [4, 0]
        await router.admin("/replicas/r1/uncordon", "POST")
        await router.admin("/replicas/r0/cordon", "POST")
        assert await served(router, "critical") == [0, 4]
        await router.admin("/replicas/r1", "DELETE")
        await router.admin("/replicas/r0/uncordon", "POST")
        assert not router.app.parts.context.chooser.has_spot
