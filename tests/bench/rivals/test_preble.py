from __future__ import annotations

import pytest

import bench.rivals  # noqa: F401  (registers the policies)
from policies.contract import (
    Candidate,
    Context,
    PolicyConfigError,
    RequestView,
    RoutingPolicy,
    make_policy,
)
from tests.policies.helpers import PROMPT, context, fleet, loaded, picks


def pick(policy: RoutingPolicy, candidates: list[Candidate], ctx: Context) -> tuple[str, str]:
    found = policy.pick(PROMPT, candidates, ctx)
    return found.candidate.id, found.reason


def send(policy: RoutingPolicy, candidate: Candidate, tokens: int, now: float) -> None:
    ctx = context()
    ctx.now = now
    policy.on_dispatch(RequestView(prompt_tokens=tokens), candidate, ctx)


def answers(policy: RoutingPolicy, candidate: Candidate, ttft_s: float, now: float) -> None:
    ctx = context()
    ctx.now = now
    for _ in range(10):
        policy.on_first_token(PROMPT, candidate, ttft_s, ctx)


@pytest.mark.parametrize(("blocks", "reason"), [(5, "explore"), (6, "exploit")])
def test_more_than_half_of_the_prompt_is_exploited(blocks: int, reason: str) -> None:
    """5 blocks of the prompt are 640 of 1,300 tokens, 6 blocks are 768."""
    candidates = loaded(0, 0)
    held = {candidates[0]: blocks}
    assert pick(make_policy("preble"), candidates, context(held=held)) == ("a", reason)


def test_of_the_owners_the_least_loaded() -> None:
    candidates = loaded(3, 2, 0)
    held = {candidates[0]: 9, candidates[1]: 9, candidates[2]: 8}
    assert picks(make_policy("preble"), candidates, PROMPT, held) == {"b"}


def test_an_owner_with_15_times_the_least_load_is_left() -> None:
    """The load is in seconds; the minimum is never below the time of this request itself."""
    for load, expected in ((14, {"a"}), (17, {"b"})):
        candidates = loaded(load, 0)
        assert picks(make_policy("preble"), candidates, PROMPT, {candidates[0]: 9}) == expected


def test_what_was_sent_lately_is_load_and_then_forgotten() -> None:
    policy, candidates = make_policy("preble"), fleet(1, 1)
    send(policy, candidates[0], 5000, now=1000.0)
    send(policy, candidates[1], 3000, now=1100.0)
    ctx = context()
    for now, expected in ((1100.0, "b"), (1190.0, "a"), (1300.0, None)):
        ctx.now = now
        found = {pick(policy, candidates, ctx)[0] for _ in range(50)}
        assert found == ({expected} if expected else {"a", "b"})


def test_a_cached_token_is_no_load() -> None:
    policy, candidates = make_policy("preble"), fleet(1, 1)
    policy.on_dispatch(PROMPT, candidates[0], context(held={candidates[0]: 9}))
    policy.on_dispatch(PROMPT, candidates[1], context())
    assert pick(policy, candidates, context())[0] == "a"


def test_a_slow_decoder_is_a_loaded_one() -> None:
    candidates = loaded(4, 3)
    candidates[0].tpot_s = 0.01
    assert picks(make_policy("preble"), candidates, PROMPT) == {"a"}


def test_where_much_was_stored_lately_storing_more_costs() -> None:
    """Equal loads; the small cache would have to evict blocks used in the window."""
    policy, candidates = make_policy("preble"), fleet(1, 1)
    candidates[0].kv_tokens, candidates[1].kv_tokens = 10_000, 10_000_000
    for candidate in candidates:
        send(policy, candidate, 8000, now=1000.0)
    assert picks(policy, candidates, PROMPT) == {"b"}


def test_an_owner_whose_answers_take_twice_as_long_as_before_is_too_hot() -> None:
    policy, candidates = make_policy("preble"), loaded(1, 0)
    ctx = context(held={candidates[0]: 9})
    send(policy, candidates[0], 0, now=900.0)
    answers(policy, candidates[0], 0.2, now=900.0)
    answers(policy, candidates[0], 0.39, now=1000.0)
    assert pick(policy, candidates, ctx) == ("a", "exploit")
    answers(policy, candidates[0], 0.5, now=1000.0)
    assert pick(policy, candidates, ctx) == ("b", "explore")
    answers(policy, candidates[0], 0.2, now=1200.0)  # the window has moved on
    ctx.now = 1200.0
    assert pick(policy, candidates, ctx) == ("a", "exploit")


def test_the_usual_answer_is_learned() -> None:
    """Long answers make running requests expensive, short ones the prefill."""
    candidates = loaded(2, 0)
    policy = make_policy("preble")
    send(policy, candidates[1], 20_000, now=1000.0)
    assert picks(policy, candidates, PROMPT) == {"b"}
    for _ in range(500):
        policy.on_finish(PROMPT, candidates[0], 10, context())
        policy.on_finish(PROMPT, candidates[0], None, context())
    assert picks(policy, candidates, PROMPT) == {"a"}


@pytest.mark.parametrize(
    ("option", "value"),
    [("window_s", 0), ("prefill_rate", 0), ("tpot_s", -1), ("rebalance", 0.5)],
)
def test_options_out_of_range_are_refused(option: str, value: float) -> None:
    with pytest.raises(PolicyConfigError) as caught:
        make_policy("preble", {option: value})
    assert caught.value.option == option
