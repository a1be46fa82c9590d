"""Verdicts compare with the best peer of the same run; without a figure there is no verdict."""

from __future__ import annotations

import pytest

from bench.fleet import goals, report
from bench.fleet.run import Row
from bench.fleet.scenarios import Outcome, judge
from bench.fleet.statistics import Summary

OWN = "hedgerow kv_aware"


def summary(p90: float | None, share: float = 1.0) -> Summary:
    return Summary(
        requests=400,
        rate=40.0,
        ttft_p50=0.05,
        ttft_p90=p90,
        ttft_p99=p90,
        ttft_p90_bounds=None if p90 is None else (p90 * 0.9, p90 * 1.1),
        goodput=40.0 * share,
        good_share=share,
        tokens_s=1000.0,
        hit_rate=0.5,
        hotspot=1.1,
        preemptions=0.0,
        errors={},
        late_p99=0.001,
        load_cpu=0.05,
    )


def row(name: str, workload: str, p90: float | None, share: float = 1.0) -> Row:
    return Row(name, workload, summary=summary(p90, share))


def test_the_best_peer_is_the_measure() -> None:
    own = row(OWN, "shared", 0.06)
    peers = [row("haproxy", "shared", 0.3), row("vllm-router", "shared", 0.1)]
    verdict = goals.ttft("shared", own, peers, 0.7, "")
    assert verdict.value == pytest.approx(0.6) and verdict.met
    assert "best: vllm-router" in verdict.words()
    assert "vllm-router 90 to 110 ms by chance" in verdict.words()


def test_a_peer_with_more_good_answers_is_a_goal_missed() -> None:
    own = row(OWN, "chat", 0.06, share=0.9)
    peers = [row("haproxy", "chat", 0.3, share=0.95), row("nginx", "chat", 0.1, share=0.5)]
    verdict = goals.goodput("chat", own, peers)
    assert verdict.value == pytest.approx(0.95 / 0.9) and not verdict.met
    assert "best: haproxy" in verdict.words()
    assert goals.goodput("chat", own, peers[1:]).met


def test_a_problem_of_either_stands_beside_the_verdict() -> None:
    own, peer = row(OWN, "chat", 0.06), row("haproxy", "chat", 0.3)
    peer.problems.append("3 × status 503")
    assert "haproxy: 3 × status 503" in goals.ttft("chat", own, [peer], 0.7, "").words()


def test_nothing_is_met_without_a_figure() -> None:
    peer = row("haproxy", "chat", 0.3)
    absent = Row(OWN, "chat", absent="ended with 2 at its start")
    for verdict in (
        goals.goodput("chat", None, [peer]),
        goals.goodput("chat", absent, [peer]),
        goals.goodput("chat", row(OWN, "chat", 0.1), []),
        goals.goodput("chat", row(OWN, "chat", 0.1, share=0.0), [peer]),
        goals.ttft("chat", row(OWN, "chat", None), [peer], 0.7, ""),
        goals.ttft("chat", row(OWN, "chat", 0.1), [row("haproxy", "chat", None)], 0.7, ""),
    ):
        assert verdict.value is None and not verdict.met and verdict.note


def test_every_goal_of_a_run_is_judged() -> None:
    rows = [
        row(name, workload, p90)
        for workload in ("chat", "shared", "unique")
        for name, p90 in ((OWN, 0.05), (goals.LEAST_LOAD, 0.2), ("haproxy", 0.1))
    ]
    outcomes = [Outcome("cold start", 1.2, 64), Outcome("one prompt", None, problems=["ended"])]
    names = ["chat", "shared", "unique"]
    verdicts = goals.judge(rows, outcomes, OWN, names, ["haproxy"])
    assert [v.met for v in verdicts] == [True] * 7 + [False]
    no_reuse = next(v for v in verdicts if v.name == "unique: TTFT p90")
    assert no_reuse.value == pytest.approx(0.25) and goals.LEAST_LOAD in no_reuse.note


def test_a_run_is_printed_whole() -> None:
    rows = [row(OWN, "chat", 0.05), Row("nginx", "chat", absent="not installed")]
    rows[0].problems.append("2 × status 503")
    outcome = Outcome("cold start", 1.25, 64, [8.0, 10.0])
    whole = report.Report(
        {"CPUs": 2}, "8 engines.", [], rows, [outcome], goals.judge([], [], OWN, ["chat"], [])
    )
    for words in (report.text(whole), report.markdown(whole)):
        assert "! chat, hedgerow kv_aware: 2 × status 503" in words
        assert "nginx: not measured: not installed" in words
        assert "cold start" in words and "1.25" in words and "8 10" in words
        assert "Hedgerow is not in this run" in words
    assert whole.as_json()["hotspots"][0]["hotspot"] == 1.25


def test_a_scenario_is_judged_by_the_engines_counts() -> None:
    before = [{"requests": 3.0}, {"requests": 0.0}]
    after = [{"requests": 13.0}, {"requests": 30.0}]
    records = [{"error": ""}, {"error": "status 503"}]
    outcome = judge("cold start", {"counters": [before, after], "records": records})
    assert (outcome.requests, outcome.shares) == (40, [10.0, 30.0])
    assert outcome.hotspot == pytest.approx(1.5)
    assert outcome.problems == ["1 of 2 requests failed"]
