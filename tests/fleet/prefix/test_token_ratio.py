"""Bytes per token, learned from usage: fast at first, stable later, bounded.

Implausible values are ignored.
"""

import pytest
from hypothesis import given, strategies as st

from router.fleet.prefix.token_ratio import TokenRatio


def test_it_is_learned_per_model() -> None:
    ratio = TokenRatio()
    for _ in range(100):
        ratio.learn("english", 4600, 1000)
        ratio.learn("chinese", 2400, 1000)
        ratio.learn(None, 6000, 1000)
    assert ratio.of("english") == pytest.approx(4.6, rel=0.01)
    assert ratio.of("chinese") == pytest.approx(2.4, rel=0.02)
    assert ratio.of(None) == pytest.approx(6.0, rel=0.01)
    assert ratio.of("other") == TokenRatio.DEFAULT
    assert ratio.tokens("chinese", 24_000) == pytest.approx(10_000, rel=0.02)


def test_the_first_answers_count_for_more() -> None:
    ratio = TokenRatio()
    ratio.learn("m", 2000, 1000)
    assert ratio.of("m") == 2.0
    for _ in range(9):
        ratio.learn("m", 2000, 1000)
    ratio.learn("m", 4000, 1000)
    assert 2.0 < ratio.of("m") < 2.2


@pytest.mark.parametrize(
    ("size", "tokens"),
    [
        (4000, None),
        (4000, 0),
        (4000, -5),
        (0, 1000),
        (-4000, 1000),
        (40, 10),  # too short to be reliable
        (999, 1000),  # less than a byte per token
        (1_000_000, 1000),  # an image
    ],
)
def test_implausible_values_are_ignored(size: int, tokens: int | None) -> None:
    ratio = TokenRatio()
    ratio.learn("m", size, tokens)
    assert ratio.of("m") == TokenRatio.DEFAULT
    assert ratio._ratios == {}


def test_names_from_clients_are_bounded() -> None:
    ratio = TokenRatio()
    for number in range(3 * TokenRatio.MODELS):
        ratio.learn(f"m{number}", 6000, 1000)
        ratio.learn("kept", 6000, 1000)
    assert len(ratio._ratios) == TokenRatio.MODELS
    assert ratio.of("kept") == pytest.approx(6.0, rel=0.01)
    assert ratio.of("m0") == TokenRatio.DEFAULT


def test_the_largest_ratio_falls_slowly_and_rises_at_once() -> None:
    ratio = TokenRatio()
    assert ratio.largest("m") == TokenRatio.MOST
    ratio.learn("m", 4000, 1000)
    assert TokenRatio.MOST > ratio.largest("m") > 0.9 * TokenRatio.MOST
    for _ in range(1000):
        ratio.learn("m", 4000, 1000)
    assert ratio.largest("m") == pytest.approx(4.0, rel=0.01)
    ratio.learn("m", 9000, 1000)
    assert ratio.largest("m") == 9.0
    ratio.learn("m", 1500, 100)
    assert ratio.largest("m") == 9.0, "the prompt was too short"
    assert ratio.largest("other") == TokenRatio.MOST


@given(st.lists(st.tuples(st.integers(-10, 10**9), st.none() | st.integers(-10, 10**7))))
def test_the_ratio_stays_in_bounds_for_any_input(seen: list[tuple[int, int | None]]) -> None:
    ratio = TokenRatio()
    for size, tokens in seen:
        ratio.learn("m", size, tokens)
        assert TokenRatio.LEAST <= ratio.of("m") <= TokenRatio.MOST
        assert TokenRatio.LEAST <= ratio.largest("m") <= TokenRatio.MOST


def test_no_account_changes_the_ratio_of_another() -> None:
    ratio = TokenRatio()
    for _ in range(100):
        ratio.learn("m", 16_000, 1000, "cheat")
        ratio.learn("m", 1000, 1000, "dense")
        ratio.learn("m", 4500, 1000, "prose")
    assert ratio.of_account("cheat", "m") == TokenRatio.TRUSTED
    assert ratio.of_account("dense", "m") == pytest.approx(1.0, rel=0.02)
    assert ratio.of_account("prose", "m") == pytest.approx(4.5, rel=0.02)
    assert ratio.of_account("prose", "other") == TokenRatio.DEFAULT
    assert ratio.of_account("new", "m") == pytest.approx((4.0 + 1.0 + 4.0) / 3), "one each"
    assert 4.0 < ratio.of("m") < 11.0  # the mean of all


def test_the_number_of_accounts_is_bounded() -> None:
    ratio = TokenRatio()
    for number in range(2 * TokenRatio.ACCOUNTS):
        ratio.learn("m", 4500, 1000, f"a{number}")
    assert len(ratio._of_accounts) == TokenRatio.ACCOUNTS


def test_a_prompt_of_a_new_account_has_the_most_tokens_for_a_budget() -> None:
    ratio = TokenRatio()
    assert ratio.doubt("new", "m", 4000) == 3000, "nothing is known: one byte per token"
    ratio.learn("m", 4000, 1000, "own")
    assert ratio.doubt("own", "m", 4000) == 0
    for _ in range(1000):
        ratio.learn("m", 4000, 1000, "own")
    assert ratio.doubt("new", "m", 4000) <= 1
    ratio.learn("m", 2000, 1000, "own")
    assert ratio.doubt("new", "m", 4000) == 1000


@pytest.mark.parametrize(
    ("size", "tokens", "expected"),
    [(2000, 1000, 2.0), (9000, 1000, 4.0), (500, 1000, 4.0), (20, 10, 4.0), (0, 0, 4.0)],
)
def test_streams_without_counts_teach_an_account_that_no_engine_has_counted(
    size: int, tokens: int, expected: float
) -> None:
    ratio = TokenRatio()
    for _ in range(30):
        ratio.learn_stream("m", "leaves", size, tokens)
    assert ratio.of_account("leaves", "m") == pytest.approx(expected, rel=0.01)
    ratio.learn("m", 3000, 1000, "leaves")
    assert ratio.of_account("leaves", "m") == 3.0, "the engine's count replaces the estimate"
    ratio.learn_stream("m", "leaves", 2000, 1000)
    assert ratio.of_account("leaves", "m") == 3.0
