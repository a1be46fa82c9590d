"""Several workers on one port: evenly used, one admin port, and what if one of them dies."""

import asyncio
import json
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from router.app.workers.balance import HUNG_S
from router.config.keys import hash_of
from tests.addons.needed import needs
from tests.faults.restart.helpers import is_alive
from tests.faults.restart.load import slow_stream
from tests.harness.behaviours import chat_either
from tests.harness.client import RawClient
from tests.harness.messages import chat, request
from tests.harness.process import START_S, RouterProcess, serving, write_config
from tests.harness.reading import Response
from tests.harness.replica import Behaviour, HostileReplica, eventually
from tests.harness.running import long_scenario

pytestmark = needs("share")
EXTRA = "workers: 2\ndrain: {lame_duck: 0, grace: 30}\n"


class Workers:
    """A router with two workers."""

    def __init__(self, router: RouterProcess, config: Path, replica: HostileReplica) -> None:
        self.router = router
        self.config = config
        self.replica = replica
        self.pids: list[int] = []

    async def admin(self, path: str, method: str = "GET", body: Any = None) -> Response:
        client = await self.router.client(admin=True)
        data = b"" if body is None else json.dumps(body).encode()
        await client.send(request(path, "Connection: close", method=method, body=data))
        answer = await client.recv_response()
        client.close()
        return answer

    async def metric(self, name: str) -> float:
        text = bytes((await self.admin("/metrics")).body).decode()
        return sum(float(row.split()[-1]) for row in text.splitlines() if row.startswith(name))

    async def ask(self) -> int:
        client = await self.router.send(chat("Connection: close"))
        answer = await client.recv_response("POST")
        client.close()
        return answer.status

    async def stream(self) -> bool:
        """Whether a stream comes whole."""
        client = await self.router.send(chat(stream=True))
        try:
            answer = await client.recv_response("POST")
        except (ConnectionError, AssertionError):
            return False
        finally:
            client.close()
        return answer.complete and b"[DONE]" in answer.body

    async def serve(self) -> None:
        """Wait until both workers serve."""
        event = await self.router.event_after(0, "workers serve")
        self.pids = event["pids"]
        await eventually_true(self.both)

    async def killed(self, pid: int, message: str = "ready") -> int:
        """Kill a worker, and wait for an event of the next one; return the next one's process."""
        known = len(self.router.events)
        os.kill(pid, signal.SIGKILL)
        ended = "a worker has ended, and is started again"
        await self.router.event_after(known, ended)
        known = [each["message"] == ended for each in self.router.events].index(True, known)
        found = await self.router.event_after(known, message)
        return int(found.get("pid", 0))

    async def both(self) -> bool:
        return await self.metric("hedgerow_share_routers ") == 1.0


async def eventually_true(check: Any) -> None:
    async with asyncio.timeout(START_S):
        while not await check():
            await asyncio.sleep(0.05)


@asynccontextmanager
async def workers(
    tmp_path: Path, behave: Behaviour = chat_either, extra: str = ""
) -> AsyncIterator[Workers]:
    async with HostileReplica(behave) as replica:
        config = tmp_path / "config.yaml"
        write_config(config, replica.url, extra=EXTRA + extra)
        async with serving(config) as router:
            one = Workers(router, config, replica)
            await one.serve()
            yield one


@long_scenario
async def test_connections_are_spread_evenly_and_counted_once(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    async with workers(tmp_path, extra=f"access_log: {{path: {log}}}\n") as one:
        clients = [await one.router.client() for _ in range(40)]
        for client in clients:
            await client.send(chat())
        for client in clients:
            assert (await client.recv_response("POST")).status == 200
        held = [len(os.listdir(f"/proc/{pid}/fd")) for pid in one.pids]
        assert abs(held[0] - held[1]) <= 10, held
        assert await one.metric("hedgerow_requests_total{") == 40.0
        assert await one.metric("hedgerow_client_connections ") == 40.0
        replicas = json.loads((await one.admin("/replicas")).body)
        assert replicas[0]["served"] == 40
        for client in clients:
            client.close()
        await eventually(lambda: len(log.read_text().splitlines()) == 40, "all lines")
        assert len({json.loads(line)["id"] for line in log.read_text().splitlines()}) == 40


@long_scenario
async def test_changes_by_the_admin_port_hold_for_all(tmp_path: Path) -> None:
    async with workers(tmp_path) as one:
        entry = {"url": "http://127.0.0.1:9", "id": "extra"}
        assert (await one.admin("/replicas", "POST", entry)).status == 201
        assert (await one.admin("/replicas", "POST", entry)).status == 409
        assert (await one.admin("/replicas/other/cordon", "POST")).status == 404
        replicas = json.loads((await one.admin("/replicas")).body)
        first = next(r["id"] for r in replicas if r["id"] != "extra")
        for _ in range(6):  # Either worker may answer.
            assert (await one.admin("/replicas/extra")).status == 200
        assert (await one.admin(f"/replicas/{first}/cordon", "POST")).status == 200
        states = [
            json.loads((await one.admin(f"/replicas/{first}")).body)["state"] for _ in range(6)
        ]
        assert set(states) == {"cordoned"}
        # A worker that is started again has the same members.
        os.kill(one.pids[1], signal.SIGKILL)
        await one.router.event_after(len(one.router.events), "ready")
        await eventually_true(one.both)
        for _ in range(6):
            assert (await one.admin("/replicas/extra")).status == 200
        assert (await one.admin("/replicas/extra", "DELETE")).status == 202
        write_config(one.config, one.replica.url, extra=EXTRA + "via: renamed\n")
        hashes = {json.loads((await one.admin("/reload", "POST")).body)["hash"] for _ in range(4)}
        assert len(hashes) == 1
        one.config.write_text("nonsense: 1\n")
        assert (await one.admin("/reload", "POST")).status == 400


@long_scenario
async def test_a_worker_gets_the_changes_that_were_made_during_its_start(tmp_path: Path) -> None:
    async with workers(tmp_path) as one:
        await one.killed(one.pids[1], "starting")
        known = len(one.router.events)
        entry = {"url": "http://127.0.0.1:9", "id": "extra"}
        assert (await one.admin("/replicas", "POST", entry)).status == 201
        assert (await one.admin("/replicas/extra/cordon", "POST")).status == 200
        await one.router.event_after(known, "ready")
        await eventually_true(one.both)
        for _ in range(8):  # Either worker may answer.
            found = await one.admin("/replicas/extra")
            assert (found.status, json.loads(found.body)["state"]) == (200, "cordoned")
        assert (await one.admin("/replicas/extra", "DELETE")).status == 202


@long_scenario
async def test_a_killed_worker_loses_its_own_streams_only(tmp_path: Path) -> None:
    async with workers(tmp_path, slow_stream(20, 0.1)) as one:
        streams = [asyncio.ensure_future(one.stream()) for _ in range(40)]
        await eventually_true(lambda: running(one, 40.0))
        os.kill(one.pids[0], signal.SIGKILL)
        # The port never refuses.
        for _ in range(20):
            client = await one.router.client()
            client.close()
        done = sum(await asyncio.gather(*streams))
        assert 16 <= done <= 24, done
        event = await one.router.event_after(0, "a worker has ended, and is started again")
        assert (event["pid"], event["status"]) == (one.pids[0], -signal.SIGKILL)
        await eventually_true(one.both)
        assert await one.stream()


async def running(one: Workers, count: float) -> bool:
    return await one.metric("hedgerow_requests_under_way ") == count


@long_scenario
async def test_workers_that_die_leave_nothing_open_in_the_parent(tmp_path: Path) -> None:
    async with workers(tmp_path) as one:
        victim, counts = one.pids[1], []
        for _ in range(4):
            victim = await one.killed(victim)
            await eventually_true(one.both)
            counts.append(len(os.listdir(f"/proc/{one.router.pid}/fd")))
        assert counts[-1] <= counts[1], counts  # The first end starts a thread.


@long_scenario
async def test_a_limit_of_a_key_holds_once(tmp_path: Path) -> None:
    keys = tmp_path / "keys.jsonl"
    key = {"name": "acme", "hash": hash_of(b"acme-key"), "requests_per_minute": 20}
    keys.write_text(json.dumps(key) + "\n")
    async with workers(tmp_path, extra=f"keys: {{file: {keys}}}\n") as one:
        data = chat("Connection: close", "Authorization: Bearer acme-key")
        statuses = []
        for _ in range(60):
            client = await one.router.send(data)
            statuses.append((await client.recv_response("POST")).status)
            client.close()
            await asyncio.sleep(0.01)  # Two of them come before a worker hears of the other's.
        assert 20 <= statuses.count(200) <= 24, statuses
        assert statuses.count(429) == 60 - statuses.count(200)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@long_scenario
async def test_a_signal_to_all_processes_drains_each_once(
    tmp_path: Path, number: signal.Signals
) -> None:
    """A terminal, or systemd, sends a signal to all processes of a service."""
    async with workers(tmp_path, slow_stream(10, 0.1)) as one:
        streams = [asyncio.ensure_future(one.stream()) for _ in range(10)]
        await eventually_true(lambda: running(one, 10.0))
        for pid in (*one.pids, one.router.pid):
            os.kill(pid, number)
        assert all(await asyncio.gather(*streams))
        assert await one.router.exit_status() == 0
        with pytest.raises(ConnectionRefusedError):
            await RawClient.connect(one.router.port)


@long_scenario
async def test_the_admin_port_drains_all(tmp_path: Path) -> None:
    """A second request for a drain does not stop the streams, as a second signal does."""
    async with workers(tmp_path, slow_stream(10, 0.1)) as one:
        streams = [asyncio.ensure_future(one.stream()) for _ in range(4)]
        await eventually_true(lambda: running(one, 4.0))
        for _ in range(3):
            assert (await one.admin("/drain", "POST")).status == 202
        assert all(await asyncio.gather(*streams))
        assert await one.router.exit_status() == 0


@long_scenario
async def test_a_worker_is_not_started_again_by_a_parent_that_drains(tmp_path: Path) -> None:
    """The parent gets the order while it waits for the state of the other worker, which hangs."""
    async with workers(tmp_path) as one:
        os.kill(one.pids[0], signal.SIGSTOP)
        os.kill(one.pids[1], signal.SIGKILL)
        ended = "a worker has ended, and is started again"
        await one.router.event_after(len(one.router.events), ended)
        await asyncio.sleep(1.2)  # The pause of 0.5 s is over, the time limit of 2 s is not.
        os.kill(one.router.pid, signal.SIGTERM)
        await asyncio.sleep(0.1)
        os.kill(one.pids[0], signal.SIGCONT)
        assert await one.router.exit_status() == 0


@long_scenario
async def test_workers_finish_their_streams_without_their_parent(tmp_path: Path) -> None:
    async with workers(tmp_path, slow_stream(10, 0.1)) as one:
        streams = [asyncio.ensure_future(one.stream()) for _ in range(10)]
        await eventually_true(lambda: running(one, 10.0))
        os.kill(one.router.pid, signal.SIGKILL)
        assert all(await asyncio.gather(*streams))
        await eventually(
            lambda: not any(is_alive(pid) for pid in one.pids), "the end of the workers", START_S
        )


@long_scenario
async def test_a_worker_has_the_sockets_of_its_parent_whatever_the_file_says(
    tmp_path: Path,
) -> None:
    """An address is used from the next restart on."""
    async with workers(tmp_path) as one:
        text = one.config.read_text()
        one.config.write_text(text.replace("listen: 127.0.0.1:0", "listen: localhost:0"))
        known = len(one.router.events)
        await one.killed(one.pids[1])
        ready = [e for e in one.router.events[known:] if e["message"] == "ready"][-1]
        assert ready["listen"] == f"127.0.0.1:{one.router.port}"


@pytest.mark.parametrize("who", ["parent", "worker"])
@long_scenario
async def test_a_frozen_process_does_not_stop_the_others(tmp_path: Path, who: str) -> None:
    async with workers(tmp_path) as one:
        pid = one.router.pid if who == "parent" else one.pids[1]
        os.kill(pid, signal.SIGSTOP)
        try:
            if who == "parent":
                assert [await one.ask() for _ in range(20)] == [200] * 20
                assert (await one.admin("/fleet")).status == 200
            else:
                await asyncio.sleep(2 * HUNG_S)  # Until then it may be passed connections.
                answers = [asyncio.ensure_future(one.ask()) for _ in range(20)]
                assert await asyncio.gather(*answers) == [200] * 20
        finally:
            os.kill(pid, signal.SIGCONT)
        await eventually_true(one.both)


@long_scenario
async def test_a_port_that_is_in_use_is_one_error(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        write_config(config, "http://127.0.0.1:9", extra=EXTRA)
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        config.write_text(config.read_text().replace("127.0.0.1:0", address, 1))
        with pytest.raises(AssertionError) as found:
            async with serving(config):
                pass
    assert str(found.value).count("already in use") == 1


@long_scenario
async def test_connections_that_wait_for_a_dead_worker_are_served_by_another_one(
    tmp_path: Path,
) -> None:
    async with workers(tmp_path) as one:
        config = one.config.read_text()
        one.config.write_text("nonsense: 1\n")  # No worker can be started again.
        os.kill(one.pids[1], signal.SIGSTOP)
        answers = [asyncio.ensure_future(one.ask()) for _ in range(10)]
        await asyncio.sleep(0.3)
        os.kill(one.pids[1], signal.SIGKILL)
        assert await asyncio.gather(*answers) == [200] * 10
        one.config.write_text(config)
        await eventually_true(one.both)


@long_scenario
async def test_numbers_without_those_of_a_worker_are_not_shown(tmp_path: Path) -> None:
    async with workers(tmp_path) as one:
        os.kill(one.pids[1], signal.SIGSTOP)
        try:
            answer = await one.admin("/metrics")
            assert answer.status in (0, 503), answer.status
            assert json.loads(answer.body)["error"]["code"] == "worker_silent"
            assert (await one.admin("/readyz")).status == 200
        finally:
            os.kill(one.pids[1], signal.SIGCONT)
        await eventually_true(one.both)
