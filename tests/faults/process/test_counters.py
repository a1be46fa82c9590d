"""Failures that no client notices are counted in /metrics, each in its own counter."""

import asyncio
import os
from pathlib import Path

import pytest

from router.config.model import AccessLog
from tests.faults.process.metrics import number, scrape
from tests.harness.behaviours import answer, in_turn, json_ok, rst_after_request, sse_tokens
from tests.harness.messages import chat, completion, json_response
from tests.harness.replica import Behaviour, ReplicaConnection, eventually
from tests.harness.running import Router, open_files, routed, running, scenario

DROPPED = "hedgerow_access_log_lines_dropped_total"
BUSY = json_response({"error": {"message": "later", "code": 429}}, 429)


@pytest.mark.parametrize(
    ("first", "cause"),
    [(rst_after_request, "replica_reset"), (answer(BUSY), "replica_busy")],
    ids=["reset", "busy"],
)
@scenario
async def test_a_retry_has_its_cause(first: Behaviour, cause: str) -> None:
    async with running(first, json_ok, policy="round_robin") as router:
        for count in (1, 2):
            while len(router.replica.requests) < count:
                assert (await router.ask(chat())).status == 200
        found = await scrape(router.app.admin_port)
        retries = {k: n for k, n in found.items() if k[0] == "hedgerow_retries_total"}
        label = frozenset({("cause", cause)})
        assert retries == {("hedgerow_retries_total", label): 2}
        ended = frozenset({("replica", "r0"), ("attempt", "primary"), ("reason", cause)})
        assert found["hedgerow_attempts_total", ended] == 2
        served = frozenset({("replica", "r1"), ("attempt", "retry"), ("reason", "ok")})
        assert found["hedgerow_attempts_total", served] == 2
        asked = frozenset({("kind", "chat"), ("reason", "ok"), ("status", "200")})
        await router.log(int(found["hedgerow_requests_total", asked]))


@routed(json_ok, json_ok, policy="round_robin")
async def test_a_refused_connect_is_a_cause_as_well(router: Router) -> None:
    # Several probes fail before the replica counts as down.
    await router.replica.stop_listening()
    for _ in range(2):
        assert (await router.ask(chat())).status == 200
    retries = await number(router.app.admin_port, "hedgerow_retries_total", cause="connect_failed")
    assert retries == 1


@routed(json_ok)
async def test_no_retry_no_count(router: Router) -> None:
    assert (await router.ask(chat())).status == 200
    found = await scrape(router.app.admin_port)
    assert not [key for key in found if key[0] == "hedgerow_retries_total"]
    assert found["hedgerow_replica_connections_stale_total", frozenset()] == 0
    assert found["hedgerow_retry_budget_exhausted_total", frozenset()] == 0


@scenario
async def test_a_stale_connection() -> None:
    go = asyncio.Event()

    async def dies(connection: ReplicaConnection) -> None:
        assert await connection.recv_request()
        await connection.send(completion())
        assert await connection.recv_request()
        connection.close()  # close without a byte, as after an idle timeout
        go.set()

    async with running(in_turn(dies, then=json_ok)) as router:
        client = await router.client()
        for _ in range(2):
            await client.send(chat())
            assert (await client.recv_response()).status == 200
        assert go.is_set()
        port = router.app.admin_port
        assert await number(port, "hedgerow_replica_connections_stale_total") == 1
        assert await number(port, "hedgerow_retries_total", cause="replica_reset") == 1


@routed(json_ok)
async def test_connections_opened_and_kept(router: Router) -> None:
    client = await router.client()
    for _ in range(5):
        await client.send(chat())
        assert (await client.recv_response()).status == 200
    found = await scrape(router.app.admin_port)
    assert found["hedgerow_client_connections_accepted_total", frozenset()] == 1
    assert found["hedgerow_replica_connections_opened_total", frozenset()] == 1
    assert found["hedgerow_replica_connections_reused_total", frozenset()] == 4


@scenario
async def test_a_stream_that_got_comments_first() -> None:
    go = asyncio.Event()

    async def late(connection: ReplicaConnection) -> None:
        await go.wait()
        await sse_tokens()(connection)

    async with running(late, timeouts={"commit_after_s": 0.05}) as router:
        client = await router.send(chat(stream=True))
        while b": waiting" not in client.unread:
            assert await client.fill()
        go.set()
        assert (await client.recv_response()).complete
        port = router.app.admin_port
        assert await number(port, "hedgerow_streams_committed_early_total") == 1


@routed(json_ok, access_log={"path": "/dev/full"})
async def test_dropped_log_lines_of_a_full_disk(router: Router) -> None:
    for _ in range(20):
        assert (await router.ask(chat())).status == 200
    await eventually(lambda: router.app.parts.log.dropped == 20, "twenty lines lost")
    assert await number(router.app.admin_port, DROPPED) == 20


@scenario
async def test_dropped_log_lines_of_a_sink_that_stands_still(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # the pipe is never read
    try:
        async with running(json_ok, access_log={"path": str(pipe), "queue": 4096}) as router:
            client = await router.client()
            assert await number(router.app.admin_port, DROPPED) == 0
            for _ in range(1500):
                await client.send(chat())
                assert (await client.recv_response()).status == 200
            dropped = await number(router.app.admin_port, DROPPED)
            assert 0 < dropped < 1500
    finally:
        os.close(reader)
        # The log's thread was blocked in a write to the pipe, and ends only now.
        await eventually(lambda: str(pipe) not in open_files().values(), "its writer has closed it")


@routed(json_ok, access_log={"path": "/dev/full"})
async def test_a_reload_that_moves_the_log_loses_no_count(router: Router, tmp_path: Path) -> None:
    """Prometheus treats a decreasing counter as a restart, but there was none."""
    for _ in range(5):
        assert (await router.ask(chat())).status == 200
    await eventually(lambda: router.app.parts.log.dropped == 5, "five lines lost")
    router.change(access_log=AccessLog(path=str(tmp_path / "log"), flush_s=0.02))
    await router.app.reload()
    assert await number(router.app.admin_port, DROPPED) == 5
