"""Figures from records: quantiles, goodput, hotspots, and failures that count as slow."""

from typing import Any

import pytest
from hypothesis import given, strategies as st

from bench.fleet import statistics

TIMES = st.lists(st.floats(0, 1e3), min_size=1, max_size=300).map(sorted)


@given(TIMES, st.floats(0.01, 0.99))
def test_a_quantile_is_exceeded_by_no_more_than_the_rest(ranked: list[float], q: float) -> None:
    value = statistics.quantile(ranked, q)
    assert value in ranked
    assert sum(t > value for t in ranked) <= (1 - q) * len(ranked) + 1e-9
    assert sum(t < value for t in ranked) < q * len(ranked) + 1e-9


@given(TIMES, st.floats(0.05, 0.95))
def test_bounds_hold_the_quantile(ranked: list[float], q: float) -> None:
    bounds = statistics.quantile_bounds(ranked, q)
    if bounds is None:
        assert len(ranked) < 100
        return
    value = statistics.quantile(ranked, q)
    assert value is not None and bounds[0] <= value <= bounds[1]


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=16))
def test_a_hotspot_lies_between_even_and_one_for_all(shares: list[int]) -> None:
    value = statistics.hotspot(shares)
    if value is None:
        assert not any(shares)
    else:
        assert 1 - 1e-9 <= value <= len(shares) + 1e-9


def counters(requests: float, queried: float = 0.0, hits: float = 0.0) -> dict[str, float]:
    return {"requests": requests, "queried": queried, "hits": hits, "preemptions": 0.0}


def record(ttft: float | None, error: str = "", measured: bool = True) -> dict[str, Any]:
    return {
        "due": 1.0,
        "sent": 1.001,
        "ttft": ttft,
        "seconds": 1.0,
        "measured": measured,
        "error": error,
    }


def played(records: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        "records": records,
        "tokens_in_window": 300,
        "measured_s": 10.0,
        "cpu_share": 0.1,
        "counters": [[counters(2), counters(4)], [counters(5, 100, 25), counters(13, 300, 75)]],
        **more,
    }


def test_a_summary_counts_what_was_measured() -> None:
    records = [record(0.1 * n) for n in range(1, 11)] + [record(9.0, measured=False)]
    seen = statistics.summarise(played(records), slo_s=0.35)
    assert (seen.requests, seen.rate) == (10, 1.0)
    assert (seen.ttft_p50, seen.ttft_p90) == (pytest.approx(0.5), pytest.approx(0.9))
    assert (seen.ttft_p95, seen.ttft_p99) == (pytest.approx(1.0), pytest.approx(1.0))
    assert seen.ttft_mean == pytest.approx(0.55)
    assert (seen.goodput, seen.good_share) == (pytest.approx(0.3), pytest.approx(0.3))
    assert (seen.tokens_s, seen.hit_rate) == (30.0, 0.25)
    assert seen.hotspot == pytest.approx(2 * 9 / 12)
    assert seen.late_p99 == pytest.approx(0.001)
    assert seen.errors == {}


def test_failing_fast_is_slow() -> None:
    records = [record(0.1)] * 8 + [record(0.01, error="stream without [DONE]"), record(None, "x")]
    seen = statistics.summarise(played(records), slo_s=1.0)
    assert seen.good_share == pytest.approx(0.8)
    assert (seen.ttft_p50, seen.ttft_p90) == (0.1, None)
    records[0] = record(0.5)
    # In the mean, both count as the slowest whole answer.
    assert statistics.summarise(played(records), slo_s=1.0).ttft_mean == pytest.approx(0.22)
    assert statistics.summarise(played([record(None, "x")]), slo_s=1.0).ttft_mean is None
    assert seen.errors == {"stream without [DONE]": 1, "x": 1}
