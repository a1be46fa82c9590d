"""Reloading the whole router: changed, unchanged and refused settings, without failed requests."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from policies.contract import make_policy
from router.config.load import load
from router.config.model import (
    AccessLog,
    Health,
    Limits,
    Routing,
    Tls,
)
from router.core.errors import ConfigError
from tests.core.under import CERT, DATA, KEY, NEVER_S, replica_at, serving
from tests.harness.behaviours import chat_either, json_ok
from tests.harness.listeners import blackhole
from tests.harness.messages import DONE, LAST_CHUNK, SSE_HEAD, chat, chunk, token
from tests.harness.replica import ReplicaConnection, eventually
from tests.harness.running import scenario


@scenario
async def test_a_reload_changes_the_replicas() -> None:
    health = Health(interval_s=NEVER_S, slow_start_s=0.0)
    async with serving(json_ok, json_ok, health=health) as under:
        first, second = under.replicas
        under.change(replicas=(replica_at(first.url),))
        assert await under.app.reload() == under.app.metrics.config_hash
        for _ in range(4):
            assert (await under.ask()).status == 200
        assert (len(first.requests), len(second.requests)) == (4, 0)
        under.change(replicas=(replica_at(second.url), replica_at(first.url)))
        await under.app.reload()
        await eventually(lambda: len(under.app.parts.fleet.ready) == 2, "the first probe")
        for _ in range(4):
            await under.ask()
        assert (len(first.requests), len(second.requests)) == (6, 2)
        assert under.app.census()["probes"] == 2


@scenario
async def test_a_reload_lets_streams_of_a_removed_replica_finish() -> None:
    go = asyncio.Event()

    async def behave(connection: ReplicaConnection) -> None:
        await connection.recv_request()
        await connection.send(SSE_HEAD, chunk(token("a")))
        await go.wait()
        await connection.send(chunk(token("b", "stop")), chunk(DONE), LAST_CHUNK)
        await connection.recv_request()

    async with serving(behave, json_ok) as under:
        client = await under.client()
        await client.send(chat(stream=True))
        await client.recv_until(b"data:")
        streaming = under.replicas[0] if under.replicas[0].requests else under.replicas[1]
        assert streaming is under.replicas[0]
        under.change(replicas=(replica_at(under.replicas[1].url),))
        await under.app.reload()
        states = {r["id"]: r["state"] for r in under.app.replicas()}
        assert sorted(states.values()) == ["draining", "ready"]
        assert (await under.ask()).status == 200
        go.set()
        found = await client.recv_response()
        assert found.complete
        await eventually(lambda: len(under.app.replicas()) == 1, "the end of the removed one")
        client.close()


@scenario
async def test_a_reload_keeps_what_is_known_of_replicas_that_stay() -> None:
    async with serving(json_ok) as under:
        await under.ask()
        kept = next(iter(under.app.parts.fleet.replicas.values()))
        old = under.next.replicas[0]
        under.change(replicas=(msgspec.structs.replace(old, weight=3.0, max_inflight=7),))
        await under.app.reload()
        assert next(iter(under.app.parts.fleet.replicas.values())) is kept
        (shown,) = under.app.replicas()
        assert (shown["weight"], shown["max_inflight"], shown["served"]) == (3.0, 7, 1)
        await under.ask()
        assert kept.pool.opened == 1


@scenario
async def test_a_reload_changes_the_policy() -> None:
    async with serving(json_ok, json_ok) as under:
        under.change(routing=Routing(policy="random"))
        await under.app.reload()
        assert type(under.app.parts.policies.default) is type(make_policy("random"))
        assert (await under.ask()).status == 200


@scenario
async def test_a_reload_changes_how_many_clients_there_may_be() -> None:
    async with serving(json_ok) as under:
        under.change(limits=Limits(connections=1))
        await under.app.reload()
        first = await under.client()
        await first.send(chat())
        assert (await first.recv_response()).status == 200
        second = await under.client()
        found = await second.recv_response()
        assert (found.status, found.error()["code"]) == (503, "no_files")
        first.close()
        second.close()


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("replicas: [", "line 1"),
        ("replicas: []\n", "replicas"),
        ("replicas: [{url: http://a, wieght: 1}]\n", "replicas[0].wieght"),
        ("replicas: [http://a, http://a]\n", "replicas[1]"),
        ("replicas: 5\n", "replicas"),
        ("replicas: [http://a]\nrouting: {policy: nonsense}\n", "routing"),
        ("", "replicas"),
        (None, "cannot be read"),
    ],
)
@scenario
async def test_a_broken_configuration_keeps_the_old(
    text: str | None, path: str, tmp_path: Path
) -> None:
    file = tmp_path / "hedgerow.yaml"
    if text is not None:
        file.write_text(text)
    async with serving(json_ok) as under:
        before = (under.app.config, under.app.metrics.config_hash)
        under.read = lambda: load(file)
        with pytest.raises(ConfigError) as refused:
            await under.app.reload()
        assert path in str(refused.value)
        assert (under.app.config, under.app.metrics.config_hash) == before
        assert (await under.ask()).status == 200
        answer = await under.admin("/reload", "POST")
        assert answer.status == 400
        assert answer.json()["error"]["problems"] == refused.value.problems


@pytest.mark.parametrize("field", ["listen", "admin", "tls"])
@scenario
async def test_what_is_fixed_is_refused(field: str) -> None:
    async with serving(json_ok) as under:
        before = under.app.config
        value: Any = Tls(cert=CERT, key=KEY) if field == "tls" else "127.0.0.1:1"
        under.change(**{field: value, "replicas": ()})
        with pytest.raises(ConfigError) as refused:
            await under.app.reload()
        assert refused.value.problems == [f"{field}: cannot change without a restart"]
        assert under.app.config is before
        assert (await under.ask()).status == 200


@scenario
async def test_a_refused_reload_leaves_nothing_open(tmp_path: Path) -> None:
    """A new access log is opened before the certificate is found to be invalid."""
    async with serving(json_ok, tls=Tls(cert=CERT, key=KEY)) as under:
        threads = threading.active_count()
        under.change(
            access_log=AccessLog(path=str(tmp_path / "new.log")),
            tls=Tls(cert=CERT, key=str(DATA / "other.key")),
        )
        for _ in range(3):
            with pytest.raises(ConfigError) as refused:
                await under.app.reload()
            assert refused.value.problems[0].startswith("tls.key: ")
        assert threading.active_count() == threads


@scenario
async def test_a_hundred_reloads_under_load_fail_nothing() -> None:
    async with serving(chat_either, chat_either, chat_either) as under:
        statuses: list[int] = []
        done = False

        async def load_it(number: int) -> None:
            client = await under.client()
            while not done:
                await client.send(chat(stream=bool(number % 2)))
                found = await client.recv_response()
                assert found.complete
                statuses.append(found.status)
            client.close()

        tasks = [asyncio.ensure_future(load_it(number)) for number in range(6)]
        sets = [
            tuple(replica_at(r.url, weight=1.0 + n) for r in under.replicas[n % 3 :])
            for n in range(6)
        ]
        for n in range(100):
            under.change(
                replicas=sets[n % 6],
                routing=Routing(policy=("random", "p2c", "round_robin")[n % 3]),
            )
            await under.app.reload()
            await asyncio.sleep(0.003)
        done = True
        await asyncio.gather(*tasks)
        assert set(statuses) == {200}
        assert len(statuses) > 100
        await eventually(lambda: not under.app.parts.fleet.leaving, "the end of removed replicas")
        assert under.app.census()["probes"] <= 3


@scenario
async def test_requests_that_wait_for_a_connection_survive_a_moved_replica() -> None:
    """A replica gets another address under the same ID while requests wait for a connection."""
    with blackhole() as hole:
        async with serving(json_ok) as under:
            (new,) = under.replicas
            under.change(replicas=(replica_at(hole, id="engine"),))
            await under.app.reload()
            fleet = under.app.parts.fleet
            fleet.probed(fleet.replicas["engine"], True)  # as if it had been healthy until now
            clients = [await under.client() for _ in range(4)]
            for client in clients:
                await client.send(chat())
            await eventually(lambda: under.app.census()["replica_waiting"] == 4, "requests")
            under.change(replicas=(replica_at(new.url, id="engine"),))
            await under.app.reload()
            for client in clients:
                found = await client.recv_response()
                assert found.status == 200, found
                client.close()
