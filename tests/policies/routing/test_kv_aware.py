from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from policies.contract import Candidate, Context, PolicyConfigError, RequestView, make_policy
from tests.policies.helpers import PROMPT, burst, context, fleet, loaded, picks, trickle

# Only the cost product is active: tests are clearest without the policy's additional terms.
LMETRIC = {"miss_cost": 1.0, "batch": 1.0, "crowding": 0.0}


def lmetric(candidate: Candidate, uncached: float) -> float:
    return (candidate.pending_tokens + uncached + 1) * (candidate.load + 1)


def test_the_least_product_is_taken() -> None:
    candidates = loaded(3, 5, 1)
    for candidate, pending in zip(candidates, (4000, 1000, 9000), strict=True):
        candidate.pending_tokens = pending
    held = {candidates[0]: 9, candidates[2]: 4}
    uncached = (1300 - 9 * 128, 1300, 1300 - 4 * 128)
    costs = [lmetric(c, u) for c, u in zip(candidates, uncached, strict=True)]
    best = candidates[costs.index(min(costs))]
    assert picks(make_policy("kv_aware", LMETRIC), candidates, PROMPT, held) == {best.id}


def test_one_holder_and_many_are_scored_alike() -> None:
    """A few holders among many are looked up one by one, many holders all at once."""
    for count in (1, 2, 20, 40):
        candidates = loaded(*[7] * 40)
        candidates[30].load = 6
        held = dict.fromkeys(candidates[:count], 5)
        held[candidates[3]] = 9
        candidates[3].load = 8
        assert picks(make_policy("kv_aware", LMETRIC), candidates, PROMPT, held) == {"d"}


def test_a_busy_holder_is_left_when_the_product_says_so() -> None:
    # The rest of the prompt is 148 of 1,300 tokens: the holder may be 8 times as busy as others.
    for load, expected in ((0, {"a"}), (7, {"a"}), (8, {"b", "c"})):
        candidates = loaded(load, 0, 0)
        assert (
            picks(make_policy("kv_aware", LMETRIC), candidates, PROMPT, {candidates[0]: 9})
            == expected
        )


def test_pending_prefill_counts_as_well_as_the_batch() -> None:
    candidates = loaded(1, 1)
    candidates[0].pending_tokens = 2000
    assert picks(make_policy("kv_aware", LMETRIC), candidates, PROMPT, {candidates[0]: 9}) == {"b"}


def test_without_a_prompt_it_is_least_load() -> None:
    candidates = loaded(2, 1, 1)
    assert picks(make_policy("kv_aware", LMETRIC), candidates) == {"b", "c"}
    assert picks(make_policy("kv_aware", LMETRIC), candidates, held={candidates[0]: 9}) == {
        "b",
        "c",
    }


def test_an_uncounted_prompt_has_the_length_of_its_blocks() -> None:
    candidates = loaded(2, 0)
    view = RequestView(blocks=PROMPT.blocks)
    assert picks(make_policy("kv_aware", LMETRIC), candidates, view, {candidates[0]: 10}) == {"a"}


@pytest.mark.parametrize("idle", [1, 10])
def test_more_blocks_than_the_prompt_has_tokens_is_a_full_hit(idle: int) -> None:
    """Tokens and blocks are estimated separately; a negative cost would attract every request."""
    candidates = loaded(9, *[0] * idle)
    view = RequestView(prompt_tokens=6, blocks=PROMPT.blocks)
    assert "a" not in picks(make_policy("kv_aware", LMETRIC), candidates, view, {candidates[0]: 10})


@pytest.mark.parametrize("holders", [0, 1, 8])
def test_weights_divide_what_a_replica_has(holders: int) -> None:
    candidates = fleet(*[1.0] * 7, 4.0)
    for candidate in candidates:
        candidate.load, candidate.pending_tokens = 2, 2000
    candidates[7].load, candidates[7].pending_tokens = 4, 4000
    held = dict.fromkeys(candidates[8 - holders :], 2)
    assert picks(make_policy("kv_aware", LMETRIC), candidates, PROMPT, held) == {"h"}


def test_holders_that_are_not_candidates_are_ignored() -> None:
    for strangers in (1, 50):
        held = {Candidate(f"s{i}"): 10 for i in range(strangers)}
        assert picks(make_policy("kv_aware", LMETRIC), loaded(1, 0, 1), PROMPT, held) == {"b"}


@pytest.mark.parametrize(
    "state",
    [
        {"waiting": 64},
        {"slots": 3, "load": 3},
    ],
    ids=["queue", "slots"],
)
def test_a_full_replica_is_avoided_while_another_is_not(state: dict[str, Any]) -> None:
    candidates = loaded(3, 30, 40)
    held = {candidates[0]: 10}
    view = RequestView(prompt_tokens=100_000, blocks=PROMPT.blocks, block_tokens=9_990.0)
    assert picks(make_policy("kv_aware", LMETRIC), candidates, view, held) == {"a"}
    for fact, value in state.items():
        setattr(candidates[0], fact, value)
    assert picks(make_policy("kv_aware", LMETRIC), candidates, view, held) == {"b"}
    for candidate in candidates[1:]:
        candidate.slots = 1
    assert picks(make_policy("kv_aware", LMETRIC), candidates, view, held) == {"a"}


def test_a_full_cache_is_avoided_by_requests_that_would_add_to_it() -> None:
    candidates = loaded(3, 4, 5)
    candidates[0].kv_usage = 0.95
    policy = make_policy("kv_aware", LMETRIC)
    assert picks(policy, candidates, PROMPT) == {"b"}
    # A third of the prompt is not enough, most of it is: other replicas would need room for all of
    # it.
    assert picks(policy, candidates, PROMPT, {candidates[0]: 3}) == {"b"}
    assert picks(policy, candidates, PROMPT, {candidates[0]: 9}) == {"a"}


@pytest.mark.parametrize(("count", "full", "expected"), [(2, 1, "z"), (3, 1, "z"), (8, 2, "z")])
def test_the_only_full_replica_is_avoided(count: int, full: int, expected: str) -> None:
    candidates = [*loaded(*[3] * full), *loaded(*[40] * (count - full))]
    for index, candidate in enumerate(candidates):
        candidate.id = "full" if index < full else expected
        candidate.kv_usage = 1.0 if index < full else 0.5
    assert picks(make_policy("kv_aware", LMETRIC), candidates, PROMPT) == {expected}


@pytest.mark.parametrize(("count", "full"), [(2, 2), (3, 2), (8, 3), (8, 7), (8, 8)])
def test_where_many_lack_room_the_last_one_with_some_is_not_stormed(count: int, full: int) -> None:
    """A poll that is one second old would attract all requests of that second."""
    candidates = loaded(*[3] * full, *[40] * (count - full))
    for candidate in candidates[:full]:
        candidate.kv_usage = 1.0
    names = {candidate.id for candidate in candidates[:full]}
    assert picks(make_policy("kv_aware", LMETRIC), candidates, PROMPT) <= names


def test_a_backlog_everywhere_makes_a_miss_dearer() -> None:
    candidates = loaded(20, 8)
    held = {candidates[0]: 9}
    for candidate in candidates:
        candidate.pending_tokens = 4000
    for crowding, expected in ((0.0, {"b"}), (20.0, {"a"})):
        policy = make_policy("kv_aware", {**LMETRIC, "crowding": crowding})
        assert picks(policy, candidates, PROMPT, held) == expected
    # If a replica is idle there is no backlog, and it is used.
    candidates[1].pending_tokens = candidates[1].load = 0
    policy = make_policy("kv_aware", {**LMETRIC, "crowding": 20.0})
    assert picks(policy, candidates, PROMPT, held) == {"b"}


@pytest.mark.parametrize("count", [16, 64, 100])
def test_a_burst_of_one_prompt_spreads(count: int) -> None:
    """A replica that gets it becomes a holder; requests waiting there divert the others."""
    candidates = fleet(*[1.0] * 8)
    policy, ctx = make_policy("kv_aware", LMETRIC), context()
    picked: Counter[str] = Counter()
    for _ in range(count):
        ctx.held = dict.fromkeys([c for c in candidates if c.load], 10)
        picked += burst(policy, candidates, 1, ctx, PROMPT)
    assert 8 * max(picked.values()) / count <= 1.3


def test_a_burst_on_a_holder_that_stays_the_only_one_ends_at_the_queue_guard() -> None:
    """The rest of the prompt is a ninth of it: the product alone would send more to the holder."""
    most = {}
    for depth in (6, 1000):
        candidates = fleet(*[1.0] * 8)
        policy = make_policy("kv_aware", {"queue_depth": depth})
        ctx = context(held={candidates[0]: 9})
        most[depth] = burst(policy, candidates, 40, ctx, PROMPT)["a"]
    assert most[6] == 6 < most[1000]


def test_a_prompt_that_comes_alone_stays_until_its_holder_has_had_too_much() -> None:
    policy, candidates = make_policy("kv_aware", LMETRIC), fleet(*[1.0] * 8)
    policy.on_fleet_change(frozenset("abcdefgh"))
    ctx = context(held={candidates[0]: 9})
    assert trickle(policy, candidates, 8, ctx, PROMPT) == {"a": 8}
    picked = trickle(policy, candidates, 2000, ctx, PROMPT)
    assert picked["a"] / 2000 < 1.35 / 8  # if no other replica becomes a holder
    assert len(picked) == 8


def test_recent_requests_are_compared_within_a_pool() -> None:
    """Two replicas serve the only requested model.

    Their share of the fleet's requests is too large, but not their share of the pool's.
    """
    policy, pool = make_policy("kv_aware", LMETRIC), fleet(1, 1)
    policy.on_fleet_change(frozenset("abcdefgh"))
    trickle(policy, pool, 400, context(), PROMPT)
    for holder in pool:
        assert picks(policy, pool, PROMPT, {holder: 9}) == {holder.id}


def test_a_replica_in_slow_start_is_not_kept_by_its_cache_alone() -> None:
    policy, candidates = make_policy("kv_aware", LMETRIC), fleet(0.1, 1, 1, 1)
    policy.on_fleet_change(frozenset("abcd"))
    picked = trickle(policy, candidates, 400, context(held={candidates[0]: 9}), PROMPT)
    # The replica's fair part is 0.1 of 3.1; a cached prefix may add a third and the margin of 8.
    assert picked["a"] / 400 < 0.1 / 3.1 * 1.4 + 0.02


def test_a_new_replica_does_not_have_to_catch_up() -> None:
    policy, candidates = make_policy("kv_aware", LMETRIC), fleet(*[1.0] * 4)
    policy.on_fleet_change(frozenset("abc"))
    trickle(policy, candidates[:3], 300, context(), PROMPT)
    policy.on_fleet_change(frozenset("abcd"))
    picked = trickle(policy, candidates, 400, context(), PROMPT)
    assert picked["d"] / 400 == pytest.approx(0.25, abs=0.06)


def test_a_new_replica_does_not_take_prefixes_held_elsewhere() -> None:
    """Compared with a new replica every holder has too much, compared with the mean none has."""
    policy, candidates = make_policy("kv_aware", LMETRIC), fleet(*[1.0] * 8)
    policy.on_fleet_change(frozenset("abcdefg"))
    for _ in range(40):
        for candidate in candidates[:7]:
            policy.on_dispatch(PROMPT, candidate, context())
            candidate.load = 2
    policy.on_fleet_change(frozenset("abcdefgh"))
    assert policy.pick(PROMPT, candidates, context()).candidate.id == "h"
    assert picks(policy, candidates, PROMPT, {candidates[0]: 9}) == {"a"}


def test_what_is_long_ago_is_forgotten() -> None:
    policy, candidates = make_policy("kv_aware", LMETRIC), fleet(*[1.0] * 4)
    policy.on_fleet_change(frozenset("abcd"))
    for _ in range(200):
        policy.on_dispatch(PROMPT, candidates[0], context())
    assert picks(policy, candidates, PROMPT, {candidates[0]: 9}) != {"a"}
    for _ in range(250):
        for candidate in candidates:
            policy.on_dispatch(PROMPT, candidate, context())
    assert picks(policy, candidates, PROMPT, {candidates[0]: 9}) == {"a"}


def test_the_reason_says_why() -> None:
    policy, candidates = make_policy("kv_aware", LMETRIC), loaded(0, 1)

    def reason(held: dict[Candidate, int]) -> str:
        return policy.pick(PROMPT, candidates, context(held=held)).reason

    assert reason({}) == "cheapest"
    assert reason({candidates[0]: 9}) == "cached"
    assert reason({candidates[1]: 1}) == "cheapest"
    candidates[0].kv_usage = 1.0
    assert reason({}) == "no room"
    candidates[0].kv_usage = None
    candidates[0].slots = 0
    assert reason({}) == "full"
    candidates[0].slots = None
    policy.on_fleet_change(frozenset("ab"))
    for _ in range(30):
        policy.on_dispatch(PROMPT, candidates[1], Context(context().rng))
    assert reason({candidates[1]: 10}) == "spread"


def test_a_dearer_miss_and_a_larger_batch_hold_on_longer() -> None:
    """Both settings favour the cache; LMetric itself leaves this holder."""
    candidates = loaded(9, 0)
    held = {candidates[0]: 9}
    assert picks(make_policy("kv_aware", LMETRIC), candidates, PROMPT, held) == {"b"}
    for options in ({"batch": 4.0}, {"miss_cost": 2.0, "batch": 2.0}):
        assert picks(make_policy("kv_aware", {**LMETRIC, **options}), candidates, PROMPT, held) == {
            "a"
        }
    candidates = loaded(1, 1)
    candidates[0].pending_tokens = 2000
    held = {candidates[0]: 9}
    assert picks(make_policy("kv_aware", LMETRIC), candidates, PROMPT, held) == {"b"}
    assert picks(
        make_policy("kv_aware", {**LMETRIC, "miss_cost": 3.0}), candidates, PROMPT, held
    ) == {"a"}


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("miss_cost", 0.9),
        ("batch", 0),
        ("kv_full", 0),
        ("kv_full", 1.5),
        ("queue_depth", 0),
        ("relative", 0.9),
        ("absolute", -1),
        ("absolute", float("nan")),
    ],
)
def test_options_out_of_range_are_refused(option: str, value: float) -> None:
    with pytest.raises(PolicyConfigError) as caught:
        make_policy("kv_aware", {option: value})
    assert caught.value.option == option
