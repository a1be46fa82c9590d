"""Which replica holds how much of a prompt, by the prompts that were sent to it."""

import pytest

from policies.contract import RequestView
from router.config.model import Health, Prefix, Replica as Config
from router.fleet.prefix.lookup import PrefixLookup
from router.fleet.prefix.token_ratio import TokenRatio
from router.fleet.replica import Replica

RULES = Prefix(block_bytes=512, kv_tokens=100_000)


def a_replica(name: str, *models: str, kv_tokens: int | None = None) -> Replica:
    replica = Replica(
        Config(url=f"http://{name}:1", id=name, models=models or None), Health(), None
    )
    replica.kv_tokens = kv_tokens
    return replica


def a_view(*blocks: int, model: str | None = "m") -> RequestView:
    return RequestView(model=model, blocks=blocks)


# -- requests ---------------------------------------------------------------------------------


def test_a_prompt_is_measured_by_what_its_model_has_taught() -> None:
    lookup = PrefixLookup(RULES)
    view = a_view()
    lookup.measure(view, (1, 2), 2_000)
    assert (view.blocks, view.prompt_bytes) == ((1, 2), 2_000)
    assert view.prompt_tokens == int(2_000 / TokenRatio.DEFAULT)
    assert view.block_tokens == 512 / TokenRatio.DEFAULT
    for _ in range(200):
        lookup.counted("m", 2_000, 1_000)
    lookup.measure(view, (1, 2), 2_000)
    assert view.prompt_tokens == pytest.approx(1_000, rel=0.02)
    assert view.block_tokens == pytest.approx(256, rel=0.02)
    other = a_view(model="other")
    lookup.measure(other, (), 2_000)
    assert other.prompt_tokens == int(2_000 / TokenRatio.DEFAULT)


def test_a_replica_holds_what_was_sent_to_it() -> None:
    lookup = PrefixLookup(RULES)
    a, b = a_replica("a"), a_replica("b")
    lookup.add_all((a, b))
    lookup.sent(a, (1, 2, 3), 0)
    lookup.begun(a, (1, 2, 3), 0)
    assert lookup.held(a_view(1, 2, 9)) == {a: 2}
    assert lookup.held(a_view(9)) == {}
    lookup.sent(b, (1,), 0)
    assert lookup.held(a_view(1, 2, 3)) == {a: 3, b: 1}


def test_an_attempt_that_failed_leaves_nothing() -> None:
    lookup = PrefixLookup(RULES)
    a = a_replica("a")
    lookup.add(a)
    lookup.sent(a, (1, 2), 0)
    lookup.failed(a, (1, 2), 0)
    assert lookup.held(a_view(1, 2)) == {}


def test_a_restarted_and_a_removed_replica_hold_nothing() -> None:
    lookup = PrefixLookup(RULES)
    a, b = a_replica("a"), a_replica("b")
    lookup.add_all((a, b))
    for replica in (a, b):
        lookup.sent(replica, (1, 2), 0)
    lookup.restarted(a)
    assert lookup.held(a_view(1, 2)) == {b: 2}
    lookup.remove_all([b])
    assert lookup.held(a_view(1, 2)) == {}
    lookup.sent(a, (1,), 0)
    assert lookup.held(a_view(1, 2)) == {a: 1}


# -- capacities -------------------------------------------------------------------------------


def test_a_capacity_is_the_cache_in_blocks() -> None:
    """Capacity: cache size in tokens, times bytes per token, divided by the bytes of a block."""
    lookup = PrefixLookup(RULES)
    known, unknown = a_replica("a", kv_tokens=5_120), a_replica("b")
    lookup.add_all((known, unknown))
    assert lookup.prefixes.capacity(known) == int(5_120 * TokenRatio.DEFAULT / 512)
    assert lookup.prefixes.capacity(unknown) == int(100_000 * TokenRatio.DEFAULT / 512)


def test_a_capacity_follows_the_first_model_by_name() -> None:
    lookup = PrefixLookup(RULES)
    for _ in range(200):
        lookup.counted("m", 8_000, 1_000)
    one = a_replica("a", "m", "z", "*", kv_tokens=6_400)
    lookup.add(one)
    assert lookup.prefixes.capacity(one) == pytest.approx(100, rel=0.02)


def test_a_small_change_of_a_capacity_is_not_worth_an_update() -> None:
    lookup = PrefixLookup(RULES)
    a = a_replica("a", kv_tokens=51_200)
    lookup.add(a)
    first = lookup.prefixes.capacity(a)
    a.kv_tokens = int(51_200 * 1.04)
    lookup.sized(a)
    assert lookup.prefixes.capacity(a) == first
    a.kv_tokens = int(51_200 * 1.06)
    lookup.sized(a)
    assert lookup.prefixes.capacity(a) == pytest.approx(1.06 * first, rel=0.01)
    a.kv_tokens = 1_024
    lookup.sized(a)
    assert lookup.prefixes.capacity(a) == pytest.approx(first / 50, rel=0.1)
