"""The prefix index compared with a naive model of its rules, for any order of operations."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from router.fleet.prefix.index import SHARDS, PrefixIndex
from tests.examples import examples
from tests.fleet.prefix.prefix_model import Naive, audit, chain

KEYS = [f"r{number}" for number in range(5)]
# Paths in a small tree, so that prompts share prefixes of every length.
PROMPTS = st.lists(st.sampled_from("ab"), max_size=14).map(lambda path: chain(*path))
ENTRIES = 100


class Holdings(RuleBasedStateMachine):
    shards = SHARDS

    def __init__(self) -> None:
        super().__init__()
        self.index: PrefixIndex[str] = PrefixIndex(ENTRIES, self.shards)
        self.naive = Naive(ENTRIES)
        self.attempts: list[tuple[str, tuple[int, ...], int]] = []

    @rule(key=st.sampled_from(KEYS), blocks=st.integers(0, 60))
    def comes(self, key: str, blocks: int) -> None:
        is_new = key not in self.naive.replicas
        self.index.add_replicas((key,))
        if is_new:
            self.index.set_capacity(key, blocks)
        self.naive.add_replica(key, blocks)

    @rule(key=st.sampled_from(KEYS))
    def goes(self, key: str) -> None:
        self.index.remove_replicas((key,))
        self.naive.remove_replica(key)

    @rule(key=st.sampled_from(KEYS))
    def restarts(self, key: str) -> None:
        self.index.clear(key)
        self.naive.clear(key)

    @rule(key=st.sampled_from(KEYS), blocks=st.integers(0, 60))
    def tells_its_size(self, key: str, blocks: int) -> None:
        self.index.set_capacity(key, blocks)
        self.naive.set_capacity(key, blocks)

    @rule(key=st.sampled_from(KEYS), blocks=PROMPTS)
    def is_sent_to(self, key: str, blocks: tuple[int, ...]) -> None:
        held = self.index.match(blocks).get(key, 0)
        self.index.insert(key, blocks, held)
        self.naive.insert(key, blocks, held)
        self.attempts.append((key, blocks, held))

    @precondition(lambda self: self.attempts)
    @rule(data=st.data(), well=st.booleans(), knows=st.booleans())
    def ends(self, data: st.DataObject, well: bool, knows: bool) -> None:
        at = data.draw(st.integers(0, len(self.attempts) - 1))
        key, blocks, held = self.attempts.pop(at)
        if well:
            self.index.confirm(key, blocks, held if knows else None)
            self.naive.confirm(key, blocks, held if knows else None)
        else:
            self.index.withdraw(key, blocks, held)
            self.naive.withdraw(key, blocks, held)

    @rule(blocks=PROMPTS)
    def is_asked_for(self, blocks: tuple[int, ...]) -> None:
        assert self.index.match(blocks) == self.naive.match(blocks)

    @rule(most=st.integers(0, 10))
    def has_time(self, most: int) -> None:
        self.index.tend(most)

    @invariant()
    def books(self) -> None:
        audit(self.index)
        for key, replica in self.naive.replicas.items():
            assert self.index.capacity(key) == self.naive.capacity(key)
            assert self.index.holding(key) == len(replica.held) <= self.naive.capacity(key)
        assert self.index.stats.entries <= ENTRIES
        everything = set().union(*(r.held for r in self.naive.replicas.values()))
        assert self.index.stats.blocks == len(everything)


class HoldingsInOneDict(Holdings):
    """The variant of the prefix index that the simulation uses."""

    shards = 1


TestHoldings = Holdings.TestCase
TestHoldings.settings = examples(150, steps=60)
TestHoldingsInOneDict = HoldingsInOneDict.TestCase
TestHoldingsInOneDict.settings = examples(50, steps=60)
