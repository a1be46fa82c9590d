"""Verdicts compare with the best other contestant of the same rounds, by intervals."""

import pytest

from bench.findings.intervals import MET, MISSED
from bench.findings.judged import Judged
from bench.fleet import goals
from bench.fleet.goals import Paired, ttft_mean, ttft_p99
from bench.fleet.run import Row
from bench.fleet.scenarios import Outcome, judge
from bench.overhead.goals import Verdict
from tests.bench.fleet.fleet_rows import rounds, row, summary

OWN, AGAIN = "hedgerow kv_aware", "hedgerow kv_aware (again)"
TIMES = [0.1, 0.2, 0.15, 0.12, 0.18]


def scaled(name: str, factor: float, share: float = 1.0, count: int = 5) -> list[Row]:
    return rounds(name, *[factor * t for t in TIMES[:count]], share=share)


def verdicts(*rows: list[Row]) -> list[Verdict]:
    """Of chat: mean, share, p99."""
    return goals.compare("chat", Paired([row for one in rows for row in one], "chat"), OWN)


def state(verdict: Verdict) -> str:
    assert isinstance(verdict, Judged)
    return verdict.state


def test_the_best_other_contestant_is_the_measure() -> None:
    mean, share, p99 = verdicts(
        scaled(OWN, 1.0, share=0.9),
        scaled(AGAIN, 1.0, share=0.9),
        scaled("haproxy", 3.0, share=0.99),
        scaled("sglang-router", 1.02, share=0.5),
        scaled("oracle", 0.5, share=1.0),
    )
    assert mean.value == pytest.approx(1 / 1.02) and mean.met and state(mean) == MET
    assert "best: sglang-router" in mean.words() and "noise 0.0%" in mean.words()
    assert share.value == pytest.approx(0.99 / 0.9) and state(share) == MISSED
    assert "best: haproxy" in share.words()
    assert p99.value == pytest.approx(1 / 1.02) and p99.met
    assert "best: sglang-router" in p99.words()


def test_failed_requests_of_ours_are_a_goal_missed() -> None:
    own = scaled(OWN, 1.0)
    own[2].summary = summary(None, share=0.0)
    for verdict in verdicts(own, scaled(AGAIN, 1.0), scaled("haproxy", 1.0)):
        assert verdict.missed and verdict.value is None
        assert "requests failed" in verdict.words()


def test_every_goal_of_a_run_is_judged() -> None:
    rows = [
        row
        for workload in ("chat", "shared", "unique")
        for name, mean in ((OWN, 0.05), (AGAIN, 0.05), ("haproxy", 0.1), ("oracle", 0.04))
        for row in rounds(name, *[mean] * 5, workload=workload)
    ]
    outcomes = [Outcome("cold start", 1.2, 64), Outcome("one prompt", None, problems=["ended"])]
    found = goals.judge(rows, outcomes, OWN, ["chat", "shared", "unique"])
    assert [v.met for v in found] == [True] * 10 + [False]


def test_a_scenario_is_judged_by_the_engines_counts() -> None:
    before = [{"requests": 3.0}, {"requests": 0.0}]
    after = [{"requests": 13.0}, {"requests": 30.0}]
    records = [{"error": ""}, {"error": "status 503"}]
    outcome = judge("cold start", {"counters": [before, after], "records": records})
    assert (outcome.requests, outcome.shares) == (40, [10.0, 30.0])
    assert outcome.hotspot == pytest.approx(1.5)
    assert outcome.problems == ["1 of 2 requests failed"]


def test_only_rounds_and_workloads_in_common_count() -> None:
    rows = [*rounds("ours", 0.1, 0.2, 0.3), row("theirs", 0.4, 1), row("theirs", 9.0, 0, "unique")]
    found = Paired(rows, "chat").ratio("ours", "theirs", ttft_mean)
    assert found is not None and (found.value, found.pairs) == (0.5, 1)


def test_a_missing_figure_gives_no_ratio() -> None:
    rows = [*rounds("ours", 0.1, 0.2), *rounds("theirs", 0.1, 0.2), row("absent", 1.0)]
    rows[1].summary = summary(0.2)
    rows[3].summary = summary(None)
    rows[4].summary = None
    paired = Paired(rows, "chat")
    assert paired.names == ["ours", "theirs"]
    assert paired.ratio("ours", "theirs", ttft_mean) is None
    assert paired.mean("theirs", ttft_p99) is None
    assert paired.mean("ours", ttft_mean) == pytest.approx(0.15)
    assert paired.ratio("ours", "absent", ttft_mean) is None
