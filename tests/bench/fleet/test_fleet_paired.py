"""Figures are compared within rounds only, and a missing one gives no ratio."""

from __future__ import annotations

import pytest

from bench.fleet.goals import ttft_mean, ttft_p99
from bench.fleet.paired import Paired
from bench.fleet.run import Row
from tests.bench.fleet.fleet_rows import rounds, row, summary

TIMES = [0.1, 0.2, 0.5, 1.0, 0.3]


def test_a_ratio_is_taken_round_by_round() -> None:
    """Rounds differ by a factor of ten; ours is always a tenth less."""
    rows = [*rounds("ours", *[0.9 * t for t in TIMES]), *reversed(rounds("theirs", *TIMES))]
    found = Paired(rows, "chat").ratio("ours", "theirs", ttft_mean)
    assert found is not None
    assert (found.low, found.high, found.pairs) == (pytest.approx(0.9), pytest.approx(0.9), 5)


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


def test_noise_needs_enough_rounds() -> None:
    rows: list[Row] = [*rounds("ours", *TIMES), *rounds("again", *[1.1 * t for t in TIMES])]
    assert Paired(rows, "chat").noise("ours", "again", ttft_mean) == pytest.approx(1 - 1 / 1.1)
    assert Paired(rows[:-1], "chat").noise("ours", "again", ttft_mean) is None
    assert Paired(rows, "chat").noise("ours", "other", ttft_mean) is None
