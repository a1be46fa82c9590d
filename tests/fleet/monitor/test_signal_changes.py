"""Two polls compared: which changes are a restart, which are work, and which are neither."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.fleet.monitor.signal_changes import has_worked, restarted, went_back
from router.fleet.signals import NO_SIGNALS, Signals

TOTALS = ("prompt_tokens", "generated_tokens", "cache_queries", "cache_hits", "preemptions")


def of(name: str, value: int | None) -> Signals:
    return Signals(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", TOTALS)
def test_a_total_that_is_less_is_a_restart(name: str) -> None:
    assert went_back(of(name, 5), of(name, 4))
    assert restarted(of(name, 5), of(name, 0))
    assert not went_back(of(name, 5), of(name, 5))
    assert not went_back(of(name, 5), of(name, 6))


@pytest.mark.parametrize("name", TOTALS)
def test_a_total_that_is_missing_proves_nothing(name: str) -> None:
    assert not restarted(of(name, 5), NO_SIGNALS)
    assert not restarted(NO_SIGNALS, of(name, 0))


@pytest.mark.parametrize("name", ["running", "waiting", "kv_tokens", "slots", "block_tokens"])
def test_what_is_no_total_may_become_less(name: str) -> None:
    assert not restarted(of(name, 5), of(name, 0))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (100.0, 200.0, True),
        (100.0, 101.0, False),  # the clock was set
        (100.0, 101.5, True),
        (100.0, 50.0, False),  # the clock was set back; a restart would also show by totals
        (100.0, 100.0, False),
        (None, 200.0, False),
        (100.0, None, False),
    ],
)
def test_a_later_start_is_a_restart(
    before: float | None, after: float | None, expected: bool
) -> None:
    assert restarted(Signals(started_at=before), Signals(started_at=after)) is expected


def test_requests_that_leave_are_work_only_of_an_engine_without_totals() -> None:
    before = Signals(running=3)
    assert has_worked(before, Signals(running=2))
    assert not has_worked(before, Signals(running=2, generated_tokens=0))
    # The prompt total alone does not tell whether requests ended by themselves.
    assert has_worked(Signals(running=3, prompt_tokens=1), Signals(running=2, prompt_tokens=1))


COUNT = st.none() | st.integers(0, 3)
SIGNALS = st.builds(
    Signals,
    running=COUNT,
    waiting=COUNT,
    kv_usage=st.none() | st.sampled_from([0.0, 0.5, 1.0]),
    prompt_tokens=COUNT,
    generated_tokens=COUNT,
    cache_queries=COUNT,
    cache_hits=COUNT,
    preemptions=COUNT,
    started_at=st.none() | st.sampled_from([1.0, 9.0]),
)


@given(SIGNALS)
def test_two_equal_polls_show_nothing(signals: Signals) -> None:
    assert not went_back(signals, signals)
    assert not restarted(signals, signals)
    assert not has_worked(signals, signals)


@given(SIGNALS, SIGNALS)
def test_totals_that_only_grow_never_show_a_restart(first: Signals, second: Signals) -> None:
    def most(name: str) -> int | None:
        known = [n for n in (getattr(first, name), getattr(second, name)) if n is not None]
        return max(known, default=None)

    later = Signals(**{name: most(name) for name in TOTALS})  # type: ignore[arg-type]
    assert not went_back(first, later)
    totals = Signals(**{name: getattr(first, name) for name in TOTALS})
    if went_back(totals, second):
        assert restarted(first, second)


@pytest.mark.parametrize(
    ("before", "after", "worked"),
    [
        (Signals(generated_tokens=5), Signals(generated_tokens=6), True),
        (Signals(generated_tokens=5), Signals(generated_tokens=5), False),
        (Signals(generated_tokens=5), Signals(generated_tokens=1), False),  # another process
        (Signals(prompt_tokens=5), Signals(prompt_tokens=9), True),
        (Signals(kv_usage=0.1), Signals(kv_usage=0.2), True),
        (Signals(kv_usage=0.2), Signals(kv_usage=0.1), False),
        (Signals(running=4, waiting=2), Signals(running=4, waiting=1), True),
        (Signals(running=4, waiting=2), Signals(running=3, waiting=2), True),
        (Signals(running=3, waiting=1), Signals(running=4, waiting=2), False),
        # Clients that disconnect from a hanging engine also leave its queue.
        (Signals(waiting=2, generated_tokens=5), Signals(waiting=1, generated_tokens=5), False),
        (NO_SIGNALS, Signals(generated_tokens=6, running=1), False),
        (Signals(generated_tokens=6, running=1), NO_SIGNALS, False),
    ],
)
def test_what_two_polls_show(before: Signals, after: Signals, worked: bool) -> None:
    assert has_worked(before, after) is worked
