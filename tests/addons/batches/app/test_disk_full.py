"""A full disk: refusals name the reason, and no accepted work is lost."""

import asyncio
import resource
from pathlib import Path

import openai
import pytest
from openai import AsyncOpenAI

from tests.addons.batches.app.helpers import held, open_door, results, runner_of, sdk, submit, until
from tests.addons.batches.lines import numbered
from tests.harness.behaviours import json_ok
from tests.harness.process import RouterProcess, serving, write_config
from tests.harness.replica import HostileReplica, eventually
from tests.harness.running import long_scenario, scenario

LINES = 50


def fill_disk(process: RouterProcess) -> None:
    """No file may grow any more: every write of the router fails as on a full disk (EFBIG)."""
    resource.prlimit(process.child.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))


def make_room(process: RouterProcess) -> None:
    limits = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    resource.prlimit(process.child.pid, resource.RLIMIT_FSIZE, limits)


@long_scenario
async def test_full_in_the_middle_of_a_batch(tmp_path: Path) -> None:
    go = asyncio.Event()

    replica = HostileReplica(held(go))
    replica.start()
    folder = tmp_path / "batches"
    config = tmp_path / "config.yaml"
    extra = f"batches: {{enabled: true, folder: '{folder}', disk_free: 0}}\n"
    write_config(config, replica.url, extra=extra)
    async with serving(config) as process:
        url = f"http://127.0.0.1:{process.port}/v1"
        async with AsyncOpenAI(base_url=url, api_key="k", max_retries=0, timeout=20) as client:
            batch = await submit(client, numbered(LINES))
            await eventually(lambda: bool(replica.requests), "lines are under way")
            files = set((folder / "files").iterdir())

            fill_disk(process)
            with pytest.raises(openai.InternalServerError) as refused:
                await client.files.create(file=b"x" * 100_000, purpose="batch")
            assert (refused.value.status_code, refused.value.code) == (507, "storage_full")
            with pytest.raises(openai.InternalServerError) as refused:
                await client.batches.create(
                    input_file_id=batch.input_file_id,
                    endpoint="/v1/chat/completions",
                    completion_window="24h",
                )
            assert refused.value.status_code in (500, 507)
            assert refused.value.code in ("storage_full", "storage_failed")
            with pytest.raises(openai.InternalServerError):
                await client.batches.cancel(batch.id)
            go.set()
            await process.next_event("batch results cannot be written")
            counts = (await client.batches.retrieve(batch.id)).request_counts
            assert counts is not None
            assert counts.completed == 0

            make_room(process)
            batch = await until(client, batch.id)
            assert batch.status == "completed"
            assert set(await results(client, batch)) == {f"r{n}" for n in range(LINES)}
            # Answers received while nothing could be written were kept, not requested again.
            assert len(replica.requests) == LINES
            assert [b.id async for b in client.batches.list()] == [batch.id]
            # The only new file is the output.
            assert len(set((folder / "files").iterdir()) - files) == 1
            await client.files.create(file=b"x" * 100_000, purpose="batch")
    await replica.stop()


@scenario
async def test_some_of_the_disk_stays_free(tmp_path: Path) -> None:
    async with (
        open_door(tmp_path, json_ok, batches={"disk_free": 1 << 60}) as router,
        sdk(router) as client,
    ):
        with pytest.raises(openai.InternalServerError) as refused:
            await client.files.create(file=numbered(1), purpose="batch")
        assert (refused.value.status_code, refused.value.code) == (507, "storage_full")
        assert list((tmp_path / "files").iterdir()) == []
        assert (await client.files.list()).data == []


@scenario
async def test_results_wait_until_enough_of_the_disk_is_free(tmp_path: Path) -> None:
    go = asyncio.Event()

    async with (
        open_door(tmp_path, held(go), batches={"concurrency": 4}) as router,
        sdk(router) as client,
    ):
        batch_server = router.app.parts.addons["batches"]
        assert batch_server._blobs is not None
        batch = await submit(client, numbered(LINES))
        await eventually(lambda: bool(router.replica.requests), "lines are under way")
        batch_server._blobs._least_free = 1 << 60
        go.set()
        recorder = runner_of(router).lines._recorder
        await eventually(lambda: recorder.is_stuck, "nothing is written any more")
        shown = (await client.batches.retrieve(batch.id)).request_counts
        assert shown is not None
        assert shown.completed == 0
        assert len(router.replica.requests) < LINES, "nothing more is sent meanwhile"
        batch_server._blobs._least_free = 0
        batch = await until(client, batch.id)
        assert set(await results(client, batch)) == {f"r{n}" for n in range(LINES)}
        assert len(router.replica.requests) == LINES
