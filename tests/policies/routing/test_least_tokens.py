from __future__ import annotations

from policies.contract import make_policy
from tests.policies.helpers import fleet, loaded, picks


def test_one_long_prompt_is_a_longer_queue_than_many_short_ones() -> None:
    candidates = loaded(1, 10)
    candidates[0].pending_tokens, candidates[1].pending_tokens = 30_000, 2_000
    assert picks(make_policy("least_tokens"), candidates) == {"b"}
    assert picks(make_policy("least_load"), candidates) == {"a"}


def test_weight_divides_what_is_pending() -> None:
    candidates = fleet(1, 4)
    candidates[0].pending_tokens, candidates[1].pending_tokens = 1_000, 3_000
    assert picks(make_policy("least_tokens"), candidates) == {"b"}


def test_with_nothing_pending_it_is_least_load() -> None:
    assert picks(make_policy("least_tokens"), loaded(3, 1, 2)) == {"b"}
    assert picks(make_policy("least_tokens"), loaded(1, 1, 2)) == {"a", "b"}
