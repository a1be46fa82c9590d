"""What /metrics shows of hedging: every number that is counted, once."""

from __future__ import annotations

from prometheus_client import generate_latest

from router.observe.collector import Collector, Gauges
from router.observe.hedge_counts import HedgeCounts, Refusal
from router.observe.hedge_readings import hedge_readings
from router.observe.metrics import Metrics


def test_every_number_that_is_counted_is_shown() -> None:
    counts = HedgeCounts()
    expected = []
    number = 100
    for name, value in vars(counts).items():
        if name == "suppressed":
            for reason in Refusal:
                number += 1
                counts.suppressed[reason] = number
                expected.append(float(number))
        else:
            number += 1
            setattr(counts, name, type(value)(number))
            expected.append(float(number))
    shown = [v for reading in hedge_readings(counts, "adaptive") for v in reading.values.values()]
    assert sorted(shown) == expected


def test_the_page_has_them() -> None:
    counts = HedgeCounts()
    counts.fired = 7
    counts.suppressed[Refusal.BUDGET] = 3
    gauges = Gauges(readings=lambda: hedge_readings(counts, "adaptive"))
    page = generate_latest(Collector(Metrics(), gauges).registry).decode()
    assert 'hedgerow_hedges_total{event="fired"} 7.0' in page
    assert 'hedgerow_hedges_suppressed_total{reason="budget"} 3.0' in page
    assert 'hedgerow_hedge_budget_tokens{policy="adaptive"} 0.0' in page
