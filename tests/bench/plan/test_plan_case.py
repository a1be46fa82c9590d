"""The compared demands, and the task of one of them."""

from __future__ import annotations

import pickle

from bench.findings.stored import name
from bench.plan.fleet import Bursts, seeded
from bench.plan.found import REGIONS_CASE, WEEK_CASE, Case, Task


def test_a_task_is_known_by_everything_that_decides_its_result() -> None:
    tasks = [
        Task(WEEK_CASE, 1),
        Task(WEEK_CASE, 2),
        Task(WEEK_CASE, 1, (300.0,)),
        Task(REGIONS_CASE, 1),
        Task(Case("x", Bursts("x", (0.5, 1.5), 0.9)), 1),
        Task(Case("x", Bursts("x", (0.6, 1.4), 0.9)), 1),
    ]
    assert len({name(task) for task in tasks}) == len(tasks)
    assert name(pickle.loads(pickle.dumps(tasks[4]))) == name(tasks[4])


def test_the_demand_of_a_case() -> None:
    assert WEEK_CASE.world(3, 300.0).demands[""] == seeded(3)
    trace = Case("x", Bursts("x", (0.5, 1.5), 0.9)).world(1, 300.0).demands[""]
    assert (trace.name, trace.prompt_share) == ("x", 0.9)
    assert list(REGIONS_CASE.world(3, 300.0).demands) == ["eu", "us"]
