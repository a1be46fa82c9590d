"""A pool over real sockets: which request gets which connection, and which are never reused."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from router.config.model import Limits, Timeouts
from router.core.errors import Reason
from router.wire import replica
from router.wire.http1.response_reader import COMPLETE
from router.wire.pool import Address, Pool
from router.wire.replica import ReplicaConnection
from router.wire.sweep import Sweeper
from tests.harness.behaviours import hang, json_ok
from tests.harness.listeners import blackhole, closer, dead_url
from tests.harness.messages import completion, request
from tests.harness.replica import (
    Behaviour,
    HostileReplica,
    ReplicaConnection as Accepted,
    eventually,
)
from tests.harness.running import scenario


class Owner(replica.Owner):
    """Waits for a connection, sends one request, records its events."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.conn: ReplicaConnection | None = None
        self.failures: list[Reason] = []
        self.lost: list[Reason] = []
        self.sends = False  # whether to send as soon as the connection is open

    def take(self, *, fresh: bool = False) -> bool:
        """Request a connection; True if there was one at once."""
        conn = self.pool.acquire(self, fresh=fresh)
        if conn is not None:
            self.on_connected(conn)
        return conn is not None

    def on_connected(self, conn: ReplicaConnection) -> None:
        assert self.conn is None
        self.conn = conn
        if self.sends:
            self.send()

    def on_connect_failed(self, reason: Reason, detail: str) -> None:
        self.failures.append(reason)

    def send(self, body: list[bytes] | None = None) -> None:
        assert self.conn is not None
        self.conn.send(self, request("/x"), body or [], for_head=False)

    def on_data(self, conn: ReplicaConnection) -> None:
        assert conn is self.conn

    def on_sent(self) -> None:
        pass

    def on_lost(self, conn: ReplicaConnection, reason: Reason, detail: str) -> None:
        assert conn is self.conn
        self.lost.append(reason)

    @property
    def answered(self) -> bool:
        return self.conn is not None and self.conn.reader.state == COMPLETE

    async def connected(self) -> ReplicaConnection:
        await eventually(lambda: self.conn is not None, "a connection")
        assert self.conn is not None
        return self.conn

    async def round_trip(self) -> ReplicaConnection:
        """Send, wait for the whole answer, return the connection."""
        conn = await self.connected()
        self.send()
        await eventually(lambda: self.answered, "an answer")
        conn.release()
        return conn


def taking(pool: Pool, *, fresh: bool = False) -> Owner:
    """An owner that has asked for a connection."""
    owner = Owner(pool)
    owner.take(fresh=fresh)
    return owner


@asynccontextmanager
async def pool_to(
    behave: Behaviour | str, *, limits: dict[str, Any] | None = None, **timeouts: float
) -> AsyncIterator[tuple[Pool, HostileReplica]]:
    """A pool to a replica (or a URL); at the end `abort` must release everything."""
    loop = asyncio.get_running_loop()
    errors: list[BaseException] = []
    sweeper = Sweeper(loop, errors.append)
    replica = HostileReplica(json_ok if isinstance(behave, str) else behave, asked_apart=False)
    replica.start()
    url = behave if isinstance(behave, str) else replica.url
    port = int(url.rpartition(":")[2])
    pool = Pool(
        Address("127.0.0.1", port), Limits(**(limits or {})), Timeouts(**timeouts), sweeper, loop
    )
    try:
        yield pool, replica
    finally:
        pool.abort()
        await eventually(lambda: not pool.connecting, "the end of all openings")
        left = (len(pool.all), pool.idle, pool.waiting, len(sweeper.parties))
        sweeper.close()
        await replica.stop()
    assert left == (0, 0, 0, 0)
    assert not errors
    assert not replica.failures


async def opened(pool: Pool, count: int) -> list[ReplicaConnection]:
    """Open `count` connections, and return them when all are idle."""
    owners = [taking(pool, fresh=True) for _ in range(count)]
    connections = [await owner.connected() for owner in owners]
    for owner in owners:
        await owner.round_trip()
    assert pool.idle == count
    return connections


@scenario
async def test_a_connection_is_used_again() -> None:
    async with pool_to(json_ok) as (pool, replica):
        first = Owner(pool)
        assert not first.take()
        conn = await first.round_trip()
        assert not conn.reused
        second = Owner(pool)
        assert second.take()
        assert await second.round_trip() is conn
        assert conn.reused
        assert (pool.opened, pool.reused, pool.idle) == (1, 1, 1)
        assert len(replica.connections) == 1


@scenario
async def test_the_youngest_is_taken_first() -> None:
    async with pool_to(json_ok) as (pool, _):
        connections = await opened(pool, 3)
        owner = taking(pool)
        assert owner.conn is connections[-1]


@scenario
async def test_fresh_asks_for_a_new_connection() -> None:
    async with pool_to(json_ok) as (pool, _):
        (old,) = await opened(pool, 1)
        owner = Owner(pool)
        assert not owner.take(fresh=True)
        assert await owner.connected() is not old


@scenario
async def test_fresh_is_not_served_by_one_that_becomes_free() -> None:
    """The caller has just seen a reused connection die: another used one may die as well."""
    with blackhole() as url:
        async with pool_to(json_ok, limits={"connecting": 1}) as (pool, _):
            busy = taking(pool)
            conn = await busy.connected()
            pool.address.port = int(url.rpartition(":")[2])  # no other connection can be opened
            owner = taking(pool, fresh=True)
            await busy.round_trip()
            assert owner.conn is not conn
            assert pool.waiting == 1


@scenario
async def test_who_waits_is_served_by_one_that_becomes_free() -> None:
    with blackhole() as url:
        async with pool_to(json_ok) as (pool, _):
            busy = taking(pool)
            conn = await busy.connected()
            pool.address.port = int(url.rpartition(":")[2])
            waiters = [Owner(pool), Owner(pool)]
            for waiter in waiters:
                assert not waiter.take()
            await busy.round_trip()
            assert waiters[0].conn is conn
            assert waiters[1].conn is None
            assert (pool.idle, pool.waiting) == (0, 1)


@scenario
async def test_no_more_than_a_number_are_opened_at_once() -> None:
    with blackhole() as url:
        async with pool_to(url, limits={"connecting": 2}, connect_s=0.1) as (pool, _):
            owners = [taking(pool) for _ in range(5)]
            assert (pool.connecting, pool.waiting) == (2, 5)
            most = 0
            while not all(owner.failures for owner in owners):
                most = max(most, pool.connecting)
                await asyncio.sleep(0.005)
            assert most == 2
            assert [owner.failures for owner in owners] == [[Reason.CONNECT_TIMEOUT]] * 5


@scenario
async def test_each_failure_fails_one_waiter() -> None:
    async with pool_to(dead_url(), limits={"connecting": 2}) as (pool, _):
        owners = [taking(pool) for _ in range(7)]
        await eventually(lambda: all(owner.failures for owner in owners), "all to fail")
        assert [owner.failures for owner in owners] == [[Reason.CONNECT_FAILED]] * 7
        assert (pool.waiting, pool.opened) == (0, 0)


@pytest.mark.parametrize("rst", [False, True], ids=["FIN", "reset"])
@scenario
async def test_a_connection_that_is_closed_before_its_use_is_a_failed_connect(rst: bool) -> None:
    with closer(rst=rst) as url:
        async with pool_to(url) as (pool, _):
            owners = [taking(pool) for _ in range(3)]
            await eventually(lambda: all(owner.failures for owner in owners), "all to fail")
            assert [owner.failures for owner in owners] == [[Reason.CONNECT_FAILED]] * 3
            assert (pool.waiting, pool.opened) == (0, 0)


@scenario
async def test_who_cancels_hears_nothing_and_its_opening_is_given_up() -> None:
    with blackhole() as url:
        async with pool_to(url) as (pool, _):
            owner = taking(pool)
            await asyncio.sleep(0.01)
            pool.cancel(owner)
            pool.cancel(owner)
            await eventually(lambda: not pool.connecting, "the opening to end")
            assert (owner.conn, owner.failures, pool.waiting) == (None, [], 0)


@scenario
async def test_who_cancels_takes_no_opening_from_others() -> None:
    async with pool_to(json_ok, limits={"connecting": 2}) as (pool, _):
        owners = [taking(pool) for _ in range(6)]
        for owner in owners[::2]:
            pool.cancel(owner)
        late = taking(pool)
        for owner in (*owners[1::2], late):
            await owner.connected()
        assert all(owner.conn is None and not owner.failures for owner in owners[::2])
        assert pool.waiting == 0


@scenario
async def test_an_opening_that_nobody_needs_keeps_to_the_limit_of_idle_ones() -> None:
    """While a connection is opened, the request that waits for it may be served by a freed one."""
    async with pool_to(json_ok, limits={"pool_idle": 0}) as (pool, _):
        busy = taking(pool)
        conn = await busy.connected()
        busy.send()
        await eventually(lambda: busy.answered, "an answer")
        owner = taking(pool)
        conn.release()
        assert owner.conn is conn
        await eventually(lambda: not pool.connecting, "the opening to end")
        assert pool.idle == 0


@scenario
async def test_only_so_many_idle() -> None:
    async with pool_to(json_ok, limits={"pool_idle": 2}) as (pool, _):
        owners = [taking(pool, fresh=True) for _ in range(4)]
        for owner in owners:
            await owner.connected()
        for owner in owners:
            await owner.round_trip()
        assert (pool.idle, len(pool.all)) == (2, 2)


@scenario
async def test_idle_ones_end_after_their_time() -> None:
    async with pool_to(json_ok, pool_idle_s=0.05) as (pool, replica):
        await opened(pool, 2)
        await eventually(lambda: not pool.all, "the end of idle connections")
        assert pool.idle == 0
        await eventually(lambda: all(c.ended for c in replica.connections), "their peers' end")


@scenario
async def test_a_busy_one_does_not_end_with_the_idle_time() -> None:
    async def behave(connection: Accepted) -> None:
        await connection.recv_request()
        await connection.send(completion())
        await hang(connection)

    async with pool_to(behave, pool_idle_s=0.15) as (pool, _):
        await opened(pool, 1)
        busy = Owner(pool)
        assert busy.take()
        busy.send()
        marker = taking(pool)
        conn = await marker.round_trip()
        await eventually(lambda: conn not in pool.all, "the end of one that idles")
        assert pool.all == {busy.conn}
        assert busy.lost == []


@scenario
async def test_an_old_one_is_not_used_again() -> None:
    async with pool_to(json_ok, pool_age_s=0.01) as (pool, _):
        owner = taking(pool)
        await owner.connected()
        await asyncio.sleep(0.02)
        await owner.round_trip()
        assert (pool.idle, len(pool.all)) == (0, 0)


@scenario
async def test_a_closed_pool_fails_who_waits_and_who_comes() -> None:
    with blackhole() as url:
        async with pool_to(url) as (pool, _):
            waiting, late = Owner(pool), Owner(pool)
            waiting.take()
            pool.close()
            late.take()
            await eventually(lambda: bool(late.failures), "the refusal")
            assert waiting.failures == late.failures == [Reason.CONNECT_FAILED]


@scenario
async def test_a_closed_pool_lets_a_busy_one_finish() -> None:
    go = asyncio.Event()

    async def behave(connection: Accepted) -> None:
        await connection.recv_request()
        await go.wait()
        await connection.send(completion())
        await connection.recv_request()

    async with pool_to(behave) as (pool, _):
        owner = taking(pool)
        conn = await owner.connected()
        owner.send()
        pool.close()
        assert len(pool.all) == 1
        go.set()
        await eventually(lambda: owner.answered, "the answer")
        conn.release()
        assert not pool.all


@scenario
async def test_abort_ends_everything() -> None:
    async with pool_to(hang) as (pool, replica):
        busy = [taking(pool) for _ in range(3)]
        for owner in busy:
            await owner.connected()
            owner.send()
        await replica.wait_for_requests(3)
        pool.abort()
        assert not pool.all
        await eventually(lambda: all(c.ended for c in replica.connections), "their peers' end")
        assert [owner.lost for owner in busy] == [[], [], []]
