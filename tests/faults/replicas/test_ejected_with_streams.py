"""A replica that is ejected while it serves streams: its trial, and its return.

The running streams do not count as a trial, and do not prevent it.
"""

import asyncio
from time import monotonic

from tests.harness import kit

OFF = {"backoff_s": 0.0}
HEALTH = {"eject_after": 1, "eject_base_s": 3600.0, "slow_start_s": 0.0}
BROKEN = kit.json_response(
    {"error": {"message": "broken", "type": "server_error", "code": 500}}, 500
)


class Engine:
    """Streams deliver one token and continue after `more`; other requests wait for `go`, or
    fail.
    """

    def __init__(self) -> None:
        self.asked = 0
        self.fails = False
        self.is_silent = False
        self.more = asyncio.Event()
        self.go = asyncio.Event()
        self.ends: list[asyncio.Event] = []

    async def __call__(self, connection: kit.ReplicaConnection) -> None:
        while request := await connection.recv_request():
            self.asked += 1
            if b'"stream": true' in bytes(request.body):
                await self.stream(connection)
            elif self.fails:
                await connection.send(BROKEN)
            else:
                await self.go.wait()
                await connection.send(kit.completion())

    async def stream(self, connection: kit.ReplicaConnection) -> None:
        end = asyncio.Event()
        self.ends.append(end)
        await connection.send(kit.SSE_HEAD)
        if self.is_silent:
            await end.wait()
        await connection.send(kit.chunk(kit.token("t")))
        while not end.is_set():
            await self.more.wait()
            await connection.send(kit.chunk(kit.token("t")))
            await asyncio.sleep(0.02)
        await connection.send(kit.chunk(kit.DONE), kit.LAST_CHUNK)


def breaker(router: kit.Router) -> str:
    return str(router.app.replicas()[0]["breaker"])


async def open_streams(router: kit.Router, engine: Engine, count: int) -> list[kit.RawClient]:
    """Clients with this number of streams running at the engine."""
    found = []
    while engine.asked < count:
        client = await router.send(kit.chat(stream=True))
        await client.recv_until(b"data:")
        found.append(client)
    return found


@kit.scenario
async def test_streams_that_run_there_do_not_stand_in_the_way_of_the_trial() -> None:
    engine = Engine()
    async with kit.running(
        engine, whole_or_stream, health=HEALTH, retry=OFF, policy="round_robin"
    ) as router:
        streams = await open_streams(router, engine, 3)
        engine.fails = True
        while breaker(router) != "open":
            await router.ask(kit.chat())
        engine.fails = False
        reopen(router)
        before = engine.asked
        asks = [asyncio.create_task(router.ask(kit.chat())) for _ in range(8)]
        await kit.eventually(lambda: sum(ask.done() for ask in asks) == 7, "the others are served")
        assert engine.asked == before + 1
        # The end of one of the running streams does not allow another trial either.
        engine.more.set()
        engine.ends[0].set()
        replica = router.app.parts.fleet.replicas["r0"]
        await kit.eventually(lambda: replica.inflight == 3, "a stream has ended")
        for _ in range(6):
            assert (await router.ask(kit.chat())).status == 200
        assert engine.asked == before + 1
        assert breaker(router) == "half_open"
        engine.go.set()
        assert [(await ask).status for ask in asks] == [200] * 8
        assert breaker(router) == "closed"
        for end in engine.ends:
            end.set()
        for client in streams:
            client.close()


@kit.scenario
async def test_one_that_goes_on_with_its_streams_is_tried_at_once() -> None:
    engine = Engine()
    health = {**HEALTH, "suspect_min_s": 0.2, "suspect_factor": 1.0}
    async with kit.running(
        engine, whole_or_stream, health=health, retry=OFF, policy="round_robin"
    ) as router:
        streams = await open_streams(router, engine, 1)
        engine.is_silent = True  # the stream of the engine stalls as well
        waiting = [await router.client() for _ in range(6)]
        for client in waiting:
            await client.send(kit.chat(stream=True))
        await kit.eventually(lambda: breaker(router) == "open", "ejected")
        engine.more.set()
        await kit.eventually(lambda: breaker(router) == "half_open", "tried an hour early")
        assert router.app.parts.fleet.replicas["r0"].health.ejections == 0
        engine.is_silent = False
        before = engine.asked
        while engine.asked == before:
            client = await router.send(kit.chat(stream=True))
            await client.recv_until(b"data:")
            client.rst()
        await kit.eventually(lambda: breaker(router) == "closed", "trusted")
        for end in engine.ends:
            end.set()
        for client in (*streams, *waiting):
            client.rst()


async def whole_or_stream(connection: kit.ReplicaConnection) -> None:
    """The other replica: answers with a stream or as a whole."""
    while request := await connection.recv_request():
        if b'"stream": true' in bytes(request.body):
            await connection.send(
                kit.SSE_HEAD, kit.chunk(kit.token("t")), kit.chunk(kit.DONE), kit.LAST_CHUNK
            )
        else:
            await connection.send(kit.completion())


def reopen(router: kit.Router) -> None:
    """End the ejection now, so that the test need not wait for it."""
    fleet = router.app.parts.fleet
    now = fleet.replicas["r0"].health.ejected_until = monotonic()
    fleet.on_deadline(now)
