"""Which replica holds how much of a prompt, by the sent prompts or the engines' own KV events."""

from __future__ import annotations

import pytest

from policies.contract import RequestView
from router.config.model import Health, Prefix
from router.config.model import Replica as Config
from router.fleet.prefix.kv_events.chains import TokenChains, pack
from router.fleet.prefix.kv_events.decode import BlockStored
from router.fleet.prefix.kv_events.index import ExactIndex
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


def test_a_request_without_blocks_is_held_nowhere() -> None:
    lookup = PrefixLookup(RULES)
    a = a_replica("a")
    lookup.add(a)
    lookup.sent(a, (1,), 0)
    assert lookup.held(a_view()) == {}


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


def test_a_replica_that_comes_back_gets_its_capacity_again() -> None:
    lookup = PrefixLookup(RULES)
    a = a_replica("a", kv_tokens=5_120)
    lookup.add(a)
    first = lookup.prefixes.capacity(a)
    lookup.remove_all([a])
    lookup.add(a)
    assert lookup.prefixes.capacity(a) == first


# -- the exact index --------------------------------------------------------------------------

BLOCK = 16  # tokens of a block
TOKENS = pack(range(4 * BLOCK + 1))


class Exact:
    """Two replicas with the same sent prompt; the events of one show another depth."""

    def __init__(self, blocks: int, *, is_complete: bool) -> None:
        self.lookup = PrefixLookup(RULES)
        self.a, self.b = a_replica("a"), a_replica("b")
        self.lookup.add_all((self.a, self.b))
        for replica in (self.a, self.b):
            self.lookup.sent(replica, (1, 2), 0)
        self.lookup.exact = index = ExactIndex()
        index.add(self.a)
        if is_complete:
            index.clear(self.a, complete=True)
        if blocks:
            index.apply(
                self.a,
                0,
                BlockStored(
                    hashes=[*range(100, 100 + blocks)],
                    parent=None,
                    tokens=TOKENS[: 4 * BLOCK * blocks],
                    block_size=BLOCK,
                ),
            )
        self.view = a_view(1, 2, 3, 4)
        self.view.block_tokens = float(BLOCK)
        self.view.chains = TokenChains(TOKENS)

    def held(self) -> dict[str, int]:
        return {replica.id: depth for replica, depth in self.lookup.held(self.view).items()}


@pytest.mark.parametrize(
    ("blocks", "is_complete", "depth"),
    [
        (4, True, 4),
        (1, True, 1),  # the engine has evicted the sent prompt
        (0, True, 2),  # no match proves that the events describe such prompts
        (4, False, 4),
        (1, False, 2),  # the events began late: earlier prompts may still be cached
        (0, False, 2),
    ],
)
def test_events_decide_alone_only_where_all_of_them_were_received(
    blocks: int, is_complete: bool, depth: int
) -> None:
    exact = Exact(blocks, is_complete=is_complete)
    assert exact.held() == {"a": depth, "b": 2}


def test_without_token_ids_the_sent_prompts_count() -> None:
    exact = Exact(1, is_complete=True)
    exact.view.chains = None
    assert exact.held() == {"a": 2, "b": 2}


def test_depths_are_in_the_blocks_of_the_request() -> None:
    exact = Exact(4, is_complete=True)
    exact.view.block_tokens = 2.0 * BLOCK
    assert exact.held() == {"a": 2, "b": 2}


def test_a_request_without_blocks_is_not_looked_up_in_the_exact_index() -> None:
    exact = Exact(4, is_complete=True)
    exact.view.blocks = ()
    assert exact.held() == {}


def test_the_latest_prompts_count_before_their_events_arrive() -> None:
    """A burst of requests with one prompt goes to one replica."""
    lookup = PrefixLookup(Prefix(block_bytes=512, kv_tokens=100_000, exact=True))
    a = a_replica("a")
    lookup.add(a)
    lookup.exact = index = ExactIndex()
    index.add(a)
    index.clear(a, complete=True)
    known = BlockStored(hashes=[1], parent=None, tokens=TOKENS[: 4 * BLOCK], block_size=BLOCK)
    index.apply(a, 0, known)
    view = a_view(1)
    view.block_tokens = float(BLOCK)
    view.chains = TokenChains(TOKENS)
    assert lookup.held(view) == {a: 1}
    new = a_view(11, 12)
    new.block_tokens = float(BLOCK)
    new.chains = TokenChains(pack(range(1000, 1000 + 2 * BLOCK + 1)))
    lookup.sent(a, new.blocks, 0)
    assert lookup.held(new) == {a: 2}
    lookup.begun(a, new.blocks, 0)
    assert lookup.held(new) == {a: 2}
    # When a sixteenth of the cache was filled since, only events show the prompt.
    for number in range(100):
        lookup.sent(a, (100 + number,), 0)
        lookup.begun(a, (100 + number,), 0)
    assert lookup.held(new) == {}
    lookup.restarted(a)
    assert lookup.held(a_view(199)) == {}
