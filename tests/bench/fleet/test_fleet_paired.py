"""Figures are compared within rounds only, and a missing one gives no ratio."""

from __future__ import annotations

import pytest

from bench.fleet.goals import Paired, ttft_mean, ttft_p99
from tests.bench.fleet.fleet_rows import rounds, row, summary


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
