"""The log lines of replicas: a replica that flaps is bounded, and its last state is logged."""

import asyncio
import logging
from typing import Any

import pytest

from router.app.fleet_log import LINES_MAX, FleetLog
from router.config.model import Health as Rules, Replica as Config
from router.fleet.replica import Replica


def replica(name: str) -> Replica:
    return Replica(Config(url=f"http://{name}:1", id=name), Rules(), None)


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, dict[str, Any]]]:
    return [(record.getMessage(), vars(record)["fields"]) for record in caplog.records]


def flap(log: FleetLog, flapping: Replica, times: int) -> None:
    for _ in range(times):
        flapping.health.up = not flapping.health.up
        flapping.health.why_down = "" if flapping.health.up else "connection refused"
        log.happened("up" if flapping.health.up else "down", flapping)


def test_a_flapping_replica_has_few_lines_and_the_last_is_its_state(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    async def story() -> None:
        flapping, calm = replica("a"), replica("b")
        log = FleetLog({"a": flapping, "b": calm}, asyncio.get_running_loop(), window_s=0.01)
        flap(log, flapping, 1_001)
        log.happened("up", calm)
        assert len(caplog.records) == LINES_MAX + 1
        while len(caplog.records) == LINES_MAX + 1:  # The window ends.
            await asyncio.sleep(0.005)
        assert lines(caplog)[LINES_MAX + 1 :] == [
            (
                "replica down",
                {"replica": "a", "why": "connection refused", "kept_back": 1_001 - LINES_MAX},
            )
        ]
        caplog.clear()
        flap(log, flapping, 1)  # The next window.
        assert [message for message, _ in lines(caplog)] == ["replica up"]
        log.close()
        assert len(caplog.records) == 1

    asyncio.run(story())


@pytest.mark.parametrize(
    ("what", "level"),
    [
        *((what, logging.INFO) for what in ("up", "half_open", "recovered", "awake")),
        *((what, logging.WARNING) for what in ("down", "ejected", "suspect", "asleep")),
    ],
)
def test_a_recovery_is_no_warning(caplog: pytest.LogCaptureFixture, what: str, level: int) -> None:
    caplog.set_level(logging.INFO)

    async def story() -> None:
        one = replica("a")
        log = FleetLog({"a": one}, asyncio.get_running_loop())
        log.happened(what, one)
        log.close()
        assert [record.levelno for record in caplog.records] == [level]

    asyncio.run(story())


def test_the_end_of_the_process_ends_the_window(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        flapping = replica("a")
        log = FleetLog({"a": flapping}, asyncio.get_running_loop())
        flap(log, flapping, LINES_MAX + 2)
        caplog.clear()
        log.close()
        assert [message for message, _ in lines(caplog)] == ["replica ready"]

    asyncio.run(story())


def test_a_replica_that_has_left_is_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        gone = replica("a")
        fleet = {"a": gone}
        log = FleetLog(fleet, asyncio.get_running_loop())
        flap(log, gone, LINES_MAX + 2)
        del fleet["a"]
        log.fleet_changed(frozenset())
        assert not log._events
        caplog.clear()
        log.close()
        assert not caplog.records

    asyncio.run(story())
