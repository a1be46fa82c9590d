"""Figures of outcomes: each computed by hand, and sums that hold for any outcomes."""

import json
import pickle
from math import inf

import pytest
from hypothesis import given, strategies as st

from router.core.errors import Reason
from router.lab.replay.report.group import Series
from router.lab.replay.report.slo import Slo
from router.lab.replay.report.summary import CLASSES_MAX, OTHERS, TENANTS_MAX
from router.lab.simulator.outcome import Outcome
from tests.lab.replay.report.made import outcome, summary

# Four requests, one after the other: in time, late first token, slow tokens, failed.
FOUR = (
    outcome(10.0, 0.5, 0.05, prompt=100, output=11, cached=60, expected=50),
    outcome(11.0, 2.0, 0.05, prompt=300, output=21, cached=100, expected=160, replica="r1"),
    outcome(12.0, 0.5, 0.20, prompt=100, output=11, replica="r1"),
    outcome(13.0, None, reason=Reason.REPLICA_RESET, attempts=3, replica="r1"),
)


def near(value: float) -> object:
    return pytest.approx(value, rel=0.011)  # the error that a sketch may have


def test_the_figures_of_four_requests() -> None:
    made = summary(FOUR)
    group = made.all
    assert (group.requests, group.failed, group.good) == (4, 1, 1)
    assert (group.prompt_tokens, group.cached_tokens, group.output_tokens) == (500, 160, 43)
    assert group.good_tokens == 11
    assert group.attainment == 0.25
    assert group.hit_rate == 0.32
    assert group.ttft.mean == pytest.approx(1.0)
    # The time from the first arrival at 10 to the last end: 12 + 0.5 + 10 * 0.2 s, and 13 + 1 s.
    assert made.span_s == 14.5 - 10.0
    assert made.goodput == pytest.approx(1 / 4.5)
    assert made.per_s(group.output_tokens) == pytest.approx(43 / 4.5)
    assert made.reasons == {Reason.REPLICA_RESET: 1}
    assert made.attempts == {1: 3, 3: 1}
    assert made.repeated == 1
    assert made.hotspot == 2 * 3 / 4
    assert (made.knowledge.expected, made.knowledge.too_high, made.knowledge.too_low) == (
        *(210, 60, 10),
    )


def test_a_failed_request_is_slower_than_all_others() -> None:
    group = summary(FOUR).all
    assert group.quantile(group.ttft, 0.5) == near(0.5)
    assert group.quantile(group.ttft, 0.75) == near(2.0)
    assert group.quantile(group.ttft, 0.76) == inf


def test_the_slo_is_met_at_its_very_edge() -> None:
    slo = Slo(ttft_s=0.5, tpot_s=0.0625)  # both limits are exact as floats
    made = summary([outcome(0.0, 0.5, 0.0625)], slo=slo)
    assert made.all.good == 1
    assert summary([outcome(0.0, 0.53125, 0.0625)], slo=slo).all.good == 0
    assert summary([outcome(0.0, 0.5, 0.078125)], slo=slo).all.good == 0


def test_an_answer_without_tokens_shows_itself_whole() -> None:
    """An answer without tokens is an embedding, or its first token was not recorded."""
    made = summary([outcome(0.0, None, output=0)])
    assert made.all.ttft.mean == 1.0
    assert made.all.failed == 0


def test_classes_and_tenants_are_reported_separately() -> None:
    made = summary(
        [
            outcome(0.0, 0.5, priority="critical", tenant="a"),
            outcome(1.0, 3.0, priority="batch", tenant="a"),
            outcome(2.0, 0.5, tenant="b"),
        ]
    )
    assert {name: group.good for name, group in made.by_class.items()} == {
        "critical": 1,
        "batch": 0,
    }
    assert {name: group.requests for name, group in made.by_tenant.items()} == {"a": 2, "b": 1}


def test_tenants_and_classes_are_bounded() -> None:
    many = TENANTS_MAX + CLASSES_MAX
    made = summary([outcome(tenant=f"t{n}", priority=f"c{n}") for n in range(many)])
    assert len(made.by_tenant) == TENANTS_MAX + 1
    assert made.by_tenant[OTHERS].requests == many - TENANTS_MAX
    assert len(made.by_class) == CLASSES_MAX + 1
    assert made.by_class[OTHERS].requests == many - CLASSES_MAX


@pytest.mark.parametrize("times", [(0.0, 1.0), (1.0, -1.0), (inf, 1.0), (1.0, float("nan"))])
def test_an_slo_is_a_time(times: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="above 0"):
        Slo(*times)


@st.composite
def outcomes(draw: st.DrawFn) -> Outcome:
    reason = draw(st.sampled_from([Reason.OK, Reason.OK, Reason.NO_REPLICA, Reason.TTFT_TIMEOUT]))
    return outcome(
        draw(st.floats(0.0, 1e5)),
        draw(st.floats(0.0, 100.0)) if reason is Reason.OK else None,
        draw(st.floats(0.0, 1.0)),
        prompt=draw(st.integers(1, 10_000)),
        output=draw(st.integers(0, 100)),
        cached=draw(st.integers(0, 10_000)),
        expected=draw(st.integers(0, 10_000)),
        replica=draw(st.sampled_from(["", "r0", "r1"])),
        reason=reason,
        attempts=draw(st.integers(1, 3)),
        tenant=draw(st.sampled_from(["a", "b"])),
        priority=draw(st.sampled_from(["high", "low"])),
    )


@given(st.lists(outcomes(), max_size=30))
def test_parts_sum_to_the_whole(made: list[Outcome]) -> None:
    found = summary(made)
    for parts in (found.by_class, found.by_tenant):
        for name in ("requests", "failed", "good", "prompt_tokens", "cached_tokens"):
            assert sum(getattr(part, name) for part in parts.values()) == getattr(found.all, name)
    assert found.all.requests == len(made) == sum(found.attempts.values())
    assert found.all.failed == sum(found.reasons.values())
    assert found.all.ttft.count == found.all.requests - found.all.failed
    assert sum(one.requests for one in found.series) == len(made)
    knowledge = found.knowledge
    assert knowledge.expected - knowledge.too_high + knowledge.too_low == found.all.cached_tokens


@given(st.lists(outcomes(), max_size=10))
def test_the_document_is_plain_and_survives_another_process(made: list[Outcome]) -> None:
    found = summary(made)
    text = json.dumps(found.document(), allow_nan=False)
    assert json.dumps(pickle.loads(pickle.dumps(found)).document(), allow_nan=False) == text


times = st.lists(st.floats(0.0, 1e7), min_size=1, max_size=60)


def series_of(moments: list[float], bins_max: int = 8) -> Series:
    series = Series(bins_max)
    for moment in moments:
        series.answered(moment, 1.0)
        series.sampled(moment, [0, 2])
    return series


@given(times, st.integers(1, 16))
def test_the_number_of_bins_is_bounded_and_nothing_is_lost(moments: list[float], most: int) -> None:
    series = series_of(moments, most)
    assert len(series) <= most
    for found in (series, series.coarse(3)):
        assert sum(one.requests for one in found) == len(moments)
        assert sum(one.ttft.count for one in found) == len(moments)
        assert sum(one.samples for one in found) == len(moments)
        assert sum(one.load_max for one in found) == 2 * len(moments)
    assert len(series.coarse(3)) <= 3


@given(times)
def test_everything_is_in_the_bin_of_its_time(moments: list[float]) -> None:
    series = series_of(moments)
    counts = [0] * len(series)
    for moment in moments:
        counts[int(moment / series.width_s)] += 1
    assert [one.requests for one in series] == counts


def test_a_sample_is_the_mean_and_its_ends() -> None:
    series = Series()
    series.sampled(0.0, [1, 2, 6])
    (one,) = series
    assert (one.load, one.load_min, one.load_max) == (3.0, 1.0, 6.0)


def test_bins_double_until_they_reach() -> None:
    series = Series(4)
    series.answered(0.0, 1.0)
    series.answered(100.0, 1.0)
    assert series.width_s == pytest.approx(32.0)
    assert [one.requests for one in series] == [1, 0, 0, 1]
