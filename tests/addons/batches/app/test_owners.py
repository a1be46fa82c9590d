"""Two tenants: neither sees the other's objects, and both get their share of the work."""

import asyncio
from collections.abc import Awaitable
from pathlib import Path

import openai
import pytest

from router.config.model import Keys
from tests.addons.batches.app.helpers import held, open_door, runner_of, sdk, submit, until
from tests.addons.batches.app.test_secrets import KEY, key, keys_file
from tests.addons.batches.lines import jsonl, line, numbered
from tests.harness.behaviours import json_ok
from tests.harness.messages import completion
from tests.harness.replica import ReplicaConnection, eventually
from tests.harness.running import scenario


@scenario
async def test_what_is_anothers_does_not_exist(tmp_path: Path) -> None:
    async with (
        open_door(tmp_path, json_ok) as router,
        sdk(router, "one") as mine,
        sdk(router, "two") as theirs,
    ):
        batch = await until(mine, (await submit(mine, numbered(2))).id)
        output = batch.output_file_id or ""
        attempts: list[Awaitable[object]] = [
            theirs.files.retrieve(batch.input_file_id),
            theirs.files.content(batch.input_file_id),
            theirs.files.content(output),
            theirs.files.delete(output),
            theirs.batches.retrieve(batch.id),
            theirs.batches.cancel(batch.id),
            theirs.batches.create(
                input_file_id=batch.input_file_id,
                endpoint="/v1/chat/completions",
                completion_window="24h",
            ),
        ]
        for attempt in attempts:
            with pytest.raises(openai.NotFoundError):
                await attempt
        assert (await theirs.files.list()).data == []
        assert (await theirs.batches.list()).data == []
        # A cursor of another owner gives no access.
        assert (await theirs.batches.list(after=batch.id)).data == []
        assert (await mine.files.content(output)).content


@scenario
async def test_so_many_batches_and_no_more(tmp_path: Path) -> None:
    go = asyncio.Event()

    async with (
        open_door(tmp_path, held(go), batches={"unfinished": 2}) as router,
        sdk(router, "one") as mine,
        sdk(router, "two") as theirs,
    ):
        first = [(await submit(mine, numbered(1))).id for _ in range(2)]
        with pytest.raises(openai.RateLimitError):
            await submit(mine, numbered(1))
        other = (await submit(theirs, numbered(1))).id
        go.set()
        for batch_id in first:
            await until(mine, batch_id)
        await until(theirs, other)
        await until(mine, (await submit(mine, numbered(1))).id)


@scenario
async def test_invented_credentials_do_not_lock_out_a_tenant_with_a_key(tmp_path: Path) -> None:
    go = asyncio.Event()

    keys = Keys(file=keys_file(tmp_path, key("acme", KEY)))
    rules = {"files_total": 100, "bytes_total": 1_000_000, "unfinished_total": 20}
    async with (
        open_door(tmp_path / "b", held(go), batches=rules, keys=keys) as router,
        sdk(router, KEY) as tenant,
    ):
        outcomes = []
        for number in range(20):
            async with sdk(router, f"invented-{number}") as client:
                try:
                    await submit(client, numbered(1))
                    outcomes.append("created")
                except openai.APIStatusError as err:
                    outcomes.append(str(err.code))
        # The part of the batches is used up first, then that of the files.
        assert outcomes == ["created"] * 2 + ["too_many_batches"] * 8 + ["storage_full"] * 10
        async with sdk(router, "invented-0") as client:
            with pytest.raises(openai.InternalServerError):
                await client.files.create(file=b"x" * 100_000, purpose="batch")
        await tenant.files.create(file=b"x" * 800_000, purpose="batch")
        batches = [(await submit(tenant, numbered(1))).id for _ in range(18)]
        with pytest.raises(openai.RateLimitError):
            await submit(tenant, numbered(1))
        go.set()
        for batch_id in batches:
            assert (await until(tenant, batch_id)).status == "completed"
        await eventually(
            lambda: not runner_of(router).running, "the batches of the others end, too"
        )


@scenario
async def test_a_small_batch_does_not_wait_for_a_large_one(tmp_path: Path) -> None:
    order: list[str] = []
    go = asyncio.Event()

    async def behave(connection: ReplicaConnection) -> None:
        while request := await connection.recv_request():
            order.append((request.header("authorization") or "")[-3:])
            await go.wait()
            await asyncio.sleep(0.002)
            await connection.send(completion())

    async with (
        open_door(tmp_path, behave, batches={"concurrency": 4}) as router,
        sdk(router, "one") as large,
        sdk(router, "two") as small,
    ):
        long = await submit(large, numbered(300))
        await until(large, long.id, "in_progress")
        short = await submit(small, jsonl(*(line(f"s{n}") for n in range(20))))
        await until(small, short.id, "in_progress")
        go.set()
        await until(small, short.id)
        begun = order.index("two")
        last = len(order) - 1 - order[::-1].index("two")
        # Round robin: while the twenty lines of one batch ran, about as many lines of the batch of
        # three hundred ran.
        assert order[begun : last + 1].count("one") <= 30
        assert (await large.batches.retrieve(long.id)).status == "in_progress"
        await until(large, long.id)
