"""The HTML page and its plots."""

from __future__ import annotations

import re
import sys

import pytest

from router.lab.page import style
from router.lab.plan.output import page as pages
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
