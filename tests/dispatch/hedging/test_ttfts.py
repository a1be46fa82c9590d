"""Times to first token of one model: first assumed, then learned, with bounded work per call."""

import pytest

from router.dispatch.hedging.ttft_prior import STREAMS, WHOLES
from router.dispatch.hedging.ttfts import FORGET_S, WARM, Ttfts

USUAL_S = 0.2


def learned(now: float = 0.5, answers: int = 100) -> Ttfts:
    """Times to first token learned from answers that all took the same time."""
    ttfts = Ttfts(0.0, True)
    for _ in range(answers):
        ttfts.shown(100, USUAL_S, 1.0, now)
    return ttfts


def refreshed(ttfts: Ttfts, now: float) -> Ttfts:
    ttfts.refresh(now)
    assert now < ttfts.refresh_at
    return ttfts


@pytest.mark.parametrize(("is_streamed", "prior"), [(True, STREAMS), (False, WHOLES)])
def test_without_samples_a_default_is_assumed(is_streamed: bool, prior: object) -> None:
    ttfts = Ttfts(0.0, is_streamed)
    assert (ttfts.is_cold, ttfts.is_warm) == (True, False)
    expected_s = prior.base_s + 1000 * prior.token_s  # type: ignore[attr-defined]
    assert ttfts.predict(1000, 1.0) == pytest.approx(expected_s)
    assert ttfts.predict(1000, 3.0) == pytest.approx(3.0 * expected_s)
    assert 0.3 < ttfts.curve.quantile(0.5) < 1.5
    assert 0.01 < ttfts.curve.survival(3.0) < 0.2


def test_each_answer_replaces_one_of_the_assumed_ones() -> None:
    late = []
    for answers in (0, WARM // 2, WARM - 1, WARM):
        ttfts = refreshed(learned(answers=answers), 1.0)
        late.append(ttfts.curve.survival(2.5))
        assert ttfts.curve.shown == pytest.approx(WARM)
        assert ttfts.is_warm is (answers == WARM)
    assert late == sorted(late, reverse=True)
    assert late[-1] == 0.0 < late[-2]


def test_what_the_line_was_wrong_about_is_not_the_spread_of_the_model() -> None:
    ttfts = Ttfts(0.0, True)
    for _ in range(WARM):
        ttfts.shown(1000, 9.0, 1.0, 0.5)
    refreshed(ttfts, 1.0)
    assert ttfts.curve.quantile(1.0) < 1.1


def test_the_line_follows_a_change_of_the_whole_pool_within_a_minute_or_two() -> None:
    """Meanwhile all requests seem late, so that those at the slowest replicas get their copies."""
    ttfts, times = Ttfts(0.0, True), []
    for number in range(2400):
        took_s = USUAL_S if number < 1200 else 3.0 * USUAL_S
        ttfts.shown(100, took_s, 1.0, 0.1 * number)
        times.append(ttfts.predict(100, 1.0) / USUAL_S)
    assert times[1200 + 150] < 1.6 < times[1200 + 600]
    assert times[-1] == pytest.approx(3.0, rel=0.05)


def test_a_long_pause_forgets_the_curve_but_not_the_line() -> None:
    ttfts = refreshed(learned(), 1.0)
    assert ttfts.is_warm
    refreshed(ttfts, FORGET_S + 2.0)
    assert not ttfts.is_warm
    assert ttfts.curve.survival(2.5) == pytest.approx(Ttfts(0.0, True).curve.survival(2.5))
    assert ttfts.predict(100, 1.0) == pytest.approx(USUAL_S)


def test_answers_of_a_slow_kind_are_taken_for_what_they_are() -> None:
    ttfts = learned()
    for _ in range(100):
        ttfts.shown(100, 3.0 * USUAL_S, 3.0, 0.6)
    refreshed(ttfts, 1.0)
    assert ttfts.curve.quantile(1.0) < 1.1
    assert ttfts.predict(100, 1.0) == pytest.approx(USUAL_S)


@pytest.mark.parametrize("is_silent", [True, False])
def test_waits_at_a_replica_that_hung_do_not_move_the_line(is_silent: bool) -> None:
    ttfts = learned()
    for number in range(1, 100):
        ttfts.cut(100, 5.0 * USUAL_S, 1.0, is_silent, 0.5 + number)
    assert (ttfts.predict(100, 1.0) == pytest.approx(USUAL_S)) is is_silent


def test_what_is_absurdly_late_is_no_error() -> None:
    ttfts = learned()
    ttfts.shown(100, 1e300, 1.0, 0.6)
    ttfts.cut(100, 1e300, 1.0, False, 0.6)
    ttfts.shown(100, 0.0, 1.0, 0.6)
    refreshed(ttfts, 1.0)
    assert ttfts.curve.quantile(0.5) == pytest.approx(1.0, rel=0.05)
    assert ttfts.predict(100, 1.0) == pytest.approx(USUAL_S, rel=0.1)
