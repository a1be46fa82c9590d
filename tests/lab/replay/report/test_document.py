"""The JSON of a replay is equal for equal replays, independent of the machine's load."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from router.lab.replay.report.document import document
from tests.lab.replay.report.made import replay, run, steady


def test_only_the_section_run_depends_on_the_machine() -> None:
    one = run("kv_aware", steady(0.3))
    texts = [
        document(replace(replay(replace(one, wall_s=wall)), when=when))
        for wall, when in ((2.0, "1 May 2026"), (3.0, "2 May 2026"))
    ]
    first, second = map(json.loads, texts)
    assert first.pop("run") == {
        "date": "1 May 2026",
        "runs": [{"wall_s": 2.0, "events_per_s": 5.0}],
    }
    second.pop("run")
    assert json.dumps(first) == json.dumps(second)
    assert texts[0].endswith("}\n")


def test_what_was_run_and_what_came_of_it() -> None:
    content = json.loads(document(replay(run("kv_aware", steady(0.3), routers=4))))
    assert content["facts"] == {"seed": "1"}
    (found,) = content["runs"]
    assert (found["policy"], found["replicas"], found["routers"], found["shared"]) == (
        *("kv_aware", 2, 4, False),
    )
    assert found["slo"] == {"ttft_s": 1.0, "tpot_s": 0.1}
    assert (found["requests"], found["slo_attainment"]) == (20, 1.0)
    assert found["ttft_s"]["mean"] == pytest.approx(0.35)


def test_what_does_not_exist_is_null() -> None:
    (found,) = json.loads(document(replay(run())))["runs"]
    assert found["goodput_requests_per_s"] is None
    assert found["ttft_s"] == {"mean": None, "p50": None, "p90": None, "p99": None}
