"""One simulation of a bench: counted requests, their order, and repeatability."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from bench.fleet.simulated.task import Task, play
from bench.fleet.simulated.worlds import FLEET, Warmed, routed
from router.lab.replay.report.run import Run
from router.lab.replay.report.slo import Slo
from router.lab.simulator.scenario import resized


def task(policy: str = "least_load", **changes: object) -> Task:
    traffic = partial(
        Warmed,
        rate=4.0,
        duration_s=10.0,
        warm_s=5.0,
        groups=10,
        prefix_tokens=512,
        question_tokens=128,
        output_tokens=4,
    )
    plain = Task(
        policy=policy,
        scenario=routed(resized(FLEET, 2), policy),
        traffic=traffic,
        slo=Slo(2.0, 0.2),
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def test_only_what_arrives_in_time_is_counted() -> None:
    everything, late = play([task(), task(measure_from=5.0)])
    assert everything.totals.requests == everything.summary.all.requests
    assert late.totals == everything.totals
    assert late.summary.all.requests == everything.summary.all.requests - 10
    assert late.summary.began >= 5.0 > everything.summary.began
    assert sum(one.samples for one in late.summary.series) < sum(
        one.samples for one in everything.summary.series
    )


def test_results_are_in_the_order_of_the_tasks_in_any_number_of_processes() -> None:
    tasks = [task(policy) for policy in ("random", "kv_aware", "least_load")]
    alone, together = play(tasks, 1), play(tasks, 2)
    assert [result.policy for result in together] == ["random", "kv_aware", "least_load"]
    for one, other in zip(alone, together, strict=True):
        assert isinstance(one, Run)
        assert one.summary.document() == other.summary.document()
        assert one.totals == other.totals


def test_a_result_says_what_it_comes_to() -> None:
    (result,) = play([task()])
    group = result.summary.all
    assert result.ttft_p90 == group.quantile(group.ttft, 0.9)
    assert result.kept == group.attainment == 1.0
    assert 0.0 < result.busy < 1.0
    (never,) = play([task(measure_from=1e9)])
    assert never.ttft_p90 == float("inf")
    assert never.kept == 0.0
