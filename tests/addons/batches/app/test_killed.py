"""A router killed repeatedly during 10,000 lines: in the end every line has one result."""

import asyncio
import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from openai import AsyncOpenAI

from router.app.emulated_fleet import EmulatedFleet
from tests.addons.batches.app.helpers import records, results, submit, until
from tests.addons.batches.lines import jsonl, line
from tests.harness.process import RouterProcess, serving
from tests.harness.running import long_scenario

LINES = 10_000
KILLS = 5
MODEL = "emulated"


@asynccontextmanager
async def router_before(urls: list[str], folder: Path) -> AsyncIterator[RouterProcess]:
    config = folder / "config.yaml"
    config.write_text(
        "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\naccess_log: {path: ''}\n"
        "drain: {lame_duck: 0, grace: 1}\n"
        f"batches: {{enabled: true, folder: '{folder / 'batches'}', disk_free: 0}}\n"
        "replicas:\n" + "".join(f"  - url: {url}\n" for url in urls)
    )
    async with serving(config) as process:
        yield process


@asynccontextmanager
async def client_of(process: RouterProcess) -> AsyncIterator[AsyncOpenAI]:
    url = f"http://127.0.0.1:{process.port}/v1"
    async with AsyncOpenAI(base_url=url, api_key="k", max_retries=0, timeout=60) as client:
        yield client


async def done_so_far(client: AsyncOpenAI, batch_id: str) -> int:
    counts = (await client.batches.retrieve(batch_id)).request_counts
    assert counts is not None
    return counts.completed + counts.failed


@long_scenario
async def test_killed_in_the_middle_of_ten_thousand_lines(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # pytest shows the seed on failure
    rng = random.Random(seed)
    # The first kill is during validation, the others are at random moments of the work.
    kills = [0, *sorted(rng.sample(range(1, LINES * 9 // 10), KILLS - 1))]
    fleet = EmulatedFleet(2, MODEL, ["--speed", "200", "--max-num-seqs", "256"])
    urls = await fleet.start()
    try:
        # Every hundredth line is refused permanently, so that the error file is checked, too.
        data = jsonl(
            *(
                line(f"r{n}", model="nobody's" if n % 100 == 7 else MODEL, max_tokens=1)
                for n in range(LINES)
            )
        )
        batch_id = ""
        told = 0
        for count in kills:
            async with router_before(urls, tmp_path) as process, client_of(process) as client:
                if not batch_id:
                    batch_id = (await submit(client, data)).id
                assert await done_so_far(client, batch_id) >= told, "what was told is lost"
                told = await reach(client, batch_id, count)
                await asyncio.sleep(rng.random() * 0.05)
                process.signal(signal.SIGKILL)
                await process.exit_status()
        async with router_before(urls, tmp_path) as process, client_of(process) as client:
            async with asyncio.timeout(60):
                while (await client.batches.retrieve(batch_id)).status != "completed":
                    await asyncio.sleep(0.1)
            batch = await until(client, batch_id)
            counts = batch.request_counts
            assert counts is not None
            assert (counts.total, counts.completed, counts.failed) == (LINES, 9900, 100)
            assert set(await results(client, batch)) == {f"r{n}" for n in range(LINES)}
            good = await records(client, batch.output_file_id)
            assert len(good) == 9900
            assert all(record["response"]["body"]["choices"] for record in good)
            process.signal(signal.SIGTERM)
            assert await process.exit_status() == 0
    finally:
        await fleet.stop()


async def reach(client: AsyncOpenAI, batch_id: str, count: int) -> int:
    """Wait until at least `count` lines have a result, but not all; return how many have."""
    async with asyncio.timeout(60):
        while (done := await done_so_far(client, batch_id)) < count:
            await asyncio.sleep(0.02)
    assert done < LINES
    return done
