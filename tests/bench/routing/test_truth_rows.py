"""Errors of simulated figures: sign, unit, and cases without an error."""

from __future__ import annotations

from math import inf, nan

import msgspec
import pytest

from bench.fleet.truth.figures import Row, Truth
from router.lab.replay.truth.judged import error_of


@pytest.mark.parametrize(
    ("measured", "simulated", "unit", "error"),
    [
        (100.0, 110.0, "ms", 10.0),
        (100.0, 90.0, "ms", -10.0),
        (50.0, 100.0, "1/s", 100.0),
        (3.0, 3.0, "x", 0.0),
        (0.0, 0.0, "requests", 0.0),
        (0.0, 1.0, "requests", None),  # no ratio to zero
        (2.0, 1.0, "%", -1.0),  # an error in percentage points, not a half
        (0.0, 4.5, "%", 4.5),
        (None, 1.0, "ms", None),
        (1.0, None, "%", None),
        (inf, 1.0, "ms", None),
        (1.0, nan, "ms", None),
    ],
)
def test_an_error_is_the_simulated_figures(
    measured: float | None, simulated: float | None, unit: str, error: float | None
) -> None:
    found = error_of(measured, simulated, unit)
    assert found == (None if error is None else pytest.approx(error))


def truth() -> Truth:
    return Truth(
        title="t",
        when="2026-01-01 00:00",
        rows=(
            Row(workload="a", name="TTFT p50", unit="ms", measured=50.0, simulated=45.0),
            Row(
                workload="a",
                name="hit rate",
                unit="%",
                measured=70.0,
                simulated=70.5,
                measured_range=(69.0, 71.0),
                simulated_range=(70.0, 71.0),
            ),
            Row(workload="b|", name="TTFT p99", unit="ms", measured=None, simulated=9.0),
        ),
        offset_ms=2.5,
        notes=("how",),
    )


def test_a_file_gives_back_what_was_written_with_errors_for_others() -> None:
    written = truth().to_json()
    assert Truth.from_json(written) == truth()
    rows = msgspec.json.decode(written)["rows"]
    assert [row["error"] for row in rows] == [pytest.approx(-10.0), pytest.approx(0.5), None]


@pytest.mark.parametrize(
    "text",
    [b"", b"{}", b"[]", b'{"title": "t", "when": "", "rows": [{}]}', b"\xff", b"[" * 100_000],
)
def test_another_file_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match="not a comparison"):
        Truth.from_json(text)
