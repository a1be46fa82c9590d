"""When the server counts as lost and as reached again, and what the tasks do. No sockets."""

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from router.addons.share import sharing, store
from router.addons.share.sharing import CALM_S, STEADY_S
from router.addons.share.store import PAUSE_S, TURN_S, StoreAddon
from router.config.model import Sharing
from tests.fleet.conftest import _closes_tables as _closes_tables
from tests.fleet.helpers import Table
from tests.harness.kit import scenario


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        for module in (sharing, store):
            monkeypatch.setattr(module, "monotonic", lambda: self.now)


def new_addon() -> StoreAddon:
    tenants = SimpleNamespace(used=None)
    dispatcher = SimpleNamespace(tenants=tenants)
    host: Any = SimpleNamespace(fleet=Table().fleet, queue=None, dispatcher=dispatcher, failed=None)
    return StoreAddon(host, Sharing(url="redis://nowhere"))


def seconds_until_found(addon: StoreAddon, clock: Clock) -> float:
    """How long own messages come back until the server counts as reached."""
    began = clock.now
    while not addon.is_reached:
        clock.now += 0.1
        addon._found(clock.now)
    return clock.now - began


def test_a_server_that_comes_and_goes_is_found_later_each_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    clock, addon = Clock(monkeypatch), new_addon()
    addon._found(clock.now)
    took = []
    for _ in range(5):
        addon.lost("TimeoutError")
        took.append(seconds_until_found(addon, clock))
    assert took == pytest.approx([STEADY_S, 3.2, 12.8, 51.2, CALM_S], abs=0.2)
    assert len(caplog.records) == 10
    clock.now += CALM_S + 1.0
    addon.lost("TimeoutError")
    assert seconds_until_found(addon, clock) == pytest.approx(STEADY_S, abs=0.2)


def test_attempts_that_fail_are_one_event(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock, addon = Clock(monkeypatch), new_addon()
    for _ in range(100):
        addon.lost("ConnectionError")
        clock.now += PAUSE_S
        addon._found(clock.now)  # An own message, before the connection fails again.
    assert (addon.failures, len(caplog.records), addon.is_reached) == (100, 1, False)


class Fails:
    """A client whose errors repeat what the server says, such as the password."""

    async def publish(self, *_: object) -> None:
        raise ValueError("open-sesame")

    async def aclose(self) -> None:
        raise RuntimeError("open-sesame")


@scenario
async def test_what_a_server_says_is_not_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    addon = new_addon()
    monkeypatch.setattr(store, "connection", lambda _: Fails())
    addon._tasks = [asyncio.ensure_future(addon._always(addon._publish))]
    await asyncio.sleep(0.01)
    await addon.stop()
    (record,) = caplog.records
    assert "open-sesame" not in str(vars(record))
    assert vars(record)["fields"] == {"problem": "ValueError"}


class Loses:
    """A client that loses one cancellation, as `asyncio.wait_for` of Python 3.11 may."""

    async def publish(self, *_: object) -> None:
        try:
            await asyncio.sleep(100.0)
        except asyncio.CancelledError:
            pass

    async def aclose(self) -> None:
        pass


@scenario
async def test_a_task_that_loses_a_cancellation_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    addon = new_addon()
    monkeypatch.setattr(store, "connection", lambda _: Loses())
    addon._tasks = [asyncio.ensure_future(addon._always(addon._publish))]
    await asyncio.sleep(0.01)
    await addon.stop()
    assert addon.running == 0


@scenario
async def test_a_url_that_the_package_refuses_does_not_end_the_task() -> None:
    addon = new_addon()
    addon._rules = Sharing(url="redis://nowhere?socket_timeout=never")
    await addon.start()
    await asyncio.sleep(0.01)
    assert (addon.is_reached, addon.running) == (False, 3)
    await addon.stop()


class Floods:
    """A client whose channel has 100 messages at once, and then none."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._left = 100

    def pubsub(self, **_: object) -> "Floods":
        return self

    async def __aenter__(self) -> "Floods":
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def subscribe(self, channel: str) -> None:
        pass

    async def get_message(self, *, timeout: float) -> dict[str, bytes]:
        if not self._left:
            await asyncio.sleep(100.0)
        self._left -= 1
        self._clock.now += TURN_S / 2
        return {"data": b"garbage"}


@scenario
async def test_a_full_channel_leaves_time_for_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, addon, loop = Clock(monkeypatch), new_addon(), asyncio.get_running_loop()
    addon._tasks = [asyncio.ensure_future(addon._read(Floods(clock)))]
    turns = 0
    began = loop.time()
    while addon.ignored < 100:
        await asyncio.sleep(0.0)
        turns += 1
    assert turns > 30
    assert loop.time() - began > 30 * TURN_S
    await addon.stop()
