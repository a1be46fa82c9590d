"""Salted names: equal for equal values, different under another salt."""

from hypothesis import given, strategies as st

from router.observe.log.salt import BYTES, EVERY, Salter

HASHES = st.lists(st.integers(0, 2**64 - 1), max_size=20).map(tuple)


@given(HASHES, HASHES)
def test_blocks_agree_where_prompts_do(one: tuple[int, ...], other: tuple[int, ...]) -> None:
    salter = Salter("s", 64)
    first, second = salter.blocks(one), salter.blocks(other)
    assert len(first) == BYTES * (len(one) // EVERY)
    ends = zip(one[EVERY - 1 :: EVERY], other[EVERY - 1 :: EVERY], strict=False)
    for index, (a, b) in enumerate(ends):
        part = slice(index * BYTES, (index + 1) * BYTES)
        assert (first[part] == second[part]) == (a == b)


def test_no_more_blocks_than_asked_for() -> None:
    blocks = tuple(range(1, 11))
    assert Salter("s", 4).blocks(blocks) == Salter("s", 64).blocks(blocks)[: 4 * BYTES]
    assert Salter("s", 0).blocks(blocks) == b""


def test_a_salt_makes_logs_comparable_and_none_makes_them_not() -> None:
    assert Salter("s", 1).name(b"key") == Salter("s", 1).name(b"key")
    assert Salter("s", 1).name(b"key") != Salter("t", 1).name(b"key")
    assert Salter("", 1).name(b"key") != Salter("", 1).name(b"key")
    assert Salter("", 1).blocks((7, 8)) != Salter("", 1).blocks((7, 8))


@given(st.binary(max_size=64))
def test_a_name_is_short_and_says_nothing_itself(value: bytes) -> None:
    name = Salter("s", 1).name(value)
    assert len(name) == 12
    assert set(name) <= set("0123456789abcdef")
    assert name != Salter("s", 1).name(value + b"!")
