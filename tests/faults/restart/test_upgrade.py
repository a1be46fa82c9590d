"""An upgrade from an earlier revision, and back: nothing is lost, and budgets continue.

The long form, under more load, is `make prove-restart`.
"""

import signal
import sys
from pathlib import Path

import pytest

from router.app.restart.messages import VARIABLE
from tests.addons.needed import needs
from tests.faults.restart.helpers import is_alive
from tests.faults.restart.releases import Releases, Unavailable, old_revision
from tests.faults.restart.upgrader import Trial, problems, prove, write
from tests.harness.behaviours import chat_either
from tests.harness.messages import chat
from tests.harness.process import serving
from tests.harness.replica import HostileReplica
from tests.harness.running import long_scenario
from tests.places import ROOT


@pytest.fixture
def revision() -> str:
    """The old release."""
    try:
        return old_revision()
    except Unavailable as err:
        pytest.skip(f"no old release here: {err}")


@needs("batches", "usage")
@long_scenario
async def test_an_upgrade_and_the_way_back_lose_nothing(tmp_path: Path, revision: str) -> None:
    trial = Trial()
    outcome = await prove(trial, revision, tmp_path)
    assert problems(outcome, trial) == []
    assert len(outcome.changes) == 2
    assert outcome.crossed >= trial.streams  # streams were in progress at both changes
    assert all(outcome.done[kind] for kind in ("stream", "connect", "kept"))


SPEAKS = f"#!{sys.executable}\nimport os\nos.write(int(os.environ['{VARIABLE}']), b'nonsense\\n')\n"
# Releases that cannot start: the script, and the reason that the old process logs.
BROKEN = {
    "exits": ("#!/bin/sh\nexit 1\n", "ended with status 1"),
    "crashes": ("#!/bin/sh\nkill -SEGV $$\n", "was ended by SIGSEGV"),
    "has no interpreter": ("#!/no/python\n", "No such file"),
    "says something else": (SPEAKS, "a message that this version does not understand"),
}
MISSING = {"missing": "ended with status 2"}  # the link names no release


@needs("usage")
@long_scenario
async def test_a_release_that_cannot_start(tmp_path: Path) -> None:
    """The old process goes on, and its next restart may succeed."""
    releases = Releases(tmp_path / "releases")
    releases.add("good", ROOT)
    for name, (script, _) in BROKEN.items():
        releases.add_script(name, script)
    releases.use("good")
    hostile = HostileReplica(chat_either)
    hostile.start()
    config = write(tmp_path, hostile.url)
    async with serving(config, command=releases.command) as router:
        old = router.pid
        for name, why in ({name: why for name, (_, why) in BROKEN.items()} | MISSING).items():
            releases.use(name)
            event = await router.restart()
            assert event["message"] == "restart failed", name
            assert why in event["why"], name
            client = await router.send(chat())
            assert (await client.recv_response("POST")).status == 200
            client.close()
        assert router.pid == old
        releases.use("good")
        assert (await router.restart())["message"] == "restarted"
        router.signal(signal.SIGTERM)
        assert await router.exit_status() == 0
        assert not is_alive(old)
    await hostile.stop()
