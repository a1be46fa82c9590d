"""The batch server beside other parts of the router: a handover to a new process, and budgets."""

import asyncio
from pathlib import Path

import pytest

from tests.addons.batches.app.helpers import open_door, results, sdk, submit, until
from tests.addons.batches.lines import numbered
from tests.addons.needed import needs
from tests.app.tenants.acme import keys, tells
from tests.harness.messages import DONE, LAST_CHUNK, SSE_HEAD, chat, chunk, token
from tests.harness.replica import ReplicaConnection, eventually
from tests.harness.running import scenario


def test_a_handover_goes_on_if_the_folder_of_batches_is_not_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def behave(connection: ReplicaConnection) -> None:
        await connection.recv_request()
        await connection.send(SSE_HEAD, chunk(token("a")))
        await withdrawn.wait()
        await connection.send(chunk(token("b", "stop")), chunk(DONE), LAST_CHUNK)
        await connection.recv_request()

    def withdraw(folder: Path) -> None:
        loop.call_soon_threadsafe(withdrawn.set)
        raise OSError("the disk is gone")

    withdrawn = asyncio.Event()

    @scenario
    async def story() -> None:
        nonlocal loop
        loop = asyncio.get_running_loop()
        async with open_door(tmp_path, behave) as router:
            client = await router.send(chat(stream=True))
            await client.recv_until(b"data:")
            with monkeypatch.context() as broken:
                broken.setattr("router.addons.batches.server.withdraw", withdraw)
                app = router.app
                app.draining.hand_over(app.parts, app.servers, ("listen",))
                assert (await client.recv_response()).complete
                client.close()
                await router.app.draining.done.wait()

    loop: asyncio.AbstractEventLoop
    story()


@needs("usage")
@scenario
async def test_the_lines_of_a_batch_use_the_budget_of_their_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("router.addons.batches.run.concurrency_window.PAUSE_MAX_S", 0.05)
    rules = keys(tmp_path, tokens_per_day=1)
    async with (
        open_door(tmp_path, tells, keys=rules) as router,
        sdk(router, "acme-key") as client,
    ):
        batch = await submit(client, numbered(3))
        await eventually(
            lambda: any(line["reason"] == "insufficient_quota" for line in router.lines()),
            "a line is refused",
        )
        assert len(router.replica.requests) >= 1
        seen = await client.batches.retrieve(batch.id)
        # The other lines wait until the budget renews; they have not failed.
        assert (seen.status, seen.request_counts.failed) == ("in_progress", 0)  # type: ignore[union-attr]
        keys(tmp_path, tokens_per_day=1e6)
        await router.app.reload()
        done = await until(client, batch.id)
        assert len(await results(client, done)) == 3
