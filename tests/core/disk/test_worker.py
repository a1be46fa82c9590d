"""The worker calls its functions in order, and its end waits for them or leaves them behind."""

import asyncio
import subprocess
import sys
import threading

import pytest

from router.core.disk.worker import Worker
from tests.places import ROOT

HANGS = """
import asyncio, threading
from router.core.disk.worker import Worker

async def main():
    worker = Worker("hangs")
    task = asyncio.ensure_future(worker(threading.Event().wait))
    await asyncio.sleep(0)
    task.cancel()
    worker.abandon(print)

asyncio.run(main())
"""


def test_the_end_of_the_process_does_not_wait_for_a_function_that_hangs() -> None:
    subprocess.run([sys.executable, "-c", HANGS], check=True, timeout=30, cwd=ROOT)


def test_close_waits_for_all_functions() -> None:
    async def story() -> list[int]:
        worker, called = Worker("w"), list[int]()
        tasks = [asyncio.ensure_future(worker(called.append, n)) for n in range(5)]
        await asyncio.sleep(0)
        tasks[3].cancel()
        worker.close()
        worker.close()
        with pytest.raises(RuntimeError):
            await worker(called.append, 9)
        await asyncio.gather(*tasks, return_exceptions=True)
        return called

    assert asyncio.run(story()) == [0, 1, 2, 3, 4]


def test_a_worker_that_was_not_used_closes() -> None:
    Worker("w").close()
    assert "w" not in [thread.name for thread in threading.enumerate()]


def test_abandon_calls_the_last_function_after_the_others() -> None:
    async def story() -> None:
        worker, go, over = Worker("w"), threading.Event(), threading.Event()
        called: list[str] = []
        task = asyncio.ensure_future(worker(go.wait))
        await asyncio.sleep(0)
        worker.abandon(lambda: (called.append("last"), over.set()))
        assert not called
        go.set()
        assert await task
        assert await asyncio.to_thread(over.wait, 10)
        with pytest.raises(RuntimeError):
            await worker(called.append, "later")

    asyncio.run(story())


def test_errors_are_raised_and_the_thread_goes_on() -> None:
    async def story() -> None:
        worker = Worker("w")
        with pytest.raises(ZeroDivisionError):
            await worker(lambda: 1 // 0)
        assert await worker(lambda: 1) == 1
        worker.close()

    asyncio.run(story())
