"""The fleet as a process: ports, options, and its end in every case."""

import asyncio
import functools
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, ParamSpec

import httpx
import pytest
import uvloop

from router.app.emulated_fleet import EmulatedFleet, FleetError

P = ParamSpec("P")


def bounded(
    test: Callable[P, Coroutine[Any, Any, None]], run: Callable[..., None] = uvloop.run
) -> Callable[P, None]:
    """The async test, with a time limit."""

    @functools.wraps(test)
    def bounded_test(*args: P.args, **kwargs: P.kwargs) -> None:
        run(asyncio.wait_for(test(*args, **kwargs), 30))

    return bounded_test


@asynccontextmanager
async def emulating(count: int, *options: str) -> AsyncIterator[tuple[EmulatedFleet, list[str]]]:
    """A fleet with these options, and its URLs."""
    fleet = EmulatedFleet(count, options=options)
    try:
        yield fleet, await fleet.start()
    finally:
        await fleet.stop()


async def post(url: str, **body: object) -> httpx.Response:
    async with httpx.AsyncClient(timeout=20) as client:
        return await client.post(url + "/v1/completions", json={"prompt": "a", **body})


@bounded
async def test_it_starts_and_stops_with_streams_under_way() -> None:
    async with emulating(3, "--name", "unit") as (fleet, urls):
        assert len(set(urls)) == 3
        async with (
            httpx.AsyncClient(timeout=20) as client,
            client.stream(
                "POST",
                urls[2] + "/v1/completions",
                json={"prompt": "a", "stream": True, "max_tokens": 5000, "ignore_eos": True},
            ) as answer,
        ):
            assert answer.headers["x-emulated-replica"] == "unit-2"
            pid = fleet.pid
            assert pid is not None
            os.kill(pid, signal.SIGTERM)
            assert await fleet.wait() == 0
        await fleet.stop()  # it is stopped twice


async def starts_and_stops() -> None:
    async with emulating(1):
        pass


def test_plain_asyncio_can_drive_it_too() -> None:
    bounded(starts_and_stops, asyncio.run)()


@bounded
async def test_options_reach_every_engine() -> None:
    async with emulating(
        2,
        "--profile=instant",
        "--model=other",
        "--fault=status=500; replica=emulated-1",
        "--wait-first-token",
        "--scheduling-policy=fcfs",
        "--no-prefix-caching",
    ) as (_, (one, two)):
        answer = await post(one, model="other", stream=True, max_tokens=500, ignore_eos=True)
        assert answer.status_code == 200
        assert answer.text.count("data: {") == 500
        assert (await post(one, model="emulated")).status_code == 200
        assert (await post(two)).status_code == 500


@bounded
async def test_it_reports_the_endpoints_of_kv_events() -> None:
    async with emulating(2, "--kv-events", "--profile=instant") as (fleet, urls):
        async with httpx.AsyncClient(timeout=20) as client:
            answers = [(await client.get(url + "/kv_event_sources")).json() for url in urls]
        told = [(one["0"]["endpoint"], one["0"]["replay_endpoint"]) for one in answers]
        bound = list(zip(fleet.kv_events, fleet.kv_replays, strict=True))
        assert told == [tuple(a.replace("127.0.0.1", "*") for a in pair) for pair in bound]
        assert len({*fleet.kv_events, *fleet.kv_replays}) == 4


@bounded
async def test_zmq_is_not_even_imported_unless_events_are_asked_for() -> None:
    for options, is_loaded in (([], False), (["--kv-events"], True)):
        async with emulating(1, *options) as (fleet, _):
            with open(f"/proc/{fleet.pid}/maps") as maps:
                assert ("zmq" in maps.read()) == is_loaded


@bounded
async def test_response_heads_wait_for_the_first_token_if_configured() -> None:
    async with emulating(1, "--wait-first-token", "--fault=freeze") as (_, (url,)):
        async with httpx.AsyncClient(timeout=20) as client:
            asked = asyncio.create_task(post(url, stream=True))
            while (await client.get(url + "/emulator/state")).json()["waiting"] == 0:
                await asyncio.sleep(0.005)
            with pytest.raises(httpx.ReadTimeout):
                async with client.stream(
                    "POST",
                    url + "/v1/completions",
                    json={"prompt": "b", "stream": True},
                    timeout=0.1,
                ):
                    pass
            await client.delete(url + "/emulator/faults")
            answer = await asked
        assert answer.text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--max-model-len", "999999"], "cannot hold one request"),
        (["--max-num-seqs", "9000"], "max_num_batched_tokens"),
        (["--fault", "nonsense"], "nonsense"),
        (["--host", "192.0.2.1"], "cannot listen on 192.0.2.1"),
        (["--profile", "turbo"], "invalid choice"),
        (["--count", "0"], "at least 1"),
        (["--speed", "0"], "not above 0"),
        (["--kv-tokens", "10", "--num-blocks", "10"], "not allowed with"),
        (["--persona", "other"], "invalid choice"),
        (["--kv-events", "--persona", "trtllm"], "publishes no KV events"),
        (["--kv-events", "--kv-events-topic", "{x}"], "topic"),
    ],
)
def test_invalid_options_are_reported_before_any_port_is_opened(
    options: list[str], complaint: str
) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "router.lab.emulator", *options],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert complaint in ended.stderr


@bounded
async def test_a_fleet_that_does_not_come_up_is_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(FleetError, match="status 2"):
        await EmulatedFleet(1, options=["--fault=nonsense"]).start()
    assert "nonsense" in capfd.readouterr().err


def test_it_ends_when_its_parent_is_killed() -> None:
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            textwrap.dedent(
                """
                import asyncio, sys
                from router.app.emulated_fleet import EmulatedFleet

                async def main():
                    fleet = EmulatedFleet(1)
                    await fleet.start()
                    print(fleet.pid, flush=True)
                    await asyncio.Event().wait()

                asyncio.run(main())
                """
            ),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
    deadline = time.monotonic() + 10
    while _is_running(child):
        assert time.monotonic() < deadline, "the child outlives its parent"
        time.sleep(0.01)


def _is_running(pid: int) -> bool:
    """Whether the process runs; false for a process that has ended but was not reaped yet."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
