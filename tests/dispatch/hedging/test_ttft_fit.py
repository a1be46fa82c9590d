"""The line fitted to times to first content is correct despite stragglers, cancelled attempts
and changes.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.dispatch.hedging.ttft_fit import LEAST, SAMPLES, SHORTEST_S, TtftFit

BASE_S, TOKEN_S = 0.05, 1e-4
PRIOR_S, PRIOR_TOKEN_S = 0.1, 2e-4


def new() -> TtftFit:
    return TtftFit(PRIOR_S, PRIOR_TOKEN_S)


def answers(
    fit: TtftFit,
    count: int,
    rng: Random,
    base_s: float = BASE_S,
    token_s: float = TOKEN_S,
    stragglers: float = 0.0,
    now: float = 0.0,
) -> None:
    for _ in range(count):
        tokens = int(rng.lognormvariate(6.5, 1.0))
        took = (base_s + token_s * tokens) * rng.lognormvariate(0.0, 0.1)
        fit.add(tokens, took * (10.0 if rng.random() < stragglers else 1.0), now)


def off(fit: TtftFit, base_s: float = BASE_S, token_s: float = TOKEN_S) -> float:
    """The largest relative error of its predictions."""
    return max(
        abs(fit.predict(tokens) / (base_s + token_s * tokens) - 1.0)
        for tokens in (0, 100, 700, 3000, 20_000)
    )


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("stragglers", [0.0, 0.05])
def test_it_finds_the_line_whatever_the_stragglers(seed: int, stragglers: float) -> None:
    fit = new()
    answers(fit, 400, Random(seed), stragglers=stragglers)
    fit.refit(0.0)
    assert off(fit) < 0.08


@pytest.mark.parametrize("seed", range(5))
def test_one_that_was_cut_counts_as_if_its_end_had_been_seen(seed: int) -> None:
    """A fifth of the attempts takes ten times as long and is cancelled at twice the fitted time.

    Without these attempts the fitted line of times to first content would differ. An attempt
    cancelled below the fitted line carries no information.
    """
    cut, whole, rng = new(), new(), Random(seed)
    for fit in (cut, whole):
        answers(fit, 50, Random(seed))
        fit.refit(0.0)
    for _ in range(400):
        tokens = int(rng.lognormvariate(6.5, 1.0))
        line = BASE_S + TOKEN_S * tokens
        if rng.random() < 0.2:
            cut.add_cut(tokens, 2.0 * line, 1.0)
            whole.add(tokens, 10.0 * line, 1.0)
        else:
            took = line * rng.lognormvariate(0.0, 0.1)
            for fit in (cut, whole):
                fit.add(tokens, took, 1.0)
        cut.add_cut(tokens, 0.5 * line, 1.0)
    for fit in (cut, whole):
        fit.refit(1.0)
    for tokens in (0, 100, 700, 3000, 20_000):
        assert cut.predict(tokens) == pytest.approx(whole.predict(tokens), rel=0.03)


def test_old_samples_are_dropped() -> None:
    fit, rng = new(), Random(1)
    answers(fit, 300, rng, now=10.0)
    fit.refit(0.0)
    answers(fit, 100, rng, base_s=0.2, token_s=3e-4, now=50.0)
    fit.refit(20.0)
    assert off(fit, 0.2, 3e-4) < 0.08
    answers(fit, SAMPLES + 10, rng, now=50.0)  # of equal times the fit keeps the latest
    fit.refit(20.0)
    assert off(fit) < 0.08


@pytest.mark.parametrize("seed", range(5))
def test_a_few_rounds_a_second_are_as_good_as_a_search(seed: int) -> None:
    """After a change, the sum of relative deviations is within 2 % of the minimum."""
    fit, rng = new(), Random(seed)
    answers(fit, 300, rng)
    fit.refit(0.0)
    samples = []
    for _ in range(SAMPLES):
        tokens = int(rng.lognormvariate(6.5, 1.0))
        took = (0.1 + 3e-4 * tokens) * rng.lognormvariate(0.0, 0.2)
        took *= 10.0 if rng.random() < 0.05 else 1.0
        samples.append((tokens, took))
        fit.add(tokens, took, 1.0)
    for _ in range(4):  # seconds
        fit.refit(1.0)

    def deviation(base_s: float, token_s: float) -> float:
        return sum(abs(took - base_s - token_s * n) / (0.1 + 3e-4 * n) for n, took in samples)

    least = min(
        deviation(0.002 * base, 1e-5 * token) for base in range(25, 75) for token in range(15, 45)
    )
    assert deviation(fit.base_s, fit.token_s) < 1.02 * least


def test_what_was_cut_above_an_old_line_says_nothing_below_a_new_one() -> None:
    """Everything becomes slow. An attempt cancelled at twice the old fitted time is no answer at
    that time.
    """
    fit = new()
    for _ in range(LEAST):
        fit.add(1000, 0.15, 0.0)
    for _ in range(60):
        fit.add_cut(1000, 0.3, 1.0)
    for _ in range(40):
        fit.add(1000, 1.5, 1.0)
    for _ in range(5):
        fit.refit(1.0)
    assert fit.predict(1000) == pytest.approx(1.5, rel=0.05)


def test_before_there_is_a_line_it_is_the_priors_times_a_median() -> None:
    fit = new()
    assert fit.predict(1000) == pytest.approx(0.3)
    said = []
    for took in (3.0, 3.0, 30.0, 0.3, 3.0, 3.0):
        fit.add(1000, took, 0.0)
        said.append(fit.predict(1000))
    assert said == pytest.approx([3.0] * 6)
    assert fit.predict(0) == pytest.approx(1.0)
    fit = new()
    fit.add(1000, 0.03, 0.0)
    assert fit.predict(1000) == pytest.approx(0.3)  # one quick answer is not enough
    fit.add(1000, 0.03, 0.0)
    assert fit.predict(1000) == pytest.approx(0.03)


def test_attempts_that_were_cut_alone_make_no_line() -> None:
    fit = new()
    for number in range(1000):
        fit.add_cut(1000, 0.5 + number * 0.01, 0.0)
        fit.refit(0.0)
    assert fit.answers == 0
    assert fit.base_s / fit.token_s == pytest.approx(PRIOR_S / PRIOR_TOKEN_S)


def test_too_little_of_late_changes_nothing() -> None:
    fit, rng = new(), Random(1)
    answers(fit, LEAST, rng)
    line = (fit.base_s, fit.token_s)
    assert fit.base_s / fit.token_s != pytest.approx(PRIOR_S / PRIOR_TOKEN_S)
    fit.refit(1.0)
    assert (fit.base_s, fit.token_s) == line


def test_prompts_all_alike() -> None:
    fit = new()
    for _ in range(50):
        fit.add(1000, 0.15, 0.0)
    fit.refit(0.0)
    assert fit.predict(1000) == pytest.approx(0.15)
    # A slope that is already known stays.
    other = new()
    answers(other, 400, Random(1))
    other.refit(0.0)
    for _ in range(50):
        other.add(1000, 0.25, 1.0)
    other.refit(1.0)
    assert other.predict(1000) == pytest.approx(0.25)
    assert other.token_s == pytest.approx(TOKEN_S, rel=0.1)


@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.floats(0.0, 1e4)), min_size=LEAST, max_size=100)
)
def test_a_finite_time_is_predicted_for_any_input(samples: list[tuple[int, float]]) -> None:
    fit = new()
    for tokens, took in samples:
        fit.add(tokens, took, 0.0)
    for _ in range(3):
        fit.refit(0.0)
        for tokens in (0, 1, 10**6):
            assert SHORTEST_S <= fit.predict(tokens) < 1e9
        assert fit.predict(0) <= fit.predict(10**6)
