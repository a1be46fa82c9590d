"""Figures of measured and simulated runs: the same arithmetic, and medians of several runs."""

from math import inf, nan
from typing import Any

import msgspec
import pytest

from bench.fleet.truth.figures import KINDS, Row, Truth, figures, offset_s
from bench.fleet.truth.simulated import NOTHING, Outcomes
from router.core.errors import Reason
from router.lab.replay.truth.judged import error_of
from router.lab.simulator.outcome import Outcome
from router.lab.simulator.traffic import Arrival


def record(due: float, ttft: float | None, seconds: float, tokens: int, **more: Any) -> Any:
    return {
        "due": due,
        "sent": due + more.pop("late", 0.0),
        "ttft": ttft,
        "seconds": seconds,
        "prompt_tokens": 100,
        "output_tokens": tokens,
        "measured": True,
        "error": "",
        **more,
    }


def played(*records: Any) -> dict[str, Any]:
    after = {"requests": 4.0, "queried": 400.0, "hits": 100.0, "preemptions": 0.0}
    other = {**after, "requests": 0.0, "queried": 0.0, "hits": 0.0}
    return {
        "records": list(records),
        "tokens_in_window": 0,
        "measured_s": 1.0,
        "cpu_share": 0.0,
        "counters": [[NOTHING, NOTHING], [after, other]],
    }


def test_figures_are_those_of_measured_requests() -> None:
    found = figures(
        played(
            record(0.0, 9.0, 9.0, 99, measured=False),
            record(10.0, 0.1, 1.1, 11),
            record(11.0, 0.3, 2.3, 11),
            record(12.0, 0.2, 3.0, 15),
        ),
        slo_s=0.25,
    )
    assert found == {
        "TTFT p50": pytest.approx(200.0),
        "TTFT p90": pytest.approx(300.0),
        "TTFT p99": pytest.approx(300.0),
        "TPOT p50": pytest.approx(200.0),
        "TPOT p99": pytest.approx(200.0),
        "requests": pytest.approx(3 / 5.0),  # from 10 to 15 s
        "output tokens": pytest.approx(37 / 5.0),
        "in SLO": pytest.approx(100 * 2 / 3),
        "hit rate": pytest.approx(25.0),
        "hotspot": pytest.approx(2.0),
        "failed": 0.0,
    }
    assert found.keys() == {kind.name for kind in KINDS}


def test_the_offset_is_between_the_same_requests() -> None:
    ours = played(record(1.0, 0.11, 1, 1), record(2.0, 0.52, 1, 1), record(3.0, 0.93, 1, 1))
    model = played(record(1.0, 0.10, 1, 1), record(2.0, 0.50, 1, 1), record(3.0, 0.90, 1, 1))
    assert offset_s(ours, model) == pytest.approx(0.02)
    ours["records"][1]["error"] = "cut"
    assert offset_s(ours, model) == pytest.approx(0.02)  # the median of 0.01 and 0.03
    assert offset_s(played(), model) is None


# -- outcomes and log lines as records ---------------------------------------------------------


def outcome(at: float, first: float, ended: float, tokens: int, reason: Reason) -> Outcome:
    found = Outcome(Arrival(0, at, 1000, tokens), "r0", 0, at)
    found.first, found.ended, found.reason, found.cached_tokens = first, ended, reason, 250
    return found


def test_outcomes_become_records() -> None:
    heard = Outcomes(1.0, 3.0)
    heard.ended(outcome(2.0, 2.5, 3.5, 11, Reason.OK))  # tokens at 2.5, 2.6, ... 3.5
    heard.ended(outcome(0.5, 0.6, 0.7, 2, Reason.OK))
    heard.ended(outcome(1.5, -1.0, 1.6, 9, Reason.CONNECT_FAILED))
    found = heard.played(2.0, heard.served.counters())
    assert [(r["due"], r["measured"], r["error"]) for r in found["records"]] == [
        (0.5, False, ""),
        (1.5, True, "connect_failed"),
        (2.0, True, ""),
    ]
    assert found["records"][2]["ttft"] == pytest.approx(0.5)
    assert found["records"][2]["seconds"] == pytest.approx(1.5)
    assert found["records"][1]["output_tokens"] == 0
    assert found["tokens_in_window"] == 5
    seen = figures(found, slo_s=1.0)
    assert (seen["hit rate"], seen["failed"], seen["TPOT p50"]) == (25.0, 1.0, pytest.approx(100.0))


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
