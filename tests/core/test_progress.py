"""A replica's usual times, learned from streams that did not wait."""

import pytest
from hypothesis import given, strategies as st

from router.core.progress import Progress


def test_the_first_stream_sets_the_usual_time_even_if_it_waited() -> None:
    progress = Progress()
    progress.first_token(3.0, 100, False)
    assert (progress.first_s, progress.first_tokens) == (3.0, 100.0)


def test_hours_of_overload_do_not_change_what_is_usual() -> None:
    progress = Progress()
    progress.first_token(0.2, 100, True)
    for _ in range(1000):
        progress.first_token(60.0, 100, False)
    assert progress.first_s == 0.2


def test_a_stream_that_was_alone_or_quicker_does() -> None:
    progress = Progress()
    progress.first_token(1.0, 100, True)
    progress.first_token(2.0, 200, True)
    assert (progress.first_s, progress.first_tokens) == pytest.approx((1.1, 110.0))
    progress.first_token(0.1, 110, False)
    assert progress.first_s == pytest.approx(1.0)


@given(st.lists(st.tuples(st.floats(0.001, 1e4), st.integers(0, 10**6), st.booleans())))
def test_means_stay_within_what_was_seen(seen: list[tuple[float, int, bool]]) -> None:
    progress = Progress()
    for took_s, tokens, is_alone in seen:
        progress.first_token(took_s, tokens, is_alone)
        progress.whole_answer(took_s)
    if seen:
        least, most = min(s for s, _, _ in seen), max(s for s, _, _ in seen)
        assert least * 0.999 <= progress.first_s <= most * 1.001
        assert least * 0.999 <= progress.whole_s <= most * 1.001


def test_a_poll_may_show_work_that_was_done_before() -> None:
    progress = Progress()
    assert progress.after(10.0) == 10.0  # no work was ever shown
    progress.at = 12.0  # content
    assert progress.after(10.0) == 12.0
    assert progress.after(13.0) == 13.0
    progress.polled(12.5, 13.5)
    assert progress.after(13.0) == 13.0  # the work may have been done between 12.5 and 13
    assert progress.after(12.5) == 13.5
    progress.polled(13.5, 14.5)
    assert progress.after(13.0) == 14.5
    progress.at = 15.0
    assert progress.after(14.9) == 15.0
