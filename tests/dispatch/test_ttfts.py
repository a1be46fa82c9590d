"""First contents in sliding windows: when there are enough, what is forgotten, what is late."""

from __future__ import annotations

from random import Random

import pytest

from router.dispatch.ttfts import FORGET_S, SLICES, WARM, Ttfts


def answers(ttfts: Ttfts, ratios: list[float], now: float) -> None:
    for ratio in ratios:
        ttfts.shown(100, 0.2 * ratio, 0.2, now)


def median(ttfts: Ttfts) -> float:
    assert ttfts.curve is not None
    return ttfts.curve.quantile(0.5)


def test_nothing_is_late_before_there_are_enough() -> None:
    ttfts = Ttfts(0.0)
    answers(ttfts, [1.0] * (WARM - 1), 0.5)
    for _ in range(100):
        ttfts.cut(100, 0.1, 0.2, 0.5)  # these do not tell what is usual
    ttfts.refresh(1.0)
    assert ttfts.curve is None
    answers(ttfts, [1.0], 1.5)
    ttfts.refresh(2.0)
    assert ttfts.curve is not None


def test_what_nobody_predicted_teaches_the_line_only() -> None:
    ttfts = Ttfts(0.0)
    for _ in range(100):
        ttfts.shown(100, 0.3, 0.0, 0.5)
        ttfts.cut(100, 9.0, 0.0, 0.5)
    ttfts.refresh(1.0)
    assert ttfts.curve is None
    assert ttfts.fit.predict(100) == pytest.approx(0.3)


def test_the_window_slides() -> None:
    ttfts, now = Ttfts(0.0), 0.0
    for _ in range(40):
        now += 1.0
        answers(ttfts, [1.0] * 20, now)
        ttfts.refresh(now)
    assert median(ttfts) == pytest.approx(1.0, rel=0.05)
    for second in range(40):
        now += 1.0
        answers(ttfts, [3.0] * 20, now)
        ttfts.refresh(now)
        if second == 24:
            assert median(ttfts) == pytest.approx(3.0, rel=0.05)
    assert ttfts.curve is not None
    assert ttfts.curve.survival(2.0) == 1.0  # none of the first ones is left


def test_where_few_come_the_window_waits_for_them() -> None:
    ttfts, now = Ttfts(0.0), 0.0
    for _ in range(200):
        now += 10.0
        answers(ttfts, [1.0], now)
        ttfts.refresh(now)
    assert ttfts.curve is not None
    assert WARM <= ttfts.curve.shown <= SLICES * 7


def test_a_long_pause_forgets_what_was_but_not_the_line() -> None:
    ttfts = Ttfts(0.0)
    answers(ttfts, [1.0] * 100, 0.5)
    ttfts.refresh(1.0)
    ttfts.refresh(FORGET_S + 2.0)
    assert ttfts.curve is None
    assert ttfts.fit.predict(100) == pytest.approx(0.2)


def test_nobody_is_late_for_sharing_a_bucket() -> None:
    rng = Random(1)
    ratios = [rng.uniform(0.999, 1.001) for _ in range(200)]
    ttfts = Ttfts(0.0)
    answers(ttfts, ratios, 0.5)
    ttfts.refresh(1.0)
    assert ttfts.curve is not None
    assert max(ratios) <= ttfts.curve.quantile(1.0) <= 1.05


def test_cut_attempts_keep_the_tail() -> None:
    ttfts = Ttfts(0.0)
    answers(ttfts, [1.0] * 95, 0.5)
    for _ in range(5):
        ttfts.cut(100, 0.2 * 2.5, 0.2, 0.5)
    ttfts.refresh(1.0)
    assert ttfts.curve is not None
    assert ttfts.curve.survival(2.0) == pytest.approx(0.05)


def test_what_is_absurdly_late_is_no_error() -> None:
    ttfts = Ttfts(0.0)
    answers(ttfts, [1e300, 1e12], 0.5)
    ttfts.cut(100, 1e300, 0.2, 0.5)
    answers(ttfts, [1.0] * 40, 0.5)
    ttfts.refresh(1.0)
    assert median(ttfts) == pytest.approx(1.0, rel=0.05)
    assert ttfts.fit.predict(100) == pytest.approx(0.2, rel=0.1)
