from hypothesis import given, strategies as st

from policies.routing.ring import Ring

KEYS = [f"key {number}" for number in range(4000)]


def ring_of(*ids: str) -> Ring:
    ring = Ring()
    ring.add(frozenset(ids))
    return ring


def homes(ring: Ring) -> dict[str, str]:
    return {key: next(ring.walk(key)) for key in KEYS}


def test_a_walk_yields_every_replica_once() -> None:
    ring = ring_of("a", "b", "c", "d")
    for key in KEYS[:100]:
        assert sorted(ring.walk(key)) == ["a", "b", "c", "d"]


def test_only_the_keys_of_a_removed_replica_move() -> None:
    ring = ring_of(*(f"r{i}" for i in range(8)))
    before = homes(ring)
    ring.keep({f"r{i}" for i in range(7)})
    after = homes(ring)
    moved = {key for key in KEYS if before[key] != after[key]}
    assert moved == {key for key in KEYS if before[key] == "r7"}
    assert len({after[key] for key in moved}) > 1  # and not all to one neighbour
    ring.add(frozenset({"r7"}))
    assert homes(ring) == before


def test_the_next_replica_on_the_ring_takes_over() -> None:
    ring, without = ring_of("a", "b", "c"), ring_of("b", "c")
    for key in KEYS[:500]:
        first, second, _ = ring.walk(key)
        if first == "a":
            assert next(without.walk(key)) == second


ids = st.frozensets(st.text(max_size=5), max_size=6)


@given(st.lists(st.tuples(st.booleans(), ids), max_size=8), st.text())
def test_routers_agree_whatever_happened_before(
    history: list[tuple[bool, frozenset[str]]], key: str
) -> None:
    ring = Ring()
    for adds, some in history:
        if adds:
            ring.add(some)
        else:
            ring.keep(some)
    fresh = Ring()
    fresh.add(ring.ids)
    assert list(ring.walk(key)) == list(fresh.walk(key))
    assert set(ring.walk(key)) == ring.ids
