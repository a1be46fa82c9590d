"""A replaced access log is forgotten when its last lines are written or lost; the count remains."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from router.observe.log.access_log import AccessLog, ReplacedLogs
from router.observe.log.record import Record
from tests.harness.replica import eventually


def record(path: str = "/") -> Record:
    return Record(0.0, "id", "127.0.0.1", "GET", path, "other", None, False, 200, "ok")


async def closed(path: str, lines: int) -> AccessLog:
    log = AccessLog(path, flush_s=60.0)
    for _ in range(lines):
        log.write(record())
    log.close(timeout_s=0)
    return log


def test_logs_that_have_ended_are_forgotten_and_their_lost_lines_are_counted(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        logs = ReplacedLogs()
        for number in (1, 2, 3):
            logs.add(await closed("/dev/full", 2))
            logs.add(await closed(str(tmp_path / "log"), 2))
            logs.add(await closed("", 2))
            lost = 2 * number
            await eventually(lambda n=lost: (logs.dropped, len(logs)) == (n, 0), "forgotten")  # type: ignore[misc]
        assert (logs.dropped, len(logs)) == (6, 0)
        assert len((tmp_path / "log").read_text().splitlines()) == 6

    asyncio.run(story())


def test_a_log_that_still_writes_is_kept(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    async def story() -> None:
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        logs = ReplacedLogs()
        logs.add(await closed(str(pipe), 2000))  # more than the pipe has room for
        try:
            assert (logs.dropped, len(logs)) == (0, 1)
        finally:
            os.close(reader)
        await eventually(lambda: logs.dropped > 0 and not len(logs), "the write has failed")

    asyncio.run(story())
