import pytest

from policies.contract import Candidate, PolicyConfigError, make_policy
from tests.policies.helpers import PROMPT, loaded, picks

NONE = {"queue": 0, "kv": 0, "prefix": 0, "load": 0, "tokens": 0}


def states() -> list[Candidate]:
    """Each of a, b, c, d, e is best in one criterion."""
    a, b, c, d, e = loaded(5, 5, 5, 4, 5)
    for candidate in (a, b, c, d, e):
        candidate.waiting, candidate.kv_usage, candidate.pending_tokens = 2, 0.5, 50_000
    a.waiting, b.kv_usage, e.pending_tokens = 1, 0.4, 10_000
    return [a, b, c, d, e]


@pytest.mark.parametrize(
    ("subject", "expected"),
    [("queue", "a"), ("kv", "b"), ("prefix", "c"), ("load", "d"), ("tokens", "e")],
)
def test_each_subject_alone_picks_its_best(subject: str, expected: str) -> None:
    candidates = states()
    policy = make_policy("weighted", {**NONE, subject: 1})
    assert picks(policy, candidates, PROMPT, {candidates[2]: 1}) == {expected}


def test_the_default_is_llm_ds() -> None:
    """2 queue + 2 kv + 3 prefix: a prefix of more than two thirds outweighs the longest queue."""
    for blocks, expected in ((6, {"b"}), (7, {"a"})):
        candidates = loaded(5, 5)
        candidates[0].waiting, candidates[1].waiting = 3, 0
        policy = make_policy("weighted")
        assert picks(policy, candidates, PROMPT, {candidates[0]: blocks}) == expected


def test_kv_usage_has_two_thirds_of_the_say_of_a_prefix() -> None:
    for usage, expected in ((0.7, {"a"}), (0.8, {"b"})):
        candidates = loaded(5, 5)
        candidates[0].kv_usage, candidates[1].kv_usage = usage, 0.0
        policy = make_policy("weighted")
        assert picks(policy, candidates, PROMPT, {candidates[0]: 5}) == expected


def test_more_tokens_than_the_threshold_is_no_mark_and_not_less() -> None:
    candidates = loaded(2, 1)
    candidates[0].pending_tokens, candidates[1].pending_tokens = 5_000_000, 9_000_000
    assert picks(make_policy("weighted", {**NONE, "tokens": 1}), candidates) == {"b"}


def test_no_weight_at_all_is_refused() -> None:
    with pytest.raises(PolicyConfigError, match="at least one"):
        make_policy("weighted", NONE)
