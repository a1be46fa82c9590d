"""The assumed times to first content: sound distributions, and the figures of their sources."""

from __future__ import annotations

from math import erf, log, sqrt

import pytest

from router.dispatch.hedging.ratios import BINS, GROWTH, UPPER, Ratios
from router.dispatch.hedging.ttft_prior import STREAMS, WHOLES, Prior

PRIORS = [STREAMS, WHOLES]


def beyond(prior: Prior, ratio: float) -> float:
    """The share of attempts that take longer than `ratio` times the fitted time."""
    return Ratios(0.0).curve(prior.shares, 1.0).survival(ratio)


@pytest.mark.parametrize("prior", PRIORS)
def test_shares_are_a_distribution_over_the_bins_of_ratios(prior: Prior) -> None:
    assert len(prior.shares) == BINS
    assert all(share >= 0.0 for share in prior.shares)
    assert sum(prior.shares) == pytest.approx(1.0)


def test_a_stream_of_the_slowest_engine_is_not_late() -> None:
    """A prefill takes 65 ms plus 0.19 ms per token, after a decode step of 48 ms."""
    for tokens in (0, 1, 1_000, 100_000):
        line_s = STREAMS.base_s + STREAMS.token_s * tokens
        engine_s = 0.065 + 0.048 + 0.00019 * tokens
        assert line_s == pytest.approx(engine_s, rel=0.06)


def test_a_whole_answer_takes_the_decoding_of_the_median_answer_longer() -> None:
    assert WHOLES.base_s - STREAMS.base_s == pytest.approx(129 * 0.048)
    assert WHOLES.token_s == STREAMS.token_s


def test_five_in_a_hundred_streams_are_late() -> None:
    assert beyond(STREAMS, 0.49) == pytest.approx(1.0)
    assert beyond(STREAMS, 1.0) == pytest.approx(0.95 / 2 + 0.05, abs=0.03)
    # The curve ends a bin at its upper end, so a ratio may count up to 4 % later.
    assert beyond(STREAMS, 2.0 * GROWTH) == pytest.approx(0.05)
    assert beyond(STREAMS, 2.9) == pytest.approx(0.05)
    assert beyond(STREAMS, 10.0 * GROWTH) == 0.0


def test_whole_answers_are_lognormal_with_the_median_at_the_line() -> None:
    below = 0.0
    for upper, share in zip(UPPER[:-1], WHOLES.shares, strict=False):
        below += share
        assert below == pytest.approx(0.5 * (1.0 + erf(log(upper) / sqrt(2.0))))
    assert beyond(WHOLES, 1.0) == pytest.approx(0.5, abs=0.02)


def test_the_mean_of_the_trace_follows_from_its_median() -> None:
    """Mean 211, median 129 tokens: the mean of a lognormal of sigma 1 is median * e**0.5."""
    mean = Ratios(0.0).curve(WHOLES.shares, 1.0).mean
    assert mean == pytest.approx(211 / 129, rel=0.05)
