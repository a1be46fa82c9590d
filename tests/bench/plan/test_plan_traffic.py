"""The demand of the bench."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.plan.fleet import PEAK, STEP_S, Bursts, bursts, curve, with_bursts


def test_a_trace_gives_the_changes() -> None:
    demand = with_bursts(Bursts("x", (0.5, 1.5), 0.9), 1)
    ratios = [demand.tokens[step] / (PEAK * STEP_S * curve(step)) for step in range(4)]
    assert sorted(ratios[:2]) == pytest.approx([0.5, 1.5])
    assert ratios[2:] == pytest.approx(ratios[:2])


def test_the_minutes_of_a_trace(tmp_path: Path) -> None:
    file = tmp_path / "azure.csv"
    rows = [
        f"2026-03-01 00:{n // 3:02}:{10 * (n % 3):02}.0,{90 if n < 3 else 30},10" for n in range(9)
    ]
    file.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "\n".join(rows) + "\n")
    found = bursts("azure", str(file))
    # The last minute is incomplete.
    assert found.factors == pytest.approx((300 / 210, 120 / 210))
    assert found.prompt_share == pytest.approx((3 * 90 + 6 * 30) / (3 * 90 + 6 * 30 + 90))
