"""Demand in windows."""

from __future__ import annotations

import pytest

from router.lab.plan.observed import Place
from router.lab.plan.sources import access_logs
from router.lab.plan.sources.access_logs import OTHER, Windows

PLACE = Place("m", "eu")


def test_requests_and_tokens_are_summed_by_window() -> None:
    counted = Windows(60.0)
    for at in (30.0, 60.0, 119.9, 130.0, 250.0):
        counted.add(PLACE, at, 1.0, 10.0, 5.0)
    # Window 0 and window 4 are incomplete.
    assert counted.bounds() == (1, 4)
    series = counted.series()[PLACE]
    assert series.requests == [2.0, 1.0, 0.0]
    assert series.tokens == [30.0, 15.0, 0.0]
    assert series.prompt_share(2) == pytest.approx(2 / 3)


def test_windows_begin_at_multiples_of_their_length_also_before_zero() -> None:
    counted = Windows(60.0)
    for at in (-61.0, -60.0, -1.0, 1.0):
        counted.add(PLACE, at, 1.0, 0.0, 0.0)
    assert counted.bounds() == (-1, 0)
    assert counted.series()[PLACE].requests == [2.0]


def test_the_numbers_of_places_and_windows_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_logs, "PLACES_MAX", 1)
    monkeypatch.setattr(access_logs, "WINDOWS_MAX", 10)
    counted = Windows(60.0)
    counted.add(counted.place("m", "eu"), 0.0, 1.0, 1.0, 1.0)
    assert counted.place("m", "eu") == PLACE
    assert counted.place("n", "eu") == Place(OTHER, "eu")
    with pytest.raises(ValueError, match="longer --window"):
        counted.add(PLACE, 601.0, 1.0, 1.0, 1.0)
