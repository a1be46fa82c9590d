"""The HTML page and its plots."""

import json
import re
import sys

import pytest

from router.core.text.table import plain
from router.lab.page import style
from router.lab.plan.output import page as pages
from router.lab.plan.output.document import document
from router.lab.plan.output.page import table
from router.lab.plan.output.words import facts, findings
from tests.lab.plan.output.plans import plan


def test_the_page_has_plots_and_the_table() -> None:
    page = pages.page(plan(), "2026-03-02 12:00 UTC")
    titles = re.findall(r"<h2>(.*?)</h2>\n<img", page)
    assert titles[:3] == [
        "Demand and forecast: m in eu",
        "Demand and forecast: odd&quot;name in eu",
        "Demand and forecast: m in us",
    ]
    assert titles[3:] == ["Replicas"]
    assert "Cost: plan" in page
    assert "http://" not in page and "https://" not in page


def test_an_unknown_fleet_has_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "reactive rule asks" in pages.page(plan(known=False), "")
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # as if matplotlib were not installed
    assert "Plots need matplotlib" in pages.page(plan(known=False), "")


def test_the_capacity_is_drawn_for_the_time_that_the_plan_must_last() -> None:
    made = plan()
    with style():
        (axes,) = pages.draw_forecast(made, made.advice.places[0]).axes
    (line,) = [line for line in axes.lines if line.get_label() == "capacity at 100%"]
    # A period of one hour, and the lead time of three minutes in windows of 15 minutes.
    assert list(line.get_xdata()) == [0.0, 1.25]


def test_the_pools_of_a_place_are_drawn_together_with_whole_numbers() -> None:
    with style():
        (axes,) = pages.draw_replicas(plan().advice).axes
    names = [text.get_text() for text in axes.get_yticklabels()]
    assert names == ["m in eu\ngpu", "m in us\ngpu", 'odd"name in eu\ngpu']
    assert all(tick == round(tick) for tick in axes.get_xticks())


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


def test_the_plan_is_in_the_document() -> None:
    found = json.loads(document(plan()))
    pools = {(one["model"], one["region"]): one for one in found["pools"]}
    assert pools["m", "us"] == {
        "model": "m",
        "region": "us",
        "type": "gpu",
        "now": 1,
        "plan": 3,
        "reactive": 2,
        "cost_per_hour": 6.0,
    }
    assert found["cost_per_hour"] == {"plan": 20.0, "reactive": 18.0, "now": 12.0}
    eu = found["places"][0]
    assert (eu["model"], eu["region"], eu["binding"]) == ("m", "eu", "demand")
    assert eu["served_in"] == {"us": pytest.approx(1 / 3, abs=1e-3)}
    assert eu["forecast"]["high"][0] == pytest.approx(600.0)
    assert eu["forecast"]["error"] == 0.1
    assert found["now"] == 1_772_323_200.0 + 200 * 900.0


def test_unknown_numbers_are_null() -> None:
    found = json.loads(document(plan(known=False)))
    assert found["pools"][0]["now"] is None
    assert found["cost_per_hour"]["now"] is None
