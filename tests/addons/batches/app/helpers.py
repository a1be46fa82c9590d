"""A router with the batch server enabled, and the SDK as its client."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI
from openai.types import Batch

from router.addons.batches.run.runner import Runner
from router.config.model import Batches
from tests.addons.batches.lines import CHAT
from tests.harness.behaviours import answer_after
from tests.harness.messages import completion
from tests.harness.replica import Behaviour
from tests.harness.running import Router, running

OVER = ("completed", "failed", "expired", "cancelled")


def held(go: asyncio.Event) -> Behaviour:
    """A replica that answers its requests once `go` is set."""
    return answer_after(go, completion())


def runner_of(router: Router) -> Runner:
    """The runner of the router's batch server."""
    runner = router.app.parts.addons["batches"].runner
    assert isinstance(runner, Runner)
    return runner


@asynccontextmanager
async def open_door(
    folder: Path, *behaviours: Behaviour | str, batches: dict[str, Any] | None = None, **config: Any
) -> AsyncIterator[Router]:
    """A running router that keeps its batches in `folder`."""
    rules = Batches(**{"enabled": True, "folder": str(folder), "disk_free": 0, **(batches or {})})
    async with running(*behaviours, batches=rules, **config) as router:
        yield router
        batch_server = router.app.parts.addons.get("batches")
        if (
            batch_server is not None
            and batch_server.runner is not None
            and not batch_server.runner.running
        ):
            assert batch_server.runner.lines.held == 0, "bytes of lines that are over"


@asynccontextmanager
async def sdk(router: Router, key: str = "key-1") -> AsyncIterator[AsyncOpenAI]:
    url = f"http://127.0.0.1:{router.port}/v1"
    async with AsyncOpenAI(base_url=url, api_key=key, max_retries=0, timeout=20) as client:
        yield client


async def submit(client: AsyncOpenAI, data: bytes, **fields: Any) -> Batch:
    """Upload a file and make a batch of it."""
    file = await client.files.create(file=("in.jsonl", data), purpose="batch")
    return await client.batches.create(
        **{
            "input_file_id": file.id,
            "endpoint": CHAT,
            "completion_window": "24h",
            **fields,
        }
    )


async def until(client: AsyncOpenAI, batch_id: str, *statuses: str) -> Batch:
    """Poll until the batch has one of these statuses (default: finished)."""
    wanted = statuses or OVER
    async with asyncio.timeout(30):
        while (batch := await client.batches.retrieve(batch_id)).status not in wanted:
            assert batch.status not in OVER, batch
            await asyncio.sleep(0.02)
    return batch


async def records(client: AsyncOpenAI, file_id: str | None) -> list[dict[str, Any]]:
    """The lines of a result file; none if there is no file."""
    if file_id is None:
        return []
    content = (await client.files.content(file_id)).content
    return [json.loads(text) for text in content.splitlines()]


async def results(client: AsyncOpenAI, batch: Batch) -> dict[str, dict[str, Any]]:
    """All results of a batch by custom_id; fails if one occurs twice."""
    found = await records(client, batch.output_file_id)
    found += await records(client, batch.error_file_id)
    by_id = {record["custom_id"]: record for record in found}
    assert len(by_id) == len(found), "a line has two results"
    return by_id
