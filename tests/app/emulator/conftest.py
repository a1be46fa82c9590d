"""Emulated engines in separate processes with small limits, checked to be idle before each test.

`fleet` models time, so that a test can act while a request runs; `quick` answers at once.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import httpx
import pytest

from router.app.emulated_fleet import EmulatedFleet

SHORT_CHAT = [{"role": "user", "content": "Tell me of the fox."}]
OPTIONS = ("--max-num-seqs=2", "--max-model-len=2048", "--num-blocks=256", "--block-size=16")


class Fleet:
    """Operations of tests on a fleet, over real sockets."""

    def __init__(self, urls: list[str]) -> None:
        self.urls = urls
        self.url = urls[0]
        self.http = httpx.Client(timeout=20.0)

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.http.get(self.url + path, **more)

    def post(self, path: str, **more: Any) -> httpx.Response:
        return self.http.post(self.url + path, **more)

    def chat(self, **body: object) -> httpx.Response:
        """Ask for a chat completion."""
        return self.post("/v1/chat/completions", json={"messages": SHORT_CHAT, **body})

    def state(self, replica: int = 0) -> dict[str, Any]:
        state: dict[str, Any] = self.http.get(f"{self.urls[replica]}/emulator/state").json()
        return state

    def faults(self, **faults: object) -> httpx.Response:
        return self.post("/emulator/faults", json=faults)

    def metric(self, name: str) -> float:
        """One sample of the first engine's metrics, named as in the text up to its value."""
        for line in self.http.get(f"{self.url}/metrics").text.splitlines():
            sample, _, value = line.rpartition(" ")
            if sample == name or sample.partition("{")[0] == name:
                return float(value)
        raise KeyError(name)

    def until(self, true: Callable[[], bool], what: str) -> None:
        """Wait until a condition holds; fail after ten seconds."""
        deadline = time.monotonic() + 10.0
        while not true():
            assert time.monotonic() < deadline, f"still not: {what}"
            time.sleep(0.005)


def started(*options: str, sizes: Sequence[str] = OPTIONS) -> Iterator[Fleet]:
    # Not uvloop: its `close` can wait for ever for a handle of a child process that has ended.
    with asyncio.Runner() as runner:
        child = EmulatedFleet(2, model="tiny", options=[*sizes, *options])
        fleet = Fleet(runner.run(child.start()))
        yield fleet
        fleet.http.close()
        runner.run(child.stop())


def checked(fleet: Fleet) -> Iterator[Fleet]:
    yield fleet
    for index, url in enumerate(fleet.urls):
        fleet.http.delete(f"{url}/emulator/faults")

        def is_empty(index: int = index) -> bool:
            state = fleet.state(index)
            return not (state["running"] or state["waiting"] or state["kv_blocks_used"])

        fleet.until(is_empty, f"engine {index} empty after the test")


@pytest.fixture(scope="session")
def _fleet() -> Iterator[Fleet]:
    yield from started()


@pytest.fixture(scope="session")
def _quick() -> Iterator[Fleet]:
    yield from started("--profile=instant")


@pytest.fixture
def fleet(_fleet: Fleet) -> Iterator[Fleet]:
    yield from checked(_fleet)


@pytest.fixture
def quick(_quick: Fleet) -> Iterator[Fleet]:
    yield from checked(_quick)
