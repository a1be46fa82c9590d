"""Which replica holds how much of a prompt, by the engines' own KV events beside the estimate."""

import pytest

from router.addons.kv_events.chains import TokenChains, pack
from router.addons.kv_events.decode import BlockStored
from router.addons.kv_events.index import ExactIndex
from router.config.model import Prefix
from router.fleet.prefix.lookup import PrefixLookup
from tests.fleet.prefix.test_lookup import RULES, a_replica, a_view

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
