"""The bench of a rolling restart: its goals can be missed, and a short run has its figures."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from bench.findings import intervals
from bench.hedging.restarts import part
from bench.hedging.restarts.part import CALM, OFF, ON, Row
from bench.hedging.restarts.roll import CASES, Case, Roll
from bench.hedging.restarts.run import Figures
from router.config.model import Hedging

LARGE, SMALL, FULL = CASES
PLAIN = Figures(
    requests=1000,
    failed=0,
    prompt_tokens=3_000_000,
    hit_tokens=1_900_000,
    other_p50=0.2,
    other_p99=1.0,
    copies=0,
    copy_tokens=0,
    prefilled_tokens=1_000_000,
)


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal figures need no more."""
    monkeypatch.setattr(intervals, "DRAWS", 100)


def missed(case: Case, **with_: float) -> set[str]:
    """The missed goals: without restarts 2,000,000 tokens are hits, without warm-up 1,900,000."""
    calm = replace(PLAIN, hit_tokens=2_000_000)
    on = replace(PLAIN, **{"hit_tokens": 1_950_000, **with_})  # type: ignore[arg-type]
    figures = {CALM: calm, OFF: PLAIN, ON: on}
    rows = [Row(case, label, [one] * 5, [calm] * 5) for label, one in figures.items()]
    verdicts = part.judge(case, rows)
    assert len(verdicts) == 4
    return {verdict.name.partition(": ")[2] for verdict in verdicts if verdict.missed}


def test_every_goal_is_met_at_its_limit_and_missed_above() -> None:
    assert missed(LARGE) == missed(SMALL, hit_tokens=1_900_000) == set()
    assert missed(LARGE, hit_tokens=1_949_000) == missed(SMALL, hit_tokens=1_899_000)
    assert missed(LARGE, hit_tokens=1_949_000) == {"lost hits"}
    others = "requests that are not copied, {} TTFT"
    assert missed(LARGE, other_p50=0.207) == {others.format("p50")}
    assert missed(LARGE, other_p99=1.031) == {others.format("p99")}
    assert missed(LARGE, copy_tokens=51_000) == {"tokens of copies"}


def test_each_replica_restarts_once() -> None:
    roll = Roll()
    scenario = roll.scenario(LARGE, Hedging(), 1, restarts=True)
    killed = [fault for fault in scenario.faults if fault.kind == "kill"]
    assert len({fault.replica for fault in killed}) == len(killed) == roll.restarts
    for kill, following in pairwise(killed):
        assert kill.until < following.at - roll.drain_s, "one replica at a time is away"
    assert max(fault.until for fault in killed) < roll.until_s
    assert scenario.faults and not roll.scenario(LARGE, Hedging(), 1, restarts=False).faults


def test_a_short_run() -> None:
    """Two restarts of a small fleet with few prefixes; warm-up finds most of them."""
    roll = replace(Roll.quick(), restarts=2, every_s=40.0, warm_s=60.0, seeds=1)
    rows = part.measure(LARGE, roll)
    calm, off, on = rows
    assert [row.label for row in rows] == [CALM, OFF, ON]
    assert calm.lost == [0.0] and off.lost[0] > 0.0
    assert off.figures[0].copies == 0 < on.figures[0].copies
    assert on.figures[0].copy_tokens > 0
    assert on.lost[0] < off.lost[0]
    assert {row.figures[0].requests for row in rows} == {calm.figures[0].requests}
    found = part._found(roll, [replace(row, case=case) for case in CASES for row in rows])
    assert len(found.table.rows) == 9 and len(found.verdicts) == 12
    assert roll.rate(FULL) > 1.5 * roll.rate(LARGE)
