"""The watcher of the sources: an exception of the code that uses a look ends no source."""

from pathlib import Path
from random import Random

import pytest

from router.config.in_force import InForce
from router.config.model import Config
from router.fleet.discovery.source import Look
from router.fleet.discovery.watcher import DiscoveryWatcher
from tests.app.discovery.test_files import rules
from tests.harness.replica import eventually
from tests.harness.running import scenario


@scenario
async def test_a_defect_ends_no_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.fleet.discovery.watcher._AFTER_DEFECT_S", 0.01)
    looks: list[Look] = []
    errors: list[BaseException] = []

    def on_look(source: str, look: Look) -> None:
        looks.append(look)
        if len(looks) < 5:
            raise RuntimeError("a defect")

    config = Config(discovery=rules(tmp_path / "replicas.json"))
    watcher = DiscoveryWatcher(InForce(config), Random(1), errors.append)
    watcher.on_look = on_look
    await watcher.start()
    await eventually(lambda: len(looks) > 5, "looks after the defect")
    await watcher.stop()
    assert [look.problem for look in looks[1:4:2]] == ["RuntimeError('a defect')"] * 2
    assert [str(err) for err in errors] == ["a defect"] * 2
