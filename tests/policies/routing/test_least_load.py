from __future__ import annotations

from policies.contract import Candidate, make_policy
from tests.policies.helpers import fleet, loaded, picks


def test_the_least_load_for_its_weight_is_taken() -> None:
    assert picks(make_policy("least_load"), loaded(3, 1, 2)) == {"b"}
    candidates = fleet(1, 4, 1)
    for candidate, load in zip(candidates, (2, 4, 2), strict=True):
        candidate.load = load
    assert picks(make_policy("least_load"), candidates) == {"b"}


def test_what_others_sent_counts_as_much_as_our_own() -> None:
    ours, theirs = Candidate("ours", inflight=3), Candidate("theirs", inflight=0, load=4)
    assert picks(make_policy("least_load"), [ours, theirs]) == {"ours"}


def test_of_equal_loads_the_one_where_fewer_wait() -> None:
    candidates = loaded(2, 2, 2)
    candidates[0].waiting, candidates[1].waiting, candidates[2].waiting = 2, 1, 1
    assert picks(make_policy("least_load"), candidates) == {"b", "c"}


def test_prompts_and_caches_do_not_matter() -> None:
    candidates = loaded(1, 0)
    candidates[1].pending_tokens, candidates[1].kv_usage = 10**6, 0.99
    assert picks(make_policy("least_load"), candidates, held={candidates[0]: 8}) == {"b"}
