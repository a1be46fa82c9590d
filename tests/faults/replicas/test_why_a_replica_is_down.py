"""A replica that goes down: the log has the probe's result and what to do about it."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.faults.connections.test_name_does_not_resolve import NOWHERE
from tests.harness.behaviours import json_ok, until_closed
from tests.harness.control import HEALTH, Answer
from tests.harness.messages import response
from tests.harness.process import RouterProcess, serving
from tests.harness.replica import HostileReplica, ReplicaConnection
from tests.harness.running import scenario

FAST = "health: {interval: 0.1, timeout: 0.5, rise: 1, fall: 2}\n"


def config_of(folder: Path, url: str) -> Path:
    path = folder / "config.yaml"
    path.write_text(f"listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nreplicas: [{url}]\n{FAST}")
    return path


async def refuses(replica: HostileReplica) -> None:
    await replica.stop_listening()


def answers(path: str, answer: Answer) -> Callable[[HostileReplica], Awaitable[None]]:
    async def change(replica: HostileReplica) -> None:
        replica.control.at[path] = answer

    return change


async def says_500(connection: ReplicaConnection) -> None:
    await connection.send(response(500))


async def why_down(process: RouterProcess) -> str:
    return str((await process.next_event("replica down"))["why"])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (refuses, "connection refused"),
        (answers(HEALTH, says_500), "/health answered 500"),
        (answers(HEALTH, until_closed), "/health: no answer in time"),
    ],
    ids=["refused", "500", "timeout"],
)
@scenario
async def test_one_that_was_up(
    change: Callable[[HostileReplica], Awaitable[None]], why: str, tmp_path: Path
) -> None:
    async with (
        HostileReplica(json_ok) as replica,
        serving(config_of(tmp_path, replica.url)) as process,
    ):
        assert process.events[-1]["message"] == "ready"
        await change(replica)
        assert why in await why_down(process)


@scenario
async def test_one_whose_name_does_not_resolve(tmp_path: Path) -> None:
    async with serving(config_of(tmp_path, NOWHERE)) as process:
        (said,) = [event for event in process.events if "down" in event]
        assert said["message"] == "listening, and no replica is up"
        assert "its name does not resolve" in said["down"]
