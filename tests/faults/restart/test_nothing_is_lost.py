"""SIGUSR2 under load: no connection is refused, no request is lost, no stream is cut.

The long form, with ten restarts under 500 streams, is `make prove-restart`.
"""

from pathlib import Path

import pytest

from tests.addons.needed import needs
from tests.faults.restart.prover import Trial, prove
from tests.harness.running import long_scenario


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=needs("share"))])
@long_scenario
async def test_two_restarts_under_load_lose_nothing(tmp_path: Path, workers: int) -> None:
    trial = Trial(workers=workers)
    found = await prove(trial, tmp_path)
    assert found.failed == {}
    assert found.crossed > trial.streams  # streams were in progress at both restarts
    assert found.moved >= trial.kept  # kept connections were closed by their last answer
    assert min(found.streams, found.connects, found.kept) > 0
