"""A blocked log sink: lines are dropped and counted, and requests continue."""

import os
import tempfile
from pathlib import Path

from tests.harness.behaviours import json_ok
from tests.harness.messages import chat
from tests.harness.replica import eventually
from tests.harness.running import Router, open_files, routed, running, scenario


@scenario
async def test_requests_go_on() -> None:
    with tempfile.TemporaryDirectory(prefix="hedgerow-test-") as folder:
        pipe = Path(folder) / "pipe"
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # the pipe is never read
        try:
            log = {"path": str(pipe), "queue": 4096}
            async with running(json_ok, access_log=log) as router:
                client = await router.client()
                for _ in range(1500):
                    await client.send(chat())
                    assert (await client.recv_response()).status == 200
        finally:
            os.close(reader)
        # The writer's thread stood in a write, which fails now.
        await eventually(lambda: str(pipe) not in str(open_files().values()), "a closed pipe")


@routed(json_ok, access_log={"path": "/dev/full"})
async def test_a_full_disk(router: Router) -> None:
    for _ in range(20):
        assert (await router.ask(chat())).status == 200
