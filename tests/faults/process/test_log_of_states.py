"""The log of a process: it ends on the present state, and can be rotated and limited by level."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from router.cli import main
from tests.harness.behaviours import json_ok
from tests.harness.client import RawClient
from tests.harness.control import HEALTH, MODELS
from tests.harness.messages import chat, response
from tests.harness.process import RouterProcess, serving
from tests.harness.replica import HostileReplica, ReplicaConnection, eventually
from tests.harness.running import scenario

FAST = "health: {interval: 0.1, timeout: 5, rise: 1, fall: 1, models_interval: 0.1}\n"


async def says_500(connection: ReplicaConnection) -> None:
    await connection.send(response(500))


async def says_401(connection: ReplicaConnection) -> None:
    await connection.send(response(401))


def configured(folder: Path, *urls: str, more: str = "") -> Path:
    path = folder / "config.yaml"
    shared = f"listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\n{FAST}{more}"
    path.write_text(shared + f"replicas: [{', '.join(urls)}]\n")
    return path


async def ask(process: RouterProcess) -> int:
    client: RawClient = await process.client()
    await client.send(chat())
    status = (await client.recv_response()).status
    client.close()
    return status


@scenario
async def test_down_up_down_ends_with_down(tmp_path: Path) -> None:
    """Each change is logged, although all of them happen within a minute."""
    async with (
        HostileReplica(json_ok) as replica,
        serving(configured(tmp_path, replica.url)) as process,
    ):
        for _ in range(3):
            replica.control.at[HEALTH] = says_500
            down = await process.next_event("replica down")
            assert down["why"] == "/health answered 500"
            del replica.control.at[HEALTH]
            assert (await process.next_event("replica up"))["level"] == "info"
        replica.control.at[HEALTH] = says_500
        await process.next_event("replica down")


@scenario
async def test_another_reason_of_the_same_replica_is_logged(tmp_path: Path) -> None:
    """An engine that asks for a key, and another engine that lists no models."""
    async with HostileReplica(json_ok) as replica:
        replica.control.at[MODELS] = says_401
        async with serving(configured(tmp_path, replica.url)) as process:
            said = [e for e in process.events if e["message"] == "replica lists no models"]
            found = said[0] if said else await process.next_event("replica lists no models")
            assert found["why"].startswith("/v1/models answered 401: the engine does not accept")
            replica.control.at[MODELS] = lambda connection: connection.send(response(404))
            found = await process.next_event("replica lists no models")
            assert found["why"] == "/v1/models answered 404"


@scenario
async def test_a_renamed_access_log_is_opened_again_by_sighup(tmp_path: Path) -> None:
    """Also if the configuration has become invalid."""
    async with HostileReplica(json_ok) as replica:
        log, old = tmp_path / "access.log", tmp_path / "access.log.1"
        more = f"access_log: {{path: {log}, flush: 10ms, iso_time: true}}\n"
        config = configured(tmp_path, replica.url, more=more)

        def lines(path: Path) -> list[dict[str, Any]]:
            text = path.read_text() if path.exists() else ""
            return [json.loads(line) for line in text.splitlines()]

        async with serving(config) as process:
            for message in ("reloaded", "reload refused"):
                assert await ask(process) == 200
                await eventually(lambda: len(lines(log)) == 1, "a line")
                log.rename(old)
                if message == "reload refused":
                    config.write_text("nonsense: 1\n")
                process.signal(signal.SIGHUP)
                await process.next_event(message)
                await eventually(log.exists, "the new file")
                assert len(lines(old)) == 1
            assert await ask(process) == 200
            await eventually(lambda: len(lines(log)) == 1, "a line in the new file")
            (line,) = lines(log)
            assert line["time"].endswith("Z")
            assert line["ts"] > 0


@scenario
async def test_a_reload_says_what_changed(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("one")
    more = f"upstream: {{token_file: {token}}}\n"
    async with (
        HostileReplica(json_ok) as first,
        HostileReplica(json_ok) as second,
        serving(configured(tmp_path, first.url, more=more)) as process,
    ):
        process.signal(signal.SIGHUP)
        assert (await process.next_event("reloaded"))["changed"] == []
        token.write_text("two")
        routing = "routing: {policy: p2c}\nqueue: {limits: {flow: 7}}\n"
        configured(tmp_path, second.url, more=more + routing)
        process.signal(signal.SIGHUP)
        changed = (await process.next_event("reloaded"))["changed"]
        ids = [each.url.removeprefix("http://") for each in (first, second)]
        assert f"replicas {ids[1]} added" in changed
        assert f"replicas {ids[0]} removed" in changed
        assert "routing.policy: kv_aware -> p2c" in changed
        assert "queue.limits.flow: 10000 -> 7" in changed
        assert "the token for replicas changed" in changed
        assert "two" not in json.dumps(changed)


@scenario
async def test_the_lowest_level_is_a_setting_that_a_reload_changes(tmp_path: Path) -> None:
    nowhere = "http://127.0.0.1:9"
    config = configured(tmp_path, nowhere, more="log_level: warning\n")
    async with serving(config) as process:
        assert {event["level"] for event in process.events} == {"warning"}
        configured(tmp_path, nowhere, more="log_level: info\n")
        process.signal(signal.SIGHUP)
        assert (await process.next_event("reloaded"))["changed"] == ["log_level: warning -> info"]


def test_the_lowest_level_is_a_flag(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["serve", "--replica", "http://a:1", "--print-config", "--log-level"]
    assert main([*words, "error"]) == 0
    assert "\nlog_level: error\n" in capsys.readouterr().out
    assert main([*words, "loud"]) == 2
    assert "log_level: " in capsys.readouterr().err
