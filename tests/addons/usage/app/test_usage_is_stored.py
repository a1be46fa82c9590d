"""The usage of a running router survives restarts, and problems with its file."""

import asyncio
import csv
import resource
import signal
import sqlite3
import threading
import time
from pathlib import Path

import pytest

from router.addons.usage import writer as usage_writer
from router.core.errors import Reason
from router.core.periods import date_of, day_of
from tests.addons.usage.app.helpers import addon_of, stored, used, writer_of
from tests.app.pages import page
from tests.app.tenants.acme import ACME, USED, keys, tells
from tests.faults.process.metrics import number
from tests.harness import kit

OFTEN_S = 0.02


async def requests(router: kit.Router, tenant: str = "acme") -> int:
    told = await page(router, "/usage")
    return sum(each["requests"] for each in told["tenants"] if each["tenant"] == tenant)


def in_file(folder: Path) -> int:
    """The number of requests in the file."""
    db = sqlite3.connect(folder / "usage.db")
    try:
        return int(db.execute("SELECT TOTAL(requests) FROM usage").fetchone()[0])
    finally:
        db.close()


@kit.scenario
async def test_usage_and_budgets_survive_a_restart(tmp_path: Path) -> None:
    rules = keys(tmp_path, tokens_per_month=2 * USED)
    for restart in range(2):
        async with kit.running(tells, keys=rules, usage=stored(tmp_path)) as router:
            assert await requests(router) == restart
            assert (await router.ask(kit.chat(ACME), "POST")).status == 200
    async with kit.running(tells, keys=rules, usage=stored(tmp_path)) as router:
        kit.assert_error(await router.ask(kit.chat(ACME), "POST"), Reason.INSUFFICIENT_QUOTA)
        told = await page(router, "/usage")
        (acme,) = told["tenants"]
        assert acme["requests"] == 3
        assert acme["budgets"]["tokens_per_month"]["used"] == 2 * USED
        assert told["stored"] is True
        assert told["since"] == day_of(time.time()) * 86400


@kit.scenario
async def test_a_budget_that_a_reload_adds_counts_what_the_file_has(tmp_path: Path) -> None:
    async with kit.running(tells, keys=keys(tmp_path), usage=stored(tmp_path)) as router:
        assert (await router.ask(kit.chat(ACME), "POST")).status == 200
    async with kit.running(tells, keys=keys(tmp_path), usage=stored(tmp_path)) as router:
        keys(tmp_path, tokens_per_month=USED)
        await router.app.reload()
        kit.assert_error(await router.ask(kit.chat(ACME), "POST"), Reason.INSUFFICIENT_QUOTA)


@kit.scenario
async def test_two_routers_of_one_file_share_usage_and_budgets(tmp_path: Path) -> None:
    """As in a restart: the new process begins while the old process still serves."""
    rules, usage = keys(tmp_path, tokens_per_day=3 * USED), stored(tmp_path)
    async with (
        kit.running(tells, keys=rules, usage=usage) as old,
        kit.running(tells, keys=rules, usage=usage) as new,
    ):
        for router in (old, new, old):
            assert (await router.ask(kit.chat(ACME), "POST")).status == 200
        # GET /usage writes and reads the file.
        assert [await requests(router) for router in (old, new, old)] == [2, 3, 3]
        for router in (new, old):
            assert await used(router, "tokens_per_day") == 3 * USED
        for router in (new, old):
            kit.assert_error(await router.ask(kit.chat(ACME), "POST"), Reason.INSUFFICIENT_QUOTA)
    assert in_file(tmp_path) == 5


@kit.scenario
async def test_csv_has_a_row_for_each_day_and_class(tmp_path: Path) -> None:
    async with kit.running(tells, keys=keys(tmp_path), usage=stored(tmp_path)) as router:
        await router.ask(kit.chat(ACME, "x-priority: low"), "POST")
        await router.ask(kit.chat(), "POST")
        today = day_of(time.time())
        answer = await router.admin(f"/usage?format=csv&from={date_of(today - 1)}")
        assert answer.header("content-type") == "text/csv; charset=utf-8"
        rows = list(csv.DictReader(answer.body.decode().splitlines()))
        assert [(row["tenant"], row["class"]) for row in rows] == [
            ("(none)", "normal"),
            ("acme", "low"),
        ]
        assert rows[1]["day"] in (date_of(today), date_of(today + 1))
        assert (rows[1]["requests"], rows[1]["prompt_tokens"]) == ("1", "1000")
        assert (rows[1]["cost"], rows[1]["unpriced_tokens"]) == ("", "1100")
        early = await router.admin(f"/usage?to={date_of(today - 1)}")
        assert early.json()["tenants"] == []


@kit.scenario
async def test_without_a_file_days_are_not_known(tmp_path: Path) -> None:
    async with kit.running(tells, keys=keys(tmp_path)) as router:
        await router.ask(kit.chat(ACME), "POST")
        told = await page(router, "/usage")
        assert told["stored"] is False
        assert "problem" not in told
        for query in ("from=2026-01-01", "to=2026-01-01&format=csv"):
            answer = await router.admin(f"/usage?{query}")
            assert (answer.status, answer.json()["error"]["code"]) == (409, "usage_not_stored")
        rows = (await router.admin("/usage?format=csv")).body.decode().splitlines()
        assert rows[1:] == [",acme,normal,1,1000,600,100,0,,1100"]
        assert addon_of(router).pending.take() == {}


@pytest.mark.parametrize("problem", ["corrupt", "locked", "folder gone", "corrupt later"])
@kit.scenario
async def test_a_file_that_cannot_be_used_stops_no_request(tmp_path: Path, problem: str) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    path = folder / "usage.db"
    rules = keys(tmp_path, tokens_per_day=2 * USED)
    lock: sqlite3.Connection | None = None
    if problem == "corrupt":
        path.write_bytes(b"x" * 5000)
    async with kit.running(tells, keys=rules, usage=stored(folder)) as router:
        writer = writer_of(router)
        if problem == "locked":
            lock = sqlite3.connect(path, isolation_level=None)
            lock.execute("BEGIN EXCLUSIVE")
        elif problem == "folder gone":
            folder.rename(tmp_path / "away")
        elif problem == "corrupt later":
            await writer.flush()
            for name in ("usage.db", "usage.db-wal", "usage.db-shm"):
                (folder / name).unlink()
            path.write_bytes(b"x" * 5000)
        assert (await router.ask(kit.chat(ACME), "POST")).status == 200
        told = await page(router, "/usage")
        assert (told["stored"], told["tenants"][0]["requests"]) == (False, 1)
        assert told["problem"]
        failed = await number(router.app.admin_port, "hedgerow_usage_write_errors_total")
        assert failed >= 1
        # The budget still counts, in memory.
        assert (await router.ask(kit.chat(ACME), "POST")).status == 200
        kit.assert_error(await router.ask(kit.chat(ACME), "POST"), Reason.INSUFFICIENT_QUOTA)
        # When the file can be used again, nothing is lost or counted twice.
        if lock is not None:
            lock.execute("ROLLBACK")
            lock.close()
        elif problem == "folder gone":
            (tmp_path / "away").rename(folder)
        else:
            path.unlink()
        assert await requests(router) == 3
        assert (await page(router, "/usage"))["stored"] is True
        kit.assert_error(await router.ask(kit.chat(ACME), "POST"), Reason.INSUFFICIENT_QUOTA)
    assert in_file(folder) == 4


@kit.scenario
async def test_a_cancelled_write_is_not_repeated(tmp_path: Path) -> None:
    async with kit.running(tells, keys=keys(tmp_path), usage=stored(tmp_path)) as router:
        writer = writer_of(router)
        for turns in range(5):
            await router.ask(kit.chat(ACME), "POST")
            task = asyncio.ensure_future(writer.flush())
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert await requests(router) == 5


@pytest.mark.parametrize("is_writing", [False, True], ids=["idle", "while it writes"])
@kit.scenario
async def test_a_disk_that_does_not_answer_does_not_prevent_the_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_writing: bool
) -> None:
    monkeypatch.setattr(usage_writer, "STOP_S", 0.1)
    answers = threading.Event()
    try:
        async with kit.running(tells, keys=keys(tmp_path), usage=stored(tmp_path)) as router:
            writer = writer_of(router)
            assert (await router.ask(kit.chat(ACME), "POST")).status == 200
            # From now on, the thread of the file is busy.
            blocked = asyncio.ensure_future(writer._worker(answers.wait))
            await asyncio.sleep(0)
            flush = asyncio.ensure_future(writer.flush()) if is_writing else None
        assert not blocked.done()
    finally:
        answers.set()
    if flush is not None:
        assert isinstance(
            (await asyncio.gather(flush, return_exceptions=True))[0], asyncio.CancelledError
        )
    await blocked
    # The thread ends its work if the disk answers before the process has ended.
    await kit.eventually(lambda: "usage.db" not in str(kit.open_files().values()), "a closed file")
    assert in_file(tmp_path) == 1


@kit.long_scenario
async def test_a_killed_process_loses_only_the_last_interval(tmp_path: Path) -> None:
    async with kit.HostileReplica(tells) as replica:
        config = tmp_path / "config.yaml"
        extra = f"usage: {{file: '{tmp_path}/usage.db', flush: {OFTEN_S}s}}\n"
        kit.write_config(config, replica.url, extra=extra)
        async with kit.serving(config) as process:
            client = await kit.RawClient.connect(process.port)
            for _ in range(3):
                await client.send(kit.chat())
                assert (await client.recv_response("POST")).status == 200
            await kit.eventually(lambda: in_file(tmp_path) == 3, "the usage is in the file")
            process.child.send_signal(signal.SIGKILL)
            await process.child.wait()
            client.close()
        async with kit.serving(config) as process:
            # As on a full disk: no file may grow.
            resource.prlimit(process.child.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
            client = await kit.RawClient.connect(process.port)
            for _ in range(2):
                await client.send(kit.chat())
                assert (await client.recv_response("POST")).status == 200
            await asyncio.sleep(5 * OFTEN_S)
            assert in_file(tmp_path) == 3
            unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            resource.prlimit(process.child.pid, resource.RLIMIT_FSIZE, unlimited)
            await kit.eventually(lambda: in_file(tmp_path) == 5, "all usage is in the file")
            client.close()
