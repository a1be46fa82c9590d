"""A replica that hangs but answers probes, metrics and heads, and one that is only slow.

A hanging engine sends 200 at once and a comment now and then; its totals do not change. Such an
engine is suspect and then ejected as soon as first tokens are overdue. If an engine's totals grow
during the same silence, the engine computes for other requests; this silence counts neither as
suspicion nor as failure.
"""

import asyncio
import re
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from tests.harness import kit

HEALTH = {"suspect_min_s": 0.6, "suspect_factor": 1.0, "eject_base_s": 3600.0, "slow_start_s": 0.0}
POLLED = {"interval_s": 0.02}


class Engine:
    """An engine that can be made to hang, with vLLM's metrics."""

    def __init__(self) -> None:
        self.hangs = False
        self.counts = True  # whether its total of tokens grows from scrape to scrape
        self.generated = 0
        self.scrapes = 0
        self.asked = 0

    async def __call__(self, connection: kit.ReplicaConnection) -> None:
        while request := await connection.recv_request():
            self.asked += 1
            streams = b'"stream": true' in bytes(request.body)
            if self.hangs:
                await self.hang(connection, streams)
            elif streams:
                await connection.send(
                    kit.SSE_HEAD, kit.chunk(kit.token("t")), kit.chunk(kit.DONE), kit.LAST_CHUNK
                )
            else:
                await connection.send(kit.completion())

    async def tell(self, connection: kit.ReplicaConnection) -> None:
        """Answer a poll."""
        self.scrapes += 1
        self.generated += 10 if self.counts else 0
        text = (
            "vllm:num_requests_running 4.0\nvllm:num_requests_waiting 0.0\n"
            f"vllm:generation_tokens_total {self.generated}.0\n"
        )
        await connection.send(kit.response(body=text.encode(), content_type="text/plain"))

    def replica(self) -> kit.HostileReplica:
        return kit.HostileReplica(self, kit.Control(at={kit.METRICS: self.tell}))

    async def hang(self, connection: kit.ReplicaConnection, streams: bool) -> None:
        """Hang until the router closes the connection."""
        if streams:
            await connection.send(kit.SSE_HEAD)
        while True:
            await asyncio.sleep(0.02)
            if streams:
                await connection.send(kit.chunk(b": keep-alive\n\n"))
            elif connection.sock.fileno() < 0:
                return


# A log reason: the time waited, the usual time, and the request that showed the delay.
WHY = re.compile(
    r"no first token for \d+\.\d s, usual \d+\.\d\d s, "
    r"and no sign of work for \d+\.\d s; request hung-\d"
)


def told(caplog: pytest.LogCaptureFixture, message: str) -> list[str]:
    """The reasons in all log events with this message."""
    events = [vars(record) for record in caplog.records]
    return [e["fields"]["why"] for e in events if e.get("event", ("",))[0] == message]


def breaker(router: kit.Router) -> str:
    return str(router.app.replicas()[0]["breaker"])


async def is_known(router: kit.Router, engine: Engine) -> None:
    """Send requests until the router knows the engine's usual time to first token."""
    while not engine.asked:
        await router.ask(kit.chat(stream=True))


def before(engine: Engine, **settings: Any) -> AbstractAsyncContextManager[kit.Router]:
    """A router in front of this engine and a healthy one."""
    settings = {"health": HEALTH, "polling": POLLED, "policy": "round_robin", **settings}
    return kit.running(engine.replica(), kit.sse_tokens(), **settings)


@pytest.mark.parametrize("polled", [False, True])
@kit.scenario
async def test_one_that_hangs_is_suspect_and_then_ejected(
    polled: bool, caplog: pytest.LogCaptureFixture
) -> None:
    engine = Engine()
    polling = POLLED if polled else {"interval_s": 0.0}
    async with before(engine, polling=polling) as router:
        await is_known(router, engine)
        engine.hangs, engine.counts = True, False
        hung = [await router.client() for _ in range(4)]
        for number, client in enumerate(hung):  # requests alternate: two of them go to the engine
            await client.send(kit.chat(f"x-request-id: hung-{number}", stream=True))
        await kit.eventually(lambda: breaker(router) in ("suspect", "open"), "suspect")
        await kit.eventually(lambda: breaker(router) == "open", "ejected")
        for message in ("replica suspect", "replica ejected"):
            (why,) = told(caplog, message)
            assert WHY.fullmatch(why), why
        for client in hung:
            client.rst()


@kit.scenario
async def test_one_whose_totals_grow_is_not() -> None:
    engine = Engine()
    async with before(engine) as router:
        await is_known(router, engine)
        engine.hangs = True
        hung = [await router.client() for _ in range(8)]
        for client in hung:
            await client.send(kit.chat(stream=True))
        await kit.eventually(lambda: engine.asked >= 4, "half of them are there")
        seen = engine.scrapes
        for _ in range(3):  # three times the time after which a replica would be suspect
            await kit.eventually(lambda n=seen + 35: engine.scrapes > n, "polls")  # type: ignore[misc]
            seen += 35
            assert breaker(router) == "closed"
        health = router.app.parts.fleet.replicas["r0"].health
        assert (health.suspected_at, health.ejections) == (None, 0)
        for client in hung:
            client.rst()
