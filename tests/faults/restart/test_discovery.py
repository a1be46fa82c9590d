"""A restart of a router whose replicas come from a file: the new process reads the file itself."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.app.discovery.test_files import Engines, write
from tests.faults.restart.helpers import IMPATIENT, Restarting, restarting
from tests.harness.behaviours import chat_either
from tests.harness.client import RawClient
from tests.harness.messages import request
from tests.harness.replica import HostileReplica
from tests.harness.running import long_scenario


@asynccontextmanager
async def discovering(
    tmp_path: Path, file: Path, **serve: Any
) -> AsyncIterator[tuple[Restarting, list[HostileReplica]]]:
    """A router with one replica in its configuration, and two in `file`."""
    rule = f"discovery: {{files: ['{file}'], interval: 0.02, timeout: 0.5}}\n"
    async with Engines(chat_either, chat_either) as (a, b):
        write(file, {"url": a.url, "id": "a"}, {"url": b.url, "id": "b"})
        async with restarting(tmp_path, extra=rule, **serve) as one:
            yield one, [a, b]


async def admin(one: Restarting, method: str, path: str) -> Any:
    client = await RawClient.connect(one.router.admin_port)
    try:
        await client.send(request(path, "Connection: close", method=method))
        return (await client.recv_response(method)).json()
    finally:
        client.close()


async def states(one: Restarting) -> dict[str, str]:
    shown = await admin(one, "GET", "/replicas")
    return {each["id"]: each["state"] for each in shown}


@long_scenario
async def test_the_new_process_has_the_members_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "replicas.json"
    async with discovering(tmp_path, file) as (one, (a, b)):
        own = f"127.0.0.1:{one.hostile.port}"
        await admin(one, "POST", f"/replicas/{own}/cordon")
        await admin(one, "POST", "/replicas/b/cordon")
        assert await states(one) == {own: "cordoned", "a": "ready", "b": "cordoned"}
        assert (await one.router.restart())["message"] == "restarted"
        assert await states(one) == {own: "cordoned", "a": "ready", "b": "cordoned"}
        assert (await one.ask()).status == 200
        assert [r.target for r in a.requests].count("/v1/chat/completions") == 1
        await admin(one, "POST", "/replicas/b/uncordon")
        await admin(one, "DELETE", "/replicas/a")
        assert (await one.router.restart())["message"] == "restarted"
        assert await states(one) == {own: "cordoned", "b": "ready"}
        assert (await one.ask()).status == 200
        assert [r.target for r in b.requests].count("/v1/chat/completions") == 1


@long_scenario
async def test_a_source_that_fails_for_the_new_process(tmp_path: Path) -> None:
    """The new process would serve with a part of the fleet, so the old one goes on."""
    file = tmp_path / "replicas.json"
    async with discovering(tmp_path, file, program=IMPATIENT) as (one, _):
        text = file.read_text()
        file.write_text("[")
        event = await one.router.restart()
        assert event["message"] == "restart failed"
        assert f"discovery: file:{file}: no answer" in event["why"]
        assert set((await states(one)).values()) == {"ready"}
        assert (await one.ask()).status == 200
        file.write_text(text)
        assert (await one.router.restart())["message"] == "restarted"
        assert len(await states(one)) == 3
