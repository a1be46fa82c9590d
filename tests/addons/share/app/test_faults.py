"""A server that is slow, full, restarted, cut off or lying: no request waits for it or fails.

Two routers run in this process, so a timer sees each stall of their event loop.
"""

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from math import inf
from pathlib import Path
from signal import SIGCONT, SIGSTOP

import pytest

from router.addons.share.sharing import STEADY_S
from router.addons.share.store import StoreAddon
from router.config.model import Sharing
from router.share.messages import VERSION
from tests.addons.share.app.servers import PASSWORD, Liar, Link, Store, answers_a_part
from tests.addons.share.app.watch import Watch
from tests.clients.programs import started
from tests.faults.process.metrics import number
from tests.harness import kit

LOST, FOUND = "other routers are not reached", "other routers are reached again"
CHANNEL = f"hedgerow:{VERSION}:told"
GARBAGE = Path(__file__).with_name("garbage.py")
STALL_S = 0.05
AGAIN_S = 3.0  # until the routers know each other's load again
WITHIN_S = 10.0
MEMORY = 64 << 20  # bytes that an attack may cost this process
LIES = (  # What a server answers, and whether it never ends.
    (b"", False),
    (b"HTTP/1.1 400 Bad Request\r\nContent-Length: 5\r\n\r\nhello", False),
    (b"$4000000000\r\n" + b"x" * 1_000_000, True),  # one value of 4 GB
    (b"*1000000000\r\n" + b":1\r\n" * 250_000, True),  # a list of a billion values
)

Step = Callable[[], Awaitable[None]]


class Faulty:
    """Two routers in front of one replica, and their link to a server of Redis.

    The other router has one request at the replica.
    """

    def __init__(
        self, store: Store, link: Link, routers: list[kit.Router], log: pytest.LogCaptureFixture
    ) -> None:
        self.store, self.link, self.routers, self.log = store, link, routers, log
        self.watch = Watch()

    def states(self) -> list[bool | None]:
        addons = (router.app.parts.addons["share"] for router in self.routers)
        return [addon.is_reached for addon in addons if isinstance(addon, StoreAddon)]

    def is_known(self) -> bool:
        """Whether this router knows the load of the other one."""
        return self.load() == 1

    def load(self) -> int:
        return self.routers[0].app.parts.fleet.replicas["r0"].shared_load

    async def good(self) -> None:
        await kit.eventually(lambda: self.states() == [True, True], "a reached server", WITHIN_S)
        await kit.eventually(self.is_known, "the load of the other router", WITHIN_S)

    async def gauges(self, expected: float) -> None:
        for router in self.routers:
            port = router.app.admin_port
            assert await number(port, "hedgerow_share_connected") == expected

    async def serve(self) -> None:
        """Both routers answer requests. A request that waited would make the test too slow."""
        for router in self.routers:
            client = await router.client()
            for _ in range(12):
                await client.send(kit.chat())
                assert (await client.recv_response()).status == 200
            client.close()

    def events(self) -> list[str]:
        """What both routers have logged of the server, and all warnings."""
        records = [(record.getMessage(), record.levelno) for record in self.log.records]
        return [text for text, level in records if level >= logging.WARNING or text == FOUND]

    async def loses(
        self, fault: Step, mend: Step, *, forgets: bool = False, lasts_s: float = 0.0
    ) -> None:
        """Whatever the fault, both routers serve; they lose the server once and find it once.

        `lasts_s`: how long the fault lasts after the server was lost.
        """
        with self.watch as watch:
            await fault()
            await self.serve()
            await kit.eventually(lambda: self.states() == [False, False], "a lost server", WITHIN_S)
            await self.gauges(0.0)
            if forgets:
                await kit.eventually(lambda: self.load() == 0, "no load any more", WITHIN_S)
            await self.serve()
            await asyncio.sleep(lasts_s)
            assert self.states() == [False, False]
            await mend()
            began_s = watch.now_s()
            await self.good()
            took_s = watch.now_s() - began_s
            await self.gauges(1.0)
            await self.serve()
        assert self.events() == [LOST, LOST, FOUND, FOUND]
        assert took_s < AGAIN_S
        self.bounded(watch)

    def bounded(self, watch: Watch) -> None:
        assert watch.stall_s < STALL_S
        assert watch.grown < MEMORY


@asynccontextmanager
async def faulty(log: pytest.LogCaptureFixture, delay_s: float = 0.0) -> AsyncIterator[Faulty]:
    """`delay_s`: of the link, in each direction."""
    log.set_level(logging.INFO)
    store = Store()
    try:
        await store.ready()
        async with AsyncExitStack() as stack:
            link = await stack.enter_async_context(Link(store.port))
            link.delay_s = delay_s
            share = Sharing(url=store.url(port=link.port))
            one = await stack.enter_async_context(kit.running(answers_a_part, share=share))
            other = await stack.enter_async_context(kit.running(one.replica.url, share=share))
            client = await other.send(kit.chat(stream=True))
            await client.recv_until(b'"t"')
            found = Faulty(store, link, [one, other], log)
            await found.good()
            assert found.events() == []
            try:
                yield found
            finally:
                client.close()
    finally:
        store.close()


@kit.scenario
async def test_a_server_that_is_killed_and_starts_empty(caplog: pytest.LogCaptureFixture) -> None:
    async with faulty(caplog) as case:

        async def kill() -> None:
            case.store.kill()
            case.watch.excuse()

        async def start() -> None:
            case.store.start()
            case.watch.excuse()
            await case.store.ready()

        await case.loses(kill, start)


@kit.scenario
async def test_a_server_that_is_frozen(caplog: pytest.LogCaptureFixture) -> None:
    async with faulty(caplog) as case:

        async def freeze() -> None:
            case.store.signal(SIGSTOP)

        async def thaw() -> None:
            case.store.signal(SIGCONT)

        await case.loses(freeze, thaw, forgets=True)


@kit.scenario
async def test_a_slow_server_is_not_lost(caplog: pytest.LogCaptureFixture) -> None:
    async with faulty(caplog, delay_s=0.2) as case:
        with Watch() as watch:
            await case.serve()
            client = await case.routers[1].send(kit.chat(stream=True))
            await client.recv_until(b'"t"')
            await kit.eventually(lambda: case.load() == 2, "a load that was told", WITHIN_S)
        await case.gauges(1.0)
        assert case.events() == []
        case.bounded(watch)


@kit.scenario
async def test_a_server_of_another_kind(caplog: pytest.LogCaptureFixture) -> None:
    async with faulty(caplog) as case, AsyncExitStack() as stack:

        async def replace() -> None:
            for answer, floods in LIES:
                liar = await stack.enter_async_context(Liar(answer, floods=floods))
                case.link.to = liar.port
                case.link.cut()
                await kit.eventually(lambda liar=liar: liar.accepted > 3, "attempts", WITHIN_S)
                await case.serve()

        async def put_back() -> None:
            case.link.to = case.store.port
            case.link.cut()

        await case.loses(replace, put_back)


@kit.scenario
async def test_a_password_that_changes(caplog: pytest.LogCaptureFixture) -> None:
    async with faulty(caplog) as case:

        async def change() -> None:
            case.store.client.config_set("requirepass", "another")
            case.link.cut()

        async def change_back() -> None:
            case.store.client.config_set("requirepass", PASSWORD)

        await case.loses(change, change_back)


@kit.scenario
async def test_a_server_with_too_many_clients(caplog: pytest.LogCaptureFixture) -> None:
    async with faulty(caplog) as case:

        async def fill() -> None:
            case.store.client.config_set("maxclients", 1)
            case.link.cut()

        async def free() -> None:
            case.store.client.config_set("maxclients", 100)

        await case.loses(fill, free)


@pytest.mark.parametrize("late_s", [inf, pytest.param(4.0, marks=pytest.mark.nightly)])
@kit.scenario
async def test_a_server_that_accepts_messages_and_delivers_none_in_time(
    late_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    async with faulty(caplog) as case:

        async def delay() -> None:
            case.link.late_s = late_s

        async def mend() -> None:
            case.link.late_s = 0.0
            if late_s != inf:
                case.link.cut()  # Bytes that were late must not come between others.

        await case.loses(delay, mend, lasts_s=1.5 * STEADY_S)


@kit.scenario
async def test_a_slow_reader_that_the_server_disconnects(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with faulty(caplog) as case:
        client = case.store.client

        async def overflow() -> None:
            client.config_set("client-output-buffer-limit", "pubsub 100kb 0 0")
            case.link.flows.clear()
            for _ in range(20):
                client.publish(CHANNEL, b"x" * 1_000_000)
                case.watch.excuse()
                await asyncio.sleep(0)
            assert client.client_list(_type="pubsub") == []
            case.watch.excuse()
            case.link.flows.set()

        async def nothing() -> None:
            pass

        await case.loses(overflow, nothing)


@pytest.mark.parametrize("pause_s", [0.01, pytest.param(0.0, marks=pytest.mark.nightly)])
@kit.scenario
async def test_garbage(pause_s: float, caplog: pytest.LogCaptureFixture) -> None:
    """Garbage is ignored. If there is more than a router can read, the server counts as lost."""
    async with faulty(caplog) as case:
        share = case.routers[0].app.parts.addons["share"]
        assert isinstance(share, StoreAddon)
        program = (sys.executable, "-m", "tests.addons.share.app.garbage", case.store.url())
        with started((*program, CHANNEL, f"{pause_s}")):
            await kit.eventually(lambda: share.ignored > 100, "garbage", WITHIN_S)
            with Watch() as watch:
                enough = share.ignored + 3000
                while share.ignored < enough:
                    await case.serve()
        await kit.eventually(case.is_known, "the load of the other router", WITHIN_S)
        assert set(case.events()) <= {LOST, FOUND}
        assert len(case.events()) <= 8
        case.bounded(watch)
