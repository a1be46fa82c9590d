"""The plan in sentences and as a table."""

from __future__ import annotations

from router.core.text.table import plain
from router.lab.plan.output.page import table
from router.lab.plan.output.words import facts, findings
from tests.lab.plan.output.plans import plan


def test_the_sentences() -> None:
    found = "\n".join(findings(plan()))
    assert found.startswith(
        "Cost: plan 20.0 per hour and 0.40 for starts; reactive rule 18.0 per hour"
    )
    assert "m in eu: up to 33.3% of the demand is served in us." in found
    assert "m in us: class batch may use 0% of the slots until the next plan" in found
    assert 'odd"name in eu: the reactive rule decides: error 80% of the best' in found
    assert "Forecast for m in us: known: error 10.0% in 24 forecasts." in found
    assert found.endswith("eu.log: 3 × skipped: failed")


def test_the_measured_throughput_is_told() -> None:
    known = dict(facts(plan()))
    assert known["measured, m"].startswith("100 tokens/s per replica, from 12 windows")
    assert known["types"] == "plan.yaml"
    assert "(50.0 h)" in known["demand"]


def test_the_table() -> None:
    lines = plain(table(plan())).splitlines()
    assert lines[0].split() == [
        *("model", "region", "type", "now", "utilisation", "plan", "reactive", "binding"),
        *("peak", "demand", "capacity", "cost"),
    ]
    rows = [line.split() for line in lines[3:]]
    assert rows[0] == ["m", "eu", "gpu", "3", "100", "4", "4", "demand", "600", "400", "8.00"]
    assert [row[-4] for row in rows[:2]] == ["demand", "demand"]
