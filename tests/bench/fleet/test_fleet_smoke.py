"""End to end: two emulated engines, a contestant in front of them, twenty requests, one row."""

import pytest

from bench.fleet import contestants, engines, report, run
from bench.fleet.capacity import saturation
from bench.fleet.script import Conversation, Script, Turn
from router.lab.overhead.processes import Orderly, Placement


@pytest.mark.parametrize("kind", [contestants.hedgerow("least_load"), contestants.Oracle])
def test_twenty_requests(kind: type[contestants.Ready]) -> None:
    spec = engines.Spec(count=2, groups=8)
    system = "One system prompt for all, " * 16
    talks = tuple(
        Conversation(0.02 * n, system, (Turn(f"{n} asks", 4), Turn("and asks again", 4, 0.01)))
        for n in range(10)
    )
    script = Script(talks, 0.0, 20.0)
    cold = saturation(spec.engine(), spec.count, script.sizes())
    workload = run.Workload("smoke", script, 10 / cold, 10.0, cold, cold, 2.0)
    with Orderly("bench.fleet.load") as load:
        row = run.Stage(spec, Placement(), load).measure(kind, workload)
    assert row.absent == ""
    seen = row.summary
    assert seen is not None
    assert (seen.requests, seen.errors) == (20, {})
    assert seen.ttft_p90 is not None and seen.ttft_p90 > spec.engine().timing.prefill_s
    assert seen.tokens_s == 20 * 4 / 20.0
    assert seen.hit_rate is not None and 0.3 < seen.hit_rate < 1.0
    assert seen.hotspot is not None and seen.hotspot >= 1.0
    if kind is not contestants.Oracle:  # which may leave all to the engine with the cached prompt
        assert seen.hotspot < 2.0
    assert row.engines_cpu > 0
    assert (row.router_cpu > 0) == (kind is not contestants.Oracle)  # the oracle has no process
    whole = report.Report({}, spec.words(), kind.name, [workload], [row], [], [])
    assert kind.name in report.text(whole)
    assert whole.as_json()["rows"][0]["summary"]["requests"] == 20
