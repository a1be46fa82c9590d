from policies.contract import make_policy
from tests.policies.helpers import loaded, picks


def test_one_long_prompt_is_a_longer_queue_than_many_short_ones() -> None:
    candidates = loaded(1, 10)
    candidates[0].pending_tokens, candidates[1].pending_tokens = 30_000, 2_000
    assert picks(make_policy("least_tokens"), candidates) == {"b"}
    assert picks(make_policy("least_load"), candidates) == {"a"}
