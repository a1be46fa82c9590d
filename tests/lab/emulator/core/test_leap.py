"""Leaps: series of steps without events, alone and in the engine core."""

from itertools import accumulate

import pytest
from hypothesis import given, strategies as st

from router.lab.emulator.core.engine_core import FINISHED, CoreConfig, EngineCore, Request
from router.lab.emulator.core.leap import Leap
from router.lab.emulator.core.timing import PROFILES, Timing
from router.lab.emulator.settings import EngineSettings
from tests.lab.emulator.core.engine_on_paper import STEP, times, turn


def started(begin: float, first_s: float, more_s: float, steps: int) -> Leap:
    leap = Leap()
    leap.start(begin, first_s, more_s, steps)
    return leap


def ends(begin: float, first_s: float, more_s: float, steps: int) -> list[float]:
    """End times of the steps, added step by step."""
    return list(accumulate((first_s + k * more_s for k in range(steps)), initial=begin))[1:]


eighths = st.integers(0, 80).map(lambda number: number / 8)


@given(eighths, eighths, eighths, st.integers(1, 50), st.integers(-1, 60), eighths)
def test_the_step_under_way_is_the_first_that_ends_at_or_after_now(
    begin: float, first_s: float, more_s: float, steps: int, near: int, off: float
) -> None:
    first_s = max(first_s, more_s)  # as in an engine: a sequence has more than one token
    leap = started(begin, first_s, more_s, steps)
    expected = ends(begin, first_s, more_s, steps)
    assert [leap.end_of(step) for step in range(1, steps + 1)] == expected
    assert leap.end == expected[-1]
    now = ([begin, *expected])[min(near, steps)] + (off - 5)  # exactly at an end, or anywhere
    under_way = next((step for step, end in enumerate(expected, 1) if end >= now), steps)
    assert leap.under_way(now) == under_way


@given(
    st.floats(0, 1e9),
    st.floats(1e-6, 1),
    st.floats(0, 1e-2),
    st.integers(1, 10_000),
    st.floats(0, 1.1),
)
def test_rounding_does_not_take_it_to_another_step(
    begin: float, first_s: float, more_s: float, steps: int, part: float
) -> None:
    leap = started(begin, first_s + more_s, more_s, steps)
    now = begin + part * (leap.end - begin)
    step = leap.under_way(now)
    assert step == 1 or leap.end_of(step - 1) < now
    assert step == steps or leap.end_of(step) >= now


def test_of_steps_shorter_than_the_clock_can_tell_apart_it_is_the_first() -> None:
    leap = started(1e9, 1e-9, 0.0, 1000)
    for now in {leap.end_of(step) for step in range(1, 1001)} - {1e9}:
        step = leap.under_way(now)
        assert leap.end_of(step - 1) < now == leap.end_of(step)


def test_a_cut_leap_ends_with_that_step_and_can_be_put_off() -> None:
    leap = started(10.0, 1.0, 0.5, 9)
    leap.cut(3)
    assert (leap.steps, leap.end) == (3, 14.5)
    leap.cut(7)
    assert (leap.steps, leap.end) == (3, 14.5)
    leap.put_off(2.0)
    assert leap.end == 16.5
    assert leap.under_way(100.0) == 3


def make(timing: Timing = STEP, **config: int | bool) -> EngineCore[Request]:
    return EngineCore(CoreConfig(token_events=False, leap=True, **config), timing)  # type: ignore[arg-type]


def test_an_answer_is_three_events_however_long() -> None:
    core = make(block_size=16)
    core.submit(Request("a", 10, 5000), now=0.0)
    ends = []
    while (due := core.next_event(0.0)) is not None:
        core.advance(due)
        ends.append(due)
    assert ends == [0.0, 1.0, 5000.0]
    assert (core.steps, core.generation_tokens, core.kv.peak) == (5000, 5000, 314)


def test_each_step_of_a_leap_is_longer_by_the_tokens_of_the_one_before() -> None:
    core = make(Timing(8.0, 0.0, 0.0, 1.0, 0.5, 0.25))
    core.submit(Request("a", 4, 4), now=0.0)
    core.submit(Request("b", 5, 4), now=0.0)
    # Three steps of two sequences: 1 + 2*0.5 + 0.25 * (11, then 13, then 15 tokens of context).
    assert times(turn(core), FINISHED)["b"] == 8.0 + 4.75 + 5.25 + 5.75


def test_looking_in_the_middle_shows_the_figures_of_that_moment_and_changes_nothing() -> None:
    core = make(block_size=4)
    a = Request("a", 4, 20)
    core.submit(a, now=0.0)
    turn(core, until=1.0)
    assert (core.generated(a), core.kv.used) == (1, 2)
    assert (core.stepped_at(7.5), core.clock) == (7.0, 1.0)
    core.settle(7.5)
    assert (core.generated(a), core.kv.used, core.clock) == (7, 3, 7.0)
    assert (core.steps, core.steps_ended, core.generation_tokens) == (8, 7, 7)
    core.settle(7.5)
    assert core.steps == 8
    assert core.next_event(7.5) == 20.0
    assert times(turn(core), FINISHED) == {"a": 20.0}
    assert (core.steps, core.generation_tokens) == (20, 20)


def test_leaps_and_token_events_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="token_events"):
        CoreConfig(leap=True)


A100 = PROFILES["llama2-70b-a100x8"]


def test_a_fitted_prefill_and_decode_step() -> None:
    ms = 1e-3
    assert A100.prefill_alone_s(1000) == pytest.approx((37.5 + 107 + 9.5) * ms)
    assert A100.step_s(0, 0, 10, 5000) == pytest.approx((44.1 + 2.11 + 1.6) * ms)


@pytest.mark.parametrize(("prefill_s", "decode_s"), [(3.0, 2.0), (2.0, 3.0)])
def test_a_mixed_step_pays_its_larger_constant_part_once(prefill_s: float, decode_s: float) -> None:
    timing = Timing(prefill_s, 0.1, 0.0, decode_s, 0.5, 0.0)
    assert timing.step_s(10, 100, 4, 99) == pytest.approx(3.0 + 1.0 + 2.0)


def test_a_cached_prefix_is_not_computed_but_attended_to() -> None:
    whole, behind = A100.prefill_alone_s(4000), A100.prefill_alone_s(4000, cached=3000)
    fresh = A100.prefill_alone_s(1000)
    assert fresh < behind < whole


@given(st.lists(st.integers(1, 2000), min_size=1, max_size=8))
def test_chunks_of_a_prefill_sum_to_the_whole(chunks: list[int]) -> None:
    total, start = 0.0, 0
    for chunk in chunks:
        end = start + chunk
        total += A100.step_s(chunk, end * end - start * start, 0, 0) - A100.prefill_s
        start = end
    assert total == pytest.approx(A100.prefill_alone_s(start) - A100.prefill_s)


def test_instant_takes_no_time() -> None:
    assert PROFILES["instant"].step_s(9999, 9999, 99, 9999) == 0


def test_the_realistic_card_keeps_the_ratio_of_what_was_measured_and_speed_scales_it() -> None:
    settings = EngineSettings(profile="realistic", speed=4.0)
    measured = A100.prefill_alone_s(4000) / A100.step_s(0, 0, 32, 32_000)
    ours = settings.timing().prefill_alone_s(4000) / settings.timing().step_s(0, 0, 32, 32_000)
    assert ours == pytest.approx(measured)
    whole = PROFILES["realistic"].step_s(0, 0, 32, 32_000)
    assert settings.timing().step_s(0, 0, 32, 32_000) == pytest.approx(whole / 4)
    # The measured model has about 8.6e9 parameters per card, the modelled one 8.0e9.
    assert 0.9 < PROFILES["realistic"].prefill_token_s / A100.prefill_token_s < 1.0
