"""The assumed times to first content: sound distributions, and the figures of their sources."""

import pytest

from router.dispatch.hedging.ratios import BINS, GROWTH, Ratios
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


def test_five_in_a_hundred_streams_are_late() -> None:
    assert beyond(STREAMS, 0.49) == pytest.approx(1.0)
    assert beyond(STREAMS, 1.0) == pytest.approx(0.95 / 2 + 0.05, abs=0.03)
    # The curve ends a bin at its upper end, so a ratio may count up to 4 % later.
    assert beyond(STREAMS, 2.0 * GROWTH) == pytest.approx(0.05)
    assert beyond(STREAMS, 2.9) == pytest.approx(0.05)
    assert beyond(STREAMS, 10.0 * GROWTH) == 0.0


def test_the_mean_of_the_trace_follows_from_its_median() -> None:
    """Mean 211, median 129 tokens: the mean of a lognormal of sigma 1 is median * e**0.5."""
    mean = Ratios(0.0).curve(WHOLES.shares, 1.0).mean
    assert mean == pytest.approx(211 / 129, rel=0.05)
