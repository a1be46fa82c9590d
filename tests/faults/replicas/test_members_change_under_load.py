"""Many changes of the fleet by the admin API, under load: no request fails.

Replicas are added, removed, cordoned, drained and returned to service at random, while at least one
other replica is ready.
"""

import asyncio
from contextlib import AsyncExitStack
from random import Random

from router.config.model import Replica
from tests.examples import ALL
from tests.harness.emulated import Emulated, emulated
from tests.harness.messages import chat
from tests.harness.replica import eventually
from tests.harness.running import Router, long_scenario, running

CHANGES = 200 if ALL else 60
CLIENTS = 8
ENGINES = 4


class Load:
    """Clients that send one request after the other until `over`. Failures are recorded."""

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self.served = 0
        self.failed: list[str] = []

    async def run(self, router: Router, stream: bool) -> None:
        client = await router.client()
        while not self.over.is_set():
            await client.send(chat(stream=stream, max_tokens=20))
            answer = await client.recv_response()
            if (answer.status, answer.complete) != (200, True):
                self.failed.append(repr(answer))
            self.served += 1


class Operator:
    """Changes the fleet at random. Every new replica has an ID of its own."""

    def __init__(self, router: Router, engines: list[Emulated]) -> None:
        self._router = router
        self._urls = [engine.url for engine in engines]
        self._rng = Random(7)
        self._made = 0
        self.done: dict[str, int] = {}

    async def change(self) -> None:
        fleet = self._router.app.parts.fleet
        used = {replica.config.url for replica in fleet.replicas.values()}
        free = [url for url in self._urls if url not in used]
        ready = list(fleet.serving.ready_ids)
        idle = [id for id in fleet.replicas if id not in fleet.serving.ready_ids]
        choices = ["add"] * bool(free) + ["uncordon", "remove idle"] * bool(idle)
        if len(ready) > 1:
            choices += ["cordon", "drain", "remove"]
        if not choices:
            return  # a new replica has not been probed yet
        what = self._rng.choice(choices)
        if what == "add":
            self._made += 1
            body = {"url": self._rng.choice(free), "id": f"n{self._made}"}
            answer = await self._router.admin("/replicas", "POST", body=body)
        elif what.startswith("remove"):
            name = self._rng.choice(idle if what == "remove idle" else ready)
            answer = await self._router.admin(f"/replicas/{name}", "DELETE")
        else:
            name = self._rng.choice(idle if what == "uncordon" else ready)
            answer = await self._router.admin(f"/replicas/{name}/{what}", "POST")
        assert answer.status < 300, answer
        self.done[what] = self.done.get(what, 0) + 1


@long_scenario
async def test_no_request_fails() -> None:
    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(emulated("vllm")) for _ in range(ENGINES)]
        replicas = tuple(Replica(url=e.url, id=f"r{n}") for n, e in enumerate(engines))
        async with running(replicas=replicas, health={"slow_start_s": 0.0}) as router:
            load, operator = Load(), Operator(router, engines)
            clients = [asyncio.create_task(load.run(router, n % 2 == 1)) for n in range(CLIENTS)]
            while sum(operator.done.values()) < CHANGES:
                before = load.served
                await operator.change()
                await eventually(
                    lambda before=before: load.served > before,  # type: ignore[misc]
                    "a request served after the change",
                )
            load.over.set()
            await asyncio.gather(*clients)
            assert load.failed == []
            assert len(operator.done) == 6, operator.done  # each kind of change
            assert load.served >= CHANGES
            app = router.app
            await eventually(lambda: not app.parts.fleet.leaving, "the end of the removed ones")
            labels = {replica for replica, _, _ in app.metrics.attempts}
            assert labels <= {*app.parts.fleet.replicas, "other"}
            assert app.census()["probes"] == len(app.parts.fleet.replicas)
