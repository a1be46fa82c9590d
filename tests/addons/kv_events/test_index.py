"""The exact index: single cases, and a comparison with a naive model."""

import gc
import weakref
from typing import Any

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from router.addons.kv_events.chains import TokenChains, chain, pack, root
from router.addons.kv_events.decode import AllBlocksCleared, decode
from router.addons.kv_events.holder import ROOTS
from router.addons.kv_events.index import ExactIndex
from tests.addons.kv_events.events import CLEARED, payload, prompt, removed, stored
from tests.addons.kv_events.test_decode import recorded

A, B, C = [1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]


def tell(index: ExactIndex, key: Any, *events: Any, rank: int = 0) -> None:
    batch = decode(payload(*events))
    assert not batch.garbage
    for event in batch.events:
        index.apply(key, rank, event)


def made(*keys: Any) -> ExactIndex:
    index = ExactIndex()
    for key in keys:
        index.add(key)
    return index


def test_the_last_token_is_never_a_hit() -> None:
    index = made("x")
    tell(index, "x", stored([1, 2], [*A, *B]))
    assert index.match(TokenChains(pack([*A, *B]))) == {"x": 1}
    assert index.match(TokenChains(pack([*A, *B, 9]))) == {"x": 2}


def test_the_number_of_matched_blocks_is_limited() -> None:
    index = made("x")
    tell(index, "x", stored([1, 2, 3], [*A, *B, *C]))
    doubtful: set[Any] = set()
    tokens = pack([*A, *B, *C, 0])
    assert index.match(TokenChains(tokens, most=11), None, doubtful) == {"x": 2}
    assert doubtful == {"x"}  # the estimate decides about the rest of the prompt
    doubtful.clear()
    assert index.match(TokenChains(tokens, most=12), None, doubtful) == {"x": 3}
    assert not doubtful


def test_engines_hashes_mean_nothing_across_replicas() -> None:
    index = made("x", "y")
    tell(index, "x", stored([1], A))
    tell(index, "y", stored([1], B), removed([1]))
    assert index.match(prompt(*A)) == {"x": 1}
    assert index.match(prompt(*B)) == {}


def test_block_sizes_may_differ() -> None:
    index = made("x", "y")
    tell(index, "x", stored([1, 2, 3], [*A, *B, *C], size=4))
    tell(index, "y", stored([1, 2], [*A, *B], size=4), stored([9], [*A, *B], size=8))
    assert index.block_size("x") == 4
    assert index.block_size("y") == 8  # the smaller blocks were ends of prompts
    assert index.match(prompt(*A, *B, *C)) == {"x": 3, "y": 1}
    # The same unit for all replicas: 12 and 8 tokens in blocks of 4, 5.5 and 100 tokens.
    assert index.match(prompt(*A, *B, *C), 4) == {"x": 3, "y": 2}
    assert index.match(prompt(*A, *B, *C), 5.5) == {"x": 2, "y": 1}
    assert index.match(prompt(*A, *B, *C), 100) == {}
    tell(index, "y", stored([10], A, size=4))
    assert index.match(prompt(*A)) == {"x": 1}
    assert index.stats.left_out == 1


def test_two_hashes_of_one_block() -> None:
    """Engines that do not report the salt have two hashes for the same token IDs."""
    index = made("x")
    tell(index, "x", stored([1], A), stored([2], A), stored([3], A))
    tell(index, "x", removed([1]), removed([3]))
    assert index.match(prompt(*A)) == {"x": 1}
    tell(index, "x", removed([2]))
    assert index.match(prompt(*A)) == {} and len(index) == 0


def test_one_hash_of_two_blocks() -> None:
    index = made("x")
    tell(index, "x", stored([1], A), stored([1], B))
    assert index.match(prompt(*A)) == {}
    assert index.match(prompt(*B)) == {"x": 1}
    assert len(index) == 1


def test_a_block_with_an_unknown_parent_is_ignored() -> None:
    index = made("x")
    tell(index, "x", stored([2], B, parent=1))
    assert (len(index), index.stats.orphans) == (0, 1)
    tell(index, "x", stored([1, 2], [*A, *B]))
    assert index.match(prompt(*A, *B)) == {"x": 2}


def test_a_parent_that_was_removed_lately_is_known() -> None:
    index = made("x")
    tell(index, "x", stored([1], A), removed([1]), stored([2], B, parent=1))
    assert index.match(prompt(*A, *B)) == {}
    tell(index, "x", stored([1], A))
    assert index.match(prompt(*A, *B)) == {"x": 2}


def test_offloaded_blocks_come_without_tokens() -> None:
    index = made("x")
    tell(index, "x", stored([1], A), stored([1, 5], [], size=0, medium="CPU"))
    assert (len(index), index.stats.orphans) == (2, 1)
    tell(index, "x", removed([1]), stored([2], B, parent=1), stored([1], A))
    assert index.match(prompt(*A, *B)) == {"x": 2}


def test_groups_of_windows_do_not_count() -> None:
    index = made("x")
    full = {"kv_cache_spec_kind": "full_attention", "group_idx": 1}
    window = {"kv_cache_spec_kind": "sliding_window", "group_idx": 0}
    tell(index, "x", stored([1], A, **window), stored([1], A, **full))
    assert index.match(prompt(*A)) == {"x": 1}
    tell(index, "x", removed([1], group_idx=0))
    assert index.match(prompt(*A)) == {"x": 1}
    tell(index, "x", removed([1], group_idx=1))
    assert index.match(prompt(*A)) == {}


def test_without_kinds_the_group_is_the_first_with_a_beginning() -> None:
    index = made("x")
    index.clear("x", complete=True)
    tell(index, "x", stored([9], B, parent=8, group_idx=0))
    tell(index, "x", stored([1], A, group_idx=1))
    assert not index.is_complete("x")
    index.clear("x", complete=True)
    tell(index, "x", stored([1], A, group_idx=1), stored([2], B, parent=1, group_idx=1))
    assert index.is_complete("x")
    tell(index, "x", removed([2], group_idx=0))
    assert index.match(prompt(*A, *B)) == {"x": 2}
    tell(index, "x", stored([3], C, group_idx=0))
    assert index.match(prompt(*C)) == {}
    assert not index.is_complete("x")  # the recorded group may be the wrong one


@pytest.mark.parametrize(
    "event",
    [
        stored([2], B, parent=77),
        stored([2], B, parent=1, extra_keys=[["unknown"]]),
        stored([2, 3], A, parent=1, size=2),
        stored([2], B, parent=1, group_idx=1),
    ],
    ids=["unknown parent", "unknown key", "smaller blocks", "another group"],
)
def test_an_event_that_cannot_be_applied_ends_completeness(event: Any) -> None:
    index = made("x")
    index.clear("x", complete=True)
    tell(index, "x", stored([1], A, group_idx=0))
    assert index.is_complete("x")
    tell(index, "x", event)
    assert not index.is_complete("x")
    assert index.match(prompt(*A)) == {"x": 1}
    tell(index, "x", CLEARED)
    assert index.is_complete("x")


def test_the_partial_block_at_the_end_of_a_prompt_is_left_out() -> None:
    index = made("x")
    index.clear("x", complete=True)
    tell(index, "x", stored([1], A), stored([2], B[:2], parent=1, size=2))
    assert index.is_complete("x") and index.stats.left_out == 1


def test_a_missing_block_before_a_held_one_is_a_doubt() -> None:
    index = made("x", "y")
    for key in "xy":
        tell(index, key, stored([1, 2, 3], [*A, *B, *C]))
    tell(index, "x", removed([1]))
    tell(index, "y", removed([3]))
    doubtful: set[Any] = set()
    assert index.match(prompt(*A, *B, *C), None, doubtful) == {"y": 2}
    assert doubtful == {"x"}
    tell(index, "y", removed([1]), removed([2]))
    doubtful.clear()
    assert index.match(prompt(*A, *B, *C), None, doubtful) == {}  # behind a block that none has
    assert doubtful == {"x"}


def test_only_prompts_of_a_root_that_has_matched_are_known_completely() -> None:
    """The engine may separate the prompts of an adapter in a way that the router cannot compute."""
    index = made("x")
    index.clear("x", complete=True)
    tell(index, "x", stored([1], A, lora_id=7), stored([2], A))
    assert index.is_complete("x") and not index.is_complete("x", root())
    assert index.match(TokenChains(pack([*A, 0]), lora="ad")) == {}
    assert index.match(prompt(*A)) == {"x": 1}
    assert index.is_complete("x", root()) and not index.is_complete("x", root("ad"))
    index.connected("x", 0, False)
    assert not index.is_complete("x", root())
    index.connected("x", 0, True)
    assert index.is_complete("x", root())
    index.clear("x", complete=True)
    assert not index.is_complete("x", root())  # another process, and perhaps another engine


def test_the_roots_are_bounded() -> None:
    index = made("x")
    for number in range(ROOTS + 100):
        tell(index, "x", stored([number], A, cache_salt=str(number)))
        assert index.match(TokenChains(pack([*A, 0]), salt=str(number)))
    (holder,) = index._holders.values()
    assert len(holder.roots) == ROOTS


def test_adapters_and_salts_are_apart() -> None:
    index = made("x")
    tell(index, "x", stored([1], A, lora_name="ad", extra_keys=[["ad"]]))
    tell(index, "x", stored([2], A, extra_keys=[["pepper"]]))
    tokens = pack([*A, 0])
    assert index.match(TokenChains(tokens)) == {}
    assert index.match(TokenChains(tokens, lora="ad")) == {"x": 1}
    assert index.match(TokenChains(tokens, salt="pepper")) == {"x": 1}
    assert index.match(TokenChains(tokens, lora="ad", salt="pepper")) == {}


def test_an_image_is_not_its_placeholder() -> None:
    index = made("x")
    tell(index, "x", stored([1, 2, 3], [*A, *B, *C], extra_keys=[None, [["image", 0]], None]))
    assert index.match(prompt(*A, *B, *C)) == {"x": 1}


def test_a_restarted_engine_may_have_smaller_blocks() -> None:
    index = made("x")
    tell(index, "x", stored([1], [*A, *B], size=8))
    index.clear("x", complete=True)
    tell(index, "x", stored([1], A, size=4))
    assert index.match(prompt(*A)) == {"x": 1}
    assert index.is_complete("x")


def test_a_removed_replica_is_forgotten() -> None:
    class Key:
        pass

    index = ExactIndex()
    key = Key()
    index.add(key)
    tell(index, key, stored([1, 2], [*A, *B]), stored([1], A, medium="CPU"))
    index.remove(key)
    assert key not in index and index.match(prompt(*A)) == {}
    tell(index, key, stored([1], A))  # a late event
    assert len(index) == 2
    assert index.purge(1) and not index.purge(10)
    assert len(index) == 0
    gone = weakref.ref(key)
    del key
    gc.collect()
    assert gone() is None


def test_ranks_of_one_replica() -> None:
    index = ExactIndex()
    index.add("x", 0)
    index.add("x", 1)
    tell(index, "x", stored([1], A), rank=0)
    tell(index, "x", stored([1, 2], [*A, *B]), rank=1)
    assert index.match(prompt(*A, *B)) == {"x": 2}
    index.clear("x", 0, complete=True)
    assert not index.is_complete("x")
    index.remove("x", 1)
    assert index.match(prompt(*A, *B)) == {}
    assert index.is_complete("x")


def test_the_recorded_engine() -> None:
    index = made("x")
    for frame in recorded("vllm-0.32.jsonl"):
        for event in decode(bytes.fromhex(frame["payload_hex"])).events:
            index.apply("x", 0, event)
    assert len(index) == 16
    first = decode(bytes.fromhex(recorded("vllm-0.32.jsonl")[0]["payload_hex"])).events[0]
    second = decode(bytes.fromhex(recorded("vllm-0.32.jsonl")[1]["payload_hex"])).events[0]
    # The second event is the block that decoding filled after the prompt of the first.
    tokens = first.tokens + second.tokens + pack([0])  # type: ignore[union-attr]
    assert index.match(TokenChains(tokens)) == {"x": 8}
    assert index.stats.orphans == 0


def test_tails_of_prompts_are_evicted_before_their_beginnings() -> None:
    index = ExactIndex(entries=100)
    index.add("x")
    # Hashes of one shard, whose order is then the order of the whole index.
    tell(index, "x", stored([n * 64 for n in range(200)], list(range(800))))
    assert 0 < len(index) <= 100
    assert index.match(prompt(*range(800))) == {"x": len(index)}


def test_the_largest_holder_makes_room() -> None:
    index = ExactIndex(entries=1000)
    index.add("small")
    index.add("large")
    tell(index, "small", stored([1, 2], [*A, *B]))
    tell(index, "large", *(stored([n], [n, 2, 3, 4]) for n in range(3000)))
    assert index.match(prompt(*A, *B)) == {"small": 2}
    assert len(index) <= 1000


def test_the_chain_is_what_it_says() -> None:
    from xxhash import xxh3_64_intdigest

    packed = b"".join(number.to_bytes(4, "little") for number in (*A, *B))
    assert pack([*A, *B]) == packed
    first = xxh3_64_intdigest(packed[:16], 0)
    assert chain(packed, 4, root()) == [first, xxh3_64_intdigest(packed[16:], first)]
    seeds = {root(*names) for names in (("", ""), ("a", ""), ("", "a"), ("a", "b"), ("ab", ""))}
    assert len(seeds) == 5
    with pytest.raises(OverflowError):
        pack([2**32])


# -- against a model ------------------------------------------------------------------------------

SIZE = 2


class Comparison(RuleBasedStateMachine):
    """Two replicas with engines that hold paths of a small tree of prompts.

    The model stores per replica and medium which token prefixes are held. An engine's hash of a
    block is its prefix's number, so that removals can be published.
    """

    @initialize(entries=st.sampled_from([12, 1000]))
    def begin(self, entries: int) -> None:
        self.index = ExactIndex(entries)
        self.entries = entries
        self.held: dict[str, dict[str, set[tuple[int, ...]]]] = {}
        self.numbers: dict[tuple[int, ...], int] = {}

    def number(self, prefix: tuple[int, ...]) -> int:
        return self.numbers.setdefault(prefix, len(self.numbers) + 1)

    @rule(key=st.sampled_from("xyz"))
    def add(self, key: str) -> None:
        self.index.add(key)
        self.held.setdefault(key, {"GPU": set(), "CPU": set()})

    @rule(key=st.sampled_from("xyz"))
    def remove(self, key: str) -> None:
        self.index.remove(key)
        self.held.pop(key, None)

    @rule(key=st.sampled_from("xyz"), complete=st.booleans())
    def restart(self, key: str, complete: bool) -> None:
        self.index.clear(key, complete=complete)
        if key in self.held:
            self.held[key] = {"GPU": set(), "CPU": set()}

    @rule(key=st.sampled_from("xyz"))
    def reset(self, key: str) -> None:
        self.index.apply(key, 0, AllBlocksCleared())
        if key in self.held:
            self.held[key] = {"GPU": set(), "CPU": set()}

    @rule(
        key=st.sampled_from("xyz"),
        path=st.lists(st.integers(0, 1), min_size=1, max_size=5),
        start=st.integers(0, 4),
        medium=st.sampled_from(["GPU", "GPU", "CPU"]),
    )
    def store(self, key: str, path: list[int], start: int, medium: str) -> None:
        start = min(start, len(path) - 1)
        prefixes = [tuple(path[: n + 1]) for n in range(len(path))]
        if key in self.held:
            held = self.held[key]
            if medium == "CPU" and not self.index.block_size(key):
                return  # CPU blocks have the size of GPU blocks, still unknown
            if start and not any(prefixes[start - 1] in blocks for blocks in held.values()):
                return
            held[medium] |= set(prefixes[start:])
        event = stored(
            [self.number(prefix) for prefix in prefixes[start:]],
            [token for step in path[start:] for token in (step, step)],
            parent=self.number(prefixes[start - 1]) if start else None,
            size=SIZE,
            medium=medium,
        )
        tell(self.index, key, event)

    @rule(
        key=st.sampled_from("xyz"),
        path=st.lists(st.integers(0, 1), min_size=1, max_size=5),
        medium=st.sampled_from(["GPU", "CPU"]),
    )
    def drop(self, key: str, path: list[int], medium: str) -> None:
        tell(self.index, key, removed([self.number(tuple(path))], medium))
        if key in self.held:
            self.held[key][medium].discard(tuple(path))

    @rule(most=st.integers(1, 5))
    def purge(self, most: int) -> None:
        self.index.purge(most)

    @precondition(lambda self: self.entries == 1000)
    @rule(path=st.lists(st.integers(0, 1), max_size=6))
    def ask(self, path: list[int]) -> None:
        expected = {}
        for key, held in self.held.items():
            depth = 0
            while depth < len(path) and tuple(path[: depth + 1]) in held["GPU"]:
                depth += 1
            if depth:
                expected[key] = depth
        assert self.index.match(prompt(*(t for step in path for t in (step, step)))) == expected

    @invariant()
    def counts(self) -> None:
        if not hasattr(self, "index"):
            return
        index = self.index
        assert 0 <= len(index) <= self.entries
        assert sum(index.entries(key) for key in self.held) <= len(index)
        for key in "xyz":
            assert (key in index) == (key in self.held)
            assert index.entries(key) >= 0
        if self.entries == 1000:
            for key, held in self.held.items():
                assert index.entries(key) == sum(len(blocks) for blocks in held.values())
        live = set(index._by_bit) | {retired.bit for retired in index._retired}
        assert not live & set(index._free_bits)
        bits = sum(live)
        for shard in index._masks:
            for mask in shard.values():
                assert mask and not mask & ~bits

    def teardown(self) -> None:
        if not hasattr(self, "index"):
            return
        for key in list(self.held):
            self.index.remove(key)
        while self.index.purge(100):
            pass
        assert len(self.index) == 0
        assert not any(self.index._masks)
        assert not self.index._holders and not self.index._by_bit and not self.index._sizes


Comparison.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_only_the_gpu_is_a_hit() -> None:
    index = made("x")
    tell(index, "x", stored([1], A), stored([1], A, medium="CPU"))
    assert len(index) == 2
    tell(index, "x", removed([1]))
    assert index.match(prompt(*A)) == {} and len(index) == 1
    tell(index, "x", stored([2], B, parent=1))  # the block's parent is in host memory
    tell(index, "x", stored([1], A))
    assert index.match(prompt(*A, *B)) == {"x": 2}
    tell(index, "x", removed([1], "CPU"), removed([1], "CPU"), removed([1], "DISK"))
    assert index.match(prompt(*A, *B)) == {"x": 2}
    assert len(index) == 2


def test_media_are_bounded() -> None:
    index = made("x")
    tell(index, "x", stored([1], A))
    tell(index, "x", *(stored([1], A, medium=f"tier {n}") for n in range(100)))
    assert len(index) < 20


def test_what_was_cleared_makes_room_first() -> None:
    index = ExactIndex(entries=100)
    index.add("x")
    index.add("y")
    tell(index, "x", *(stored([n], [n, 2, 3, 4]) for n in range(90)))
    index.clear("x")
    tell(index, "y", *(stored([n], [n, 2, 3, 4]) for n in range(100)))
    assert index.stats.evicted == 0
    assert index.entries("y") == len(index) == 100
