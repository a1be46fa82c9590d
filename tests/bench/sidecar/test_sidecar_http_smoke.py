"""End to end: emulated engines that publish KV events, two Hedgerows in front of them, one row."""

from bench.priority.http.stage import Size
from bench.priority.traffic import CLASSES
from bench.sidecar.figures import Setup
from bench.sidecar.http.stage import measure
from router.lab.overhead.processes import Orderly, Placement
from tests.addons.needed import needs


@needs("kv_events")
def test_seconds_of_traffic_through_two_routers() -> None:
    with Orderly("bench.sidecar.http.load") as load:
        found = measure(Setup(2, is_exact=True), 1, Size(2.0, 4.0), Placement(), load)
    assert found.errors == 0
    assert set(found.ttft_mean_s) == set(CLASSES)
    assert found.tokens_s > 0.0
    assert 0.0 < found.hit_rate < 1.0
    assert not [problem for problem in found.problems if "ended" in problem]
