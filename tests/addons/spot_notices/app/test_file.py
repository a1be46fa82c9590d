"""The file that announces reclaims: half-written, not a file, too large, on a disk that hangs."""

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from threading import Event

import msgspec
import pytest

from router.addons.spot_notices.watcher import SpotWatcher
from router.app.restart.fleet_state import state_of
from router.config.model import Spot, SpotMetadata
from router.fleet.membership import Duty
from router.fleet.monitor import small_file
from router.fleet.monitor.small_file import SmallFile
from tests.addons.spot_notices.app.test_watcher import Heard, body
from tests.app.fleet.servers import Answers, serving
from tests.app.restart.test_fleet_state import adopted, duty_of
from tests.faults.replicas.test_spot_reclaimed import spot, three
from tests.harness.behaviours import json_ok
from tests.harness.emulated import emulated
from tests.harness.replica import eventually
from tests.harness.running import running, scenario

ONE = b'{"replicas": ["r1"], "seconds": 30}'


class Looks:
    """Performs one look after the other."""

    def __init__(self, file: Path) -> None:
        self.heard = Heard()
        self._watcher = self.heard.watcher(notice_file=str(file))
        self._file = SmallFile(str(file), 1000)

    async def look(self) -> None:
        notice = await self._watcher._look_at_file(self._file)
        if notice is not None:
            self.heard.notices.append((notice, "file"))

    @property
    def seen(self) -> list[tuple[float, tuple[str, ...], str]]:
        return [notice[1:] for notice, _ in self.heard.notices]


@scenario
async def test_a_file_that_is_being_written_does_not_name_all_replicas(tmp_path: Path) -> None:
    looks = Looks(tmp_path / "notice")
    with open(tmp_path / "notice", "wb") as file:
        await looks.look()
        file.write(ONE)
    await looks.look()
    assert looks.seen == [(30.0, ("r1",), "")]


@asynccontextmanager
async def watching(path: Path, timeout_s: float = 2.0) -> AsyncIterator[Heard]:
    heard = Heard()
    watcher: SpotWatcher = heard.watcher(notice_file=str(path), timeout_s=timeout_s)
    await watcher.start()
    try:
        yield heard
    finally:
        await watcher.stop()


@scenario
async def test_a_file_is_rewritten_and_deleted(tmp_path: Path) -> None:
    file = tmp_path / "notice"
    async with watching(file) as heard:
        file.write_bytes(ONE[:20])  # half of the file
        await eventually(lambda: len(heard.problems) > 0, "a look at the half")
        assert heard.notices == []
        file.write_bytes(ONE)
        await eventually(lambda: len(heard.notices) == 1, "the notice")
        file.write_bytes(b'{"node": "n"}')
        await eventually(lambda: len(heard.notices) == 2, "another notice")
        file.unlink()
        file.write_bytes(b"[")
        problems = len(heard.problems)
        await eventually(lambda: len(heard.problems) > problems + 1, "looks after the deletion")
        assert heard.withdrawn == [], "a deleted file withdraws nothing"


def not_a_file(path: Path, kind: str) -> None:
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.write_bytes(b" " * 70_000)


@pytest.mark.parametrize("kind", ["directory", "pipe", "device", "large"])
@scenario
async def test_what_is_no_notice_is_a_problem(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "notice"
    not_a_file(file, kind)
    async with watching(file) as heard:
        await eventually(lambda: len(heard.problems) > 2, "three looks")
        assert heard.notices == []
        if kind == "directory":
            file.rmdir()
        else:
            file.unlink()
        file.write_bytes(ONE)
        await eventually(lambda: len(heard.notices) == 1, "the notice")


@scenario
async def test_a_disk_that_hangs_takes_one_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = Event()
    reads: list[str] = []

    def read(path: str, bytes_max: int) -> bytes:
        reads.append(path)
        hangs.wait()
        return ONE

    monkeypatch.setattr(small_file, "_read", read)
    other = tmp_path / "notice"
    try:
        async with watching(other, timeout_s=0.02) as heard:
            await eventually(lambda: len(reads) > 0, "a look")
            await eventually(lambda: len(heard.problems) > 3, "looks that are over in time")
            assert len(reads) == 1
            hangs.set()
            await eventually(lambda: len(heard.notices) == 1, "the notice")
    finally:
        hangs.set()


PREEMPTED = "/computeMetadata/v1/instance/preempted"


@scenario
async def test_a_notice_is_withdrawn_after_the_restart() -> None:
    answers: Answers = {PREEMPTED: body("TRUE")}
    async with serving(answers) as cloud:
        source = SpotMetadata(provider="gcp", url=cloud.server.url, replica="r0")
        rules = Spot(metadata=(source,), interval_s=0.02)
        async with running(json_ok, json_ok, spot=rules) as old:
            await eventually(lambda: duty_of(old) == Duty.DRAINING, "the notice")
            state = state_of(old.app.parts)
        answers[PREEMPTED] = body("FALSE")
        async with running(json_ok, json_ok, spot=rules) as new:
            adopted(new, state)
            assert duty_of(new) == Duty.DRAINING
            await eventually(lambda: duty_of(new) == Duty.IN_SERVICE, "back in service")


@scenario
async def test_a_notice_that_the_operator_ended_is_not_applied_after_the_restart() -> None:
    async with serving({PREEMPTED: body("TRUE")}) as cloud:
        source = SpotMetadata(provider="gcp", url=cloud.server.url, replica="r0")
        rules = Spot(metadata=(source,), interval_s=0.02)
        async with running(json_ok, json_ok, spot=rules) as old:
            await eventually(lambda: duty_of(old) == Duty.DRAINING, "the notice")
            await old.admin("/replicas/r0/uncordon", "POST")
            state = state_of(old.app.parts)
        idle = Spot(notice_file="/no/such/file")
        async with running(json_ok, json_ok, spot=idle) as new:
            adopted(new, state)
            asked = len(cloud.asked)
            changed = msgspec.structs.replace(new.config, spot=rules)
            new.app.parts.addons["spot_notices"].adopt(changed)
            await eventually(lambda: len(cloud.asked) > asked + 2, "looks")
            assert duty_of(new) == Duty.IN_SERVICE


@pytest.mark.parametrize(
    ("target", "reclaimed"), [({}, "r0"), ({"node": "n"}, "r1"), ({"replica": "r2"}, "r2")]
)
@scenario
async def test_a_metadata_service_names_its_replicas(
    target: dict[str, str], reclaimed: str
) -> None:
    path = "/computeMetadata/v1/instance/preempted"
    async with AsyncExitStack() as stack:
        cloud = await stack.enter_async_context(serving({path: body("FALSE")}))
        urls = [(await stack.enter_async_context(emulated("vllm"))).url for _ in range(3)]
        sources = (SpotMetadata(provider="gcp", url=cloud.server.url, **target),)
        rules = Spot(metadata=sources, interval_s=0.02)
        async with running(replicas=three(*urls), spot=rules) as router:
            await eventually(lambda: len(cloud.asked) > 2, "several looks")
            assert not any(spot(router).values())
            cloud.answers[path] = body("TRUE")
            await eventually(lambda: any(spot(router).values()), "the notice")
            assert spot(router) == {id: id == reclaimed for id in ("r0", "r1", "r2")}
            # The same notice does not drain a replica that the operator returned to service.
            await router.admin(f"/replicas/{reclaimed}/uncordon", "POST")
            asked = len(cloud.asked)
            await eventually(lambda: len(cloud.asked) > asked + 2, "several looks")
            assert not any(spot(router).values())


@scenario
async def test_a_reload_begins_to_ask() -> None:
    async with serving({PREEMPTED: body("TRUE")}) as cloud:
        source = SpotMetadata(provider="gcp", url=cloud.server.url, replica="r0")
        async with running(json_ok, json_ok) as router:
            assert "spot_notices" not in router.app.parts.addons
            router.change(spot=Spot(metadata=(source,), interval_s=0.02))
            await router.app.reload()
            await eventually(lambda: duty_of(router) == Duty.DRAINING, "the notice")
            await router.app.reload()
            assert router.app.parts.addons["spot_notices"].running == 1
