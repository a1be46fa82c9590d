"""Two polls compared: which changes are a restart, which are work, and which are neither."""

import pytest

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
