"""End to end: a second of traffic through one setup of each kind."""

import shutil

import pytest

from bench.sidecar.figures import Setup
from bench.sidecar.moderate import judge
from bench.sidecar.moderate.task import Task
from bench.sidecar.moderate.traffic import Size
from router.lab.overhead.processes import Placement
from tests.addons.needed import needs

SIZE = Size(0.5, 1.0)


@needs("share")
@pytest.mark.skipif(shutil.which("redis-server") is None, reason="redis-server is not installed")
@pytest.mark.parametrize(
    ("setup", "workload"),
    [
        (Setup(1), "chat"),
        (Setup(2), "shared"),
        (Setup(2, shares=True), "chat"),
        (Setup(1, workers=2), "shared"),
    ],
    ids=lambda one: judge.words(one) if isinstance(one, Setup) else one,
)
def test_a_second_of_traffic(setup: Setup, workload: str) -> None:
    seen = Task(setup, workload, 1, SIZE, Placement()).run()
    assert seen.requests > 0
    assert seen.errors == 0
    assert 0.0 < seen.mean_s <= seen.p99_s < 10.0
    assert 0.0 < seen.hits < 1.0
    assert seen.cpu_s > 0.0
    assert not [problem for problem in seen.problems if "ended" in problem]
