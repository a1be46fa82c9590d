"""The gain of a request, against the sum of its formula over all tokens."""

from math import inf

import pytest
from hypothesis import given, strategies as st

from router.core.token_gain import (
    StreamGain,
    expected_tokens,
    on_time_at_once,
    on_time_evenly,
    tokens_due,
)

# Multiples of 1/64 are exact as floats, and so are their sums and products here.
TICK = 1 / 64
TICKS = st.integers(0, 640).map(lambda n: n * TICK)
PACES = st.integers(1, 64).map(lambda n: n * TICK)


def plain_sum(first_due: float, tpot_s: float, times: list[float]) -> int:
    """TDG with a worth of 1: the tokens that came before their deadlines."""
    return sum(at < first_due + i * tpot_s for i, at in enumerate(times))


# -- streams ------------------------------------------------------------------------------------


def relayed(gain: StreamGain, reads: list[tuple[float, int]], quiet: int = 0) -> None:
    """Relay reads, each a time and a number of events, as `Reply.relay` does. The first `quiet`
    events have no content.
    """
    events = -quiet
    for at, count in reads:
        if at >= gain.check_at:
            gain.reads(at, events)
        events += count


@st.composite
def streams(draw: st.DrawFn) -> list[tuple[float, int]]:
    """Reads of a stream in the order of their times, of one or more events."""
    reads, at = [], 0.0
    for _ in range(draw(st.integers(1, 12))):
        at += draw(st.integers(0, 128)) * TICK
        reads.append((at, draw(st.sampled_from([1, 1, 1, 2, 7]))))
    return reads


def times_of(reads: list[tuple[float, int]]) -> list[float]:
    return [at for at, count in reads for _ in range(count)]


@given(streams(), TICKS, PACES, st.integers(0, 2))
def test_a_stream_counts_what_the_formula_counts(
    reads: list[tuple[float, int]], first_due: float, tpot_s: float, closing: int
) -> None:
    """Up to two events at the end have no content."""
    times = times_of(reads)
    content = max(1, len(times) - closing)
    gain = StreamGain(first_due, tpot_s)
    relayed(gain, reads)
    wanted = plain_sum(first_due, tpot_s, times[:content])
    assert gain.share(content) * content == pytest.approx(wanted)


@given(streams(), streams(), TICKS, PACES, st.integers(0, 2))
def test_a_continued_stream_counts_as_one(
    one: list[tuple[float, int]],
    other: list[tuple[float, int]],
    first_due: float,
    tpot_s: float,
    quiet: int,
) -> None:
    """The stream of the second replica may begin with events without content."""
    last = one[-1][0]
    other = [(at + last, count) for at, count in other]
    begins, *rest = other
    gain = StreamGain(first_due, tpot_s)
    relayed(gain, one)
    before = sum(count for _, count in one)
    gain.before += before
    relayed(gain, [(begins[0], begins[1] + quiet), *rest], quiet)
    times = times_of(one) + times_of(other)
    content = len(times) - before
    wanted = plain_sum(first_due, tpot_s, times)
    assert gain.share(content) * len(times) == pytest.approx(wanted)


@given(streams(), TICKS, PACES)
def test_no_more_than_all_is_on_time(
    reads: list[tuple[float, int]], first_due: float, tpot_s: float
) -> None:
    gain = StreamGain(first_due, tpot_s)
    relayed(gain, reads)
    assert 0.0 <= gain.share(len(times_of(reads))) <= 1.0


def test_a_stream_without_content_has_no_share() -> None:
    gain = StreamGain(1.0, 1.0)
    gain.reads(2.0, -1)
    assert gain.share(0) == gain.share(-2) == -1.0


def test_a_stream_ahead_of_its_deadlines_is_rarely_looked_at() -> None:
    """A thousand events at twice the rate of the SLO: the checks are at growing distances."""
    gain, checks = StreamGain(1.0, 0.5), []
    for index in range(1000):
        at = 0.25 * index
        if at >= gain.check_at:
            checks.append(at)
            gain.reads(at, index)
    assert gain.share(1000) == 1.0
    assert checks == [1.0, 3.0, 7.0, 15.0, 31.0, 63.0, 127.0]


# -- other answers --------------------------------------------------------------------------------


@pytest.mark.parametrize(("at", "on_time"), [(1.0, 5.0), (2.99, 5.0), (3.0, 0.0), (inf, 0.0)])
def test_an_answer_in_one_piece_is_due_with_its_last_token(at: float, on_time: float) -> None:
    assert on_time_at_once(1.0, 0.5, 5.0, at) == on_time


@given(TICKS, PACES, st.integers(1, 400), TICKS, st.integers(0, 128).map(lambda n: n * TICK))
def test_even_tokens_count_what_the_formula_counts(
    first_due: float, tpot_s: float, tokens: int, first: float, gap_s: float
) -> None:
    times = [first + i * gap_s for i in range(tokens)]
    found = on_time_evenly(first_due, tpot_s, float(tokens), first, times[-1])
    assert found == plain_sum(first_due, tpot_s, times)
    assert 0.0 <= found <= tokens


def test_the_extremes_of_even_tokens() -> None:
    assert on_time_evenly(1.0, 1e-300, 1e6, 0.0, 1e300) == 1.0
    assert on_time_evenly(1.0, 1e300, 1e6, 2.0, 3.0) == 1e6 - 1.0
    assert on_time_evenly(1e300, 1e-300, 9.0, 0.0, 1e290) == 9.0


# -- answers that did not come --------------------------------------------------------------------


@given(TICKS, PACES, st.integers(1, 200), TICKS)
def test_the_tokens_that_are_due(first_due: float, tpot_s: float, most: int, now: float) -> None:
    wanted = sum(first_due + i * tpot_s <= now for i in range(most))
    assert tokens_due(first_due, tpot_s, float(most), now) == wanted


def test_a_tiny_slo_does_not_overflow() -> None:
    assert tokens_due(1.0, 1e-300, 7.0, 1e300) == 7.0


def test_at_least_one_token_is_expected() -> None:
    assert [expected_tokens(predicted) for predicted in (-1, 0, 1, 40)] == [1.0, 1.0, 1.0, 40.0]
