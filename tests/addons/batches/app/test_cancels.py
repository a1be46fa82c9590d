"""Cancelling a batch before, during and after its lines are served; and the end of its completion
window.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from router.addons.batches.run import runner, sending
from router.addons.batches.store.store import Store
from tests.addons.batches.app.helpers import open_door, results, runner_of, sdk, submit, until
from tests.addons.batches.lines import numbered
from tests.harness.behaviours import json_ok
from tests.harness.messages import completion
from tests.harness.replica import ReplicaConnection, eventually
from tests.harness.running import scenario

FIRST = 30  # number of requests that are answered at once; the others hang


class Stalls:
    """A replica that answers the first requests and lets the others wait."""

    def __init__(self) -> None:
        self.answered = 0

    async def __call__(self, connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            if self.answered >= FIRST:
                continue
            self.answered += 1
            await connection.send(completion())


@scenario
async def test_cancelled_in_the_middle(tmp_path: Path) -> None:
    stalls = Stalls()
    async with open_door(tmp_path, stalls) as router, sdk(router) as client:
        batch = await submit(client, numbered(200))
        await eventually(lambda: len(router.replica.requests) > FIRST + 3, "some hang")
        async with asyncio.timeout(15):
            while not (counts := (await client.batches.retrieve(batch.id)).request_counts) or (
                counts.completed < FIRST
            ):
                await asyncio.sleep(0.01)
        answer = await client.batches.cancel(batch.id)
        assert answer.status in ("cancelling", "cancelled")
        assert (await client.batches.cancel(batch.id)).status in ("cancelling", "cancelled")
        batch = await until(client, batch.id)
        assert batch.status == "cancelled"
        assert batch.cancelled_at is not None
        found = await results(client, batch)
        assert set(found) == {f"r{n}" for n in range(200)}
        unanswered = [r for r in found.values() if r["response"] is None]
        assert {r["error"]["code"] for r in unanswered} == {"batch_cancelled"}
        assert len(unanswered) == 200 - FIRST
        # No request waits at the replica any more.
        await eventually(lambda: not router.app.census()["leases"], "the hanging ones are over")
        await eventually(
            lambda: "client_gone" in {entry["reason"] for entry in router.lines()}, "logged"
        )


@scenario
async def test_cancelled_at_once(tmp_path: Path) -> None:
    async with open_door(tmp_path, Stalls()) as router, sdk(router) as client:
        batch = await submit(client, numbered(5000))
        await client.batches.cancel(batch.id)
        batch = await until(client, batch.id)
        assert batch.status == "cancelled"


def defect(*args: object) -> NoReturn:
    raise ZeroDivisionError


@scenario
async def test_cancelled_after_a_defect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "outcome_of", defect)
    async with open_door(tmp_path, json_ok) as router, sdk(router) as client:
        batch = await submit(client, numbered(5))
        running = runner_of(router)
        await eventually(lambda: not running.running, "the end of the batch's task")
        assert (await client.batches.retrieve(batch.id)).status == "in_progress"
        await client.batches.cancel(batch.id)
        batch = await until(client, batch.id)
        assert batch.status == "cancelled"
        assert set(await results(client, batch)) == {f"r{n}" for n in range(5)}


@scenario
async def test_time_is_over_in_the_middle(tmp_path: Path) -> None:
    async with open_door(tmp_path, Stalls()) as router:
        async with sdk(router) as client:
            batch = await submit(client, numbered(100))
            await eventually(lambda: len(router.replica.requests) > FIRST + 3, "some hang")
        await router.app.stop()
    # The test moves the batch's deadline in the database; the next start finds the deadline
    # expired.
    store = Store(tmp_path / "batches.sqlite")
    store._db.execute("UPDATE batches SET expires_at = unixepoch() + 1")
    store.close()
    async with open_door(tmp_path, Stalls()) as router, sdk(router) as client:
        batch = await until(client, batch.id)
        assert batch.status == "expired"
        found = await results(client, batch)
        assert set(found) == {f"r{n}" for n in range(100)}
        codes = [r["error"]["code"] for r in found.values() if r["error"] is not None]
        assert set(codes) == {"batch_expired"}
        assert batch.request_counts is not None
        assert batch.request_counts.completed == 100 - len(codes) >= FIRST


@scenario
async def test_cancelled_during_a_step_with_a_defect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The defect occurs while the file is checked, after the client has cancelled the batch."""
    is_cancelled = False

    def late_defect(*args: object) -> Iterator[None]:
        while not is_cancelled:
            yield
        defect()

    monkeypatch.setattr(runner, "validate", late_defect)
    async with open_door(tmp_path, json_ok) as router, sdk(router) as client:
        batch = await submit(client, numbered(5))
        await client.batches.cancel(batch.id)
        is_cancelled = True
        assert (await until(client, batch.id)).status == "cancelled"
