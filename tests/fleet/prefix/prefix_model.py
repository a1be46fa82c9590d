"""References for the prefix index: a naive model of its rules, and a consistency check."""

from collections import Counter
from itertools import count
from typing import Any

from xxhash import xxh3_64_intdigest

from router.fleet.prefix.index import RESERVE, PrefixIndex

_fresh = count()


def chain(*texts: str) -> tuple[int, ...]:
    """Chained hashes of texts, like those of a prompt's blocks."""
    seed = 0
    return tuple([seed := xxh3_64_intdigest(text.encode(), seed) for text in texts])


def unique(length: int = 32) -> tuple[int, ...]:
    """The blocks of a new prompt."""
    root = f"unique {next(_fresh)}"
    return chain(*([root] * length))


def audit(index: PrefixIndex[Any]) -> None:
    """Masks, rings and counts agree, and every set bit belongs to a replica."""
    slots = [*index._slots.values(), *index._work]
    slots = list(dict.fromkeys(slots))
    by_number = {slot.number: slot for slot in slots}
    assert len(by_number) == len(slots)
    held: Counter[int] = Counter()
    for number, shard in enumerate(index._shards):
        for block, mask in shard.items():
            assert hash(block) >> index._shift == number
            assert mask > 0
            assert mask is index._shared.get(mask, mask)  # a mask of one holder is a shared object
            for slot in slots:
                bits = mask & slot.both
                assert bits in (0, slot.held, slot.both)  # every used block is held
                held[slot.number] += bits != 0
                mask ^= bits
            assert mask == 0, "a bit of nobody"
    for slot in slots:
        assert held[slot.number] == slot.count
        assert 0 <= slot.head <= len(slot.ring)
        ring = set(slot.ring[slot.head :])
        holds = {b for shard in index._shards for b, mask in shard.items() if mask & slot.held}
        assert holds <= ring
        assert slot.count <= len(slot.ring) - slot.head
        if slot not in index._work:
            assert slot.excess <= 0
    assert index._entries == sum(slot.count for slot in slots) >= 0
    for key, slot in index._slots.items():
        assert index._keys[slot.number] is key is index._by_held[slot.held]
        assert index._live & slot.held
    assert index._live.bit_count() == len(index._slots) == len(index._by_held)
    numbers = {slot.number for slot in slots}
    assert not numbers & set(index._free)
    assert sum(k is not None for k in index._keys) == len(index._slots)


class _Replica:
    def __init__(self, own: int) -> None:
        self.own = own
        self.ring: list[int] = []
        self.held: set[int] = set()
        self.used: set[int] = set()


class Naive:
    """The rules of the prefix index over lists and sets, one replica at a time."""

    def __init__(self, entries: int) -> None:
        self.entries = entries
        self.replicas: dict[str, _Replica] = {}

    def capacity(self, key: str) -> int:
        return min(self.replicas[key].own, self.entries // len(self.replicas))

    def _shrink(self) -> None:
        for key, replica in self.replicas.items():
            self._evict(replica, len(replica.ring) - self.capacity(key))

    def add_replica(self, key: str, own: int) -> None:
        if key not in self.replicas:
            self.replicas[key] = _Replica(own)
            self._shrink()

    def remove_replica(self, key: str) -> None:
        self.replicas.pop(key, None)

    def clear(self, key: str) -> None:
        if key in self.replicas:
            self.replicas[key] = _Replica(self.replicas[key].own)

    def set_capacity(self, key: str, own: int) -> None:
        if key in self.replicas:
            self.replicas[key].own = own
            self._shrink()

    def match(self, blocks: tuple[int, ...]) -> dict[str, int]:
        found = {}
        for key, replica in self.replicas.items():
            depth = 0
            while depth < len(blocks) and blocks[depth] in replica.held:
                depth += 1
            if depth:
                found[key] = depth
        return found

    def _arrive(self, key: str, blocks: tuple[int, ...]) -> None:
        replica = self.replicas[key]
        for block in reversed(blocks):
            if block not in replica.held:
                replica.held.add(block)
                replica.ring.append(block)
        self._evict(replica, len(replica.ring) - self.capacity(key))

    def insert(self, key: str, blocks: tuple[int, ...], held: int) -> None:
        if key in self.replicas:
            self._arrive(key, blocks[held : self.capacity(key)])

    def confirm(self, key: str, blocks: tuple[int, ...], held: int | None) -> None:
        if key not in self.replicas:
            return
        replica, capacity = self.replicas[key], self.capacity(key)
        used = blocks[:capacity] if held is None else blocks[: min(held, capacity)]
        replica.used.update(used)
        self._arrive(key, blocks[:capacity])
        reserve = min(capacity // 16, RESERVE)
        self._evict(replica, len(replica.ring) - capacity + reserve)

    def withdraw(self, key: str, blocks: tuple[int, ...], held: int) -> None:
        if key not in self.replicas:
            return
        replica = self.replicas[key]
        replica.held -= set(blocks[held : self.capacity(key)]) - replica.used
        while replica.ring and replica.ring[-1] not in replica.held:
            replica.ring.pop()

    def _evict(self, replica: _Replica, excess: int) -> None:
        chances = 4 * excess + 64
        while excess > 0:
            block = replica.ring.pop(0)
            if block in replica.used and chances > 0:
                chances -= 1
                replica.used.discard(block)
                replica.ring.append(block)
                continue
            replica.held.discard(block)
            replica.used.discard(block)
            excess -= 1
