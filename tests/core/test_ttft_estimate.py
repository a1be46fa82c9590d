"""The estimate of one request: what it says, what it teaches, and when it refuses."""

from math import log

import pytest

from router.core.conformal import LEAST
from router.core.errors import Reason
from router.core.estimate_cells import LEAD
from router.core.ttft_estimate import (
    AT_ONCE,
    FRESH_S,
    LATER,
    STATES,
    TtftEstimate,
    TtftEstimates,
    header_value,
)

NORMAL, BATCH = 2, 4


class Past:
    """First tokens that took these multiples of their predictions."""

    def __init__(self, ratios: list[float] | None = None) -> None:
        self.estimates = TtftEstimates()
        self.now = 1000.0
        cell = self.estimates.cells[NORMAL * len(STATES) + AT_ONCE].shared
        for ratio in [2.0] * LEAST if ratios is None else ratios:
            cell.interval.add(log(ratio))
            cell.learned_at = self.now

    def arrives(self, predicted_s: float, *, idle_s: float = 0.0, of: int = NORMAL) -> TtftEstimate:
        return self.estimates.of(of, AT_ONCE, "", predicted_s, idle_s, self.now)

    def shows(self, estimate: TtftEstimate, took_s: float) -> None:
        estimate.shown(self.now + took_s)
        self.now += 0.001


def test_nothing_is_estimated_before_enough_is_known() -> None:
    past = Past([2.0] * (LEAST - 1))
    estimate = past.arrives(1.0)
    assert not estimate.is_given
    assert not estimate.is_late(past.now, past.now)
    past.shows(estimate, 2.0)
    assert not estimate.is_judged
    assert past.arrives(1.0).is_given
    assert not past.arrives(1.0, of=BATCH).is_given
    assert not past.estimates.of(NORMAL, LATER, "", 1.0, 0.0, past.now).is_given


def test_the_median_error_corrects_the_prediction() -> None:
    estimate = Past().arrives(3.0)
    assert estimate.estimate_s == pytest.approx(6.0)
    assert estimate.low_s == estimate.high_s == pytest.approx(6.0)


def test_the_interval_has_the_errors_of_the_past() -> None:
    past = Past([1.0 + 0.01 * n for n in range(1, 100)])
    estimate = past.arrives(10.0)
    bounds = (estimate.low_s, estimate.estimate_s, estimate.high_s)
    assert bounds == pytest.approx((10.5, 15.0, 19.5), rel=0.02)


@pytest.mark.parametrize(("took_s", "is_kept"), [(1.0, False), (15.0, True), (25.0, False)])
def test_an_estimate_is_judged_once(took_s: float, is_kept: bool) -> None:
    past = Past([1.0 + 0.01 * n for n in range(1, 100)])
    estimate = past.arrives(10.0)
    past.shows(estimate, took_s)
    assert (estimate.is_judged, estimate.is_kept) == (True, is_kept)
    count = len(past.estimates.cells[NORMAL * len(STATES)].shared.interval._ring)
    estimate.ended(past.now + 500.0)
    estimate.shown(past.now + 500.0)
    assert (estimate.is_judged, estimate.is_kept) == (True, is_kept)
    assert len(past.estimates.cells[NORMAL * len(STATES)].shared.interval._ring) == count


def test_an_attempt_without_content_does_not_teach_that_answers_are_fast() -> None:
    past = Past([1.0 + 0.01 * n for n in range(1, 100)])
    before = past.arrives(10.0)
    for _ in range(100):
        left = past.arrives(10.0)
        left.ended(past.now + 2.0)
        assert not left.is_judged
    after = past.arrives(10.0)
    assert after.low_s >= before.low_s
    assert after.high_s >= before.high_s


def test_an_attempt_that_ended_after_its_interval_is_a_miss() -> None:
    past = Past([1.0 + 0.01 * n for n in range(1, 100)])
    left = past.arrives(10.0)
    left.ended(past.now + 60.0)
    assert (left.is_judged, left.is_kept) == (True, False)
    assert past.arrives(10.0).high_s > 19.0


def test_given_estimates_are_pending_until_their_time_is_known() -> None:
    past = Past()
    cell = past.estimates.cells[NORMAL * len(STATES)].shared
    shown, ended, void = (past.arrives(1.0) for _ in range(3))
    assert cell.pending == 3
    past.shows(shown, 2.0)
    ended.ended(past.now)
    void.void()
    void.ended(past.now)
    assert cell.pending == 0


def test_a_void_estimate_teaches_nothing() -> None:
    past = Past()
    estimate = past.arrives(1.0)
    estimate.void()
    estimate.shown(past.now + 50.0)
    estimate.ended(past.now + 50.0)
    assert not estimate.is_judged
    assert past.arrives(1.0).high_s == pytest.approx(2.0)


def test_a_request_is_late_only_by_the_lower_bound() -> None:
    past = Past([1.0 + 0.01 * n for n in range(1, 100)])
    estimate = past.arrives(10.0)
    assert estimate.is_late(past.now + 0.99 * estimate.low_s, past.now)
    assert not estimate.is_late(past.now + 1.01 * estimate.low_s, past.now)


def test_one_outlier_refuses_nothing() -> None:
    past = Past([1.0] * 30)
    past.shows(past.arrives(1.0), 1000.0)
    assert not past.arrives(1.0).is_late(past.now + 1.5, past.now)


def test_old_errors_refuse_nothing() -> None:
    past = Past()
    learned_at = past.estimates.cells[NORMAL * len(STATES)].shared.learned_at
    past.now = learned_at + 0.9 * FRESH_S
    assert past.arrives(1.0).is_late(past.now, past.now)
    past.now = learned_at + 1.1 * FRESH_S
    assert not past.arrives(1.0).is_late(past.now, past.now)


def test_retry_after_is_when_the_estimate_would_meet_the_limit() -> None:
    """The work ahead takes 9 s by the prediction and the own prefill 1 s; all takes twice as
    long. A limit of 4 s is met when 2 s are predicted, after 8 s."""
    past = Past()
    err = past.arrives(10.0, idle_s=1.0).late_error(past.now + 4.0)
    assert (err.reason, err.status) == (Reason.TTFT_UNREACHABLE, 429)
    assert err.retry_after_s == pytest.approx(8.0, abs=1.0)
    assert (
        err.message == "the first token is expected in 20 s, and not before 20 s, but is due in 4 s"
    )


def test_there_is_no_retry_after_if_an_idle_replica_is_too_slow() -> None:
    past = Past()
    err = past.arrives(10.0, idle_s=3.0).late_error(past.now + 4.0)
    assert err.retry_after_s is None
    assert "also at an idle replica" in err.message


def test_the_header_counts_from_the_arrival() -> None:
    past = Past([1.0 + 0.01 * n for n in range(1, 100)])
    estimate = past.arrives(1.0)
    assert header_value(estimate, past.now - 1.0) == b"2500; low=2050; high=2950"


def test_the_misses_of_the_largest_account_do_not_widen_the_interval_of_others() -> None:
    past = Past([1.0 + 0.01 * n for n in range(1, 100)])
    cells = past.estimates.cells[NORMAL * len(STATES) + AT_ONCE]
    before = past.arrives(10.0)
    for _ in range(LEAD):
        past.shows(past.arrives(10.0), 15.0)
    for _ in range(500):
        past.shows(past.estimates.of(NORMAL, AT_ONCE, "burst", 10.0, 0.0, past.now), 80.0)
    assert cells.of("burst") is not cells.of("")
    assert past.arrives(10.0).high_s < 1.5 * before.high_s
    assert past.estimates.of(NORMAL, AT_ONCE, "burst", 10.0, 0.0, past.now).low_s > 50.0


def test_a_wait_longer_than_the_interval_is_a_miss_at_once_and_only_once() -> None:
    estimates = TtftEstimates()
    cells = estimates.cells[NORMAL * len(STATES) + LATER]
    for number in range(1, 100):
        cells.shared.interval.add(log(1.0 + 0.01 * number))

    def arrives(now: float) -> TtftEstimate:
        return estimates.of(NORMAL, LATER, "", 10.0, 0.0, now)

    interval = cells.shared.interval
    quick = arrives(0.0)
    quick.shown(15.0)
    before = interval.high_level
    slow = arrives(quick.high_s + 0.1)
    assert interval.high_level == before
    due = slow.made_at + slow.high_s
    arrives(due - 0.1)
    assert interval.high_level == before
    arrives(due + 0.1)
    assert interval.high_level < before
    before = interval.high_level
    arrives(due + 0.2)
    slow.shown(due + 60.0)
    assert interval.high_level == before
    assert (slow.is_judged, slow.is_kept) == (True, False)
    assert (quick.is_judged, quick.is_kept) == (True, True)


def test_a_miss_of_an_account_that_learns_apart_now_is_not_one_of_the_others() -> None:
    estimates = TtftEstimates()
    cells = estimates.cells[NORMAL * len(STATES) + LATER]
    for number in range(1, 100):
        cells.shared.interval.add(log(1.0 + 0.01 * number))
    slow = estimates.of(NORMAL, LATER, "burst", 10.0, 0.0, 0.0)
    for account in ["other"] + 3 * LEAD * ["burst"]:
        cells.learn(account, 0.4, False, 1.0)
    assert cells.of("burst") is not cells.shared
    before = cells.shared.interval.high_level
    estimates.of(NORMAL, LATER, "other", 10.0, 0.0, slow.high_s + 1.0)
    assert slow.is_counted
    assert cells.shared.interval.high_level == before


def test_estimates_whose_times_are_known_cost_no_memory() -> None:
    estimates = TtftEstimates()
    cells = estimates.cells[NORMAL * len(STATES) + LATER]
    for _ in range(1000):
        estimates.of(NORMAL, LATER, "", 1000.0, 0.0, 0.0).shown(1000.0)
    assert len(cells.shared.due) <= 66
