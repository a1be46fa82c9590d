"""`append` adds members to a JSON object, whose meaning and bytes otherwise stay the same."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.dispatch.attempts.body_edit import append, size_of, with_length

MEMBERS = b'"rid":"x","priority":-3'
ADDED = {"rid": "x", "priority": -3}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    at = sorted({place % (len(data) + 1) for place in places})
    return [data[a:b] for a, b in zip([0, *at], [*at, len(data)], strict=True)]


@given(
    whole=st.dictionaries(st.text(), JSON, max_size=4),
    places=st.lists(st.integers(0, 400), max_size=5),
    indent=st.sampled_from([None, 0, 3]),
    space=st.text(" \t\r\n", max_size=5),
)
def test_any_object_in_any_pieces(
    whole: dict[str, object], places: list[int], indent: int | None, space: str
) -> None:
    data = (space + json.dumps(whole, indent=indent) + space).encode()
    changed = append(cut(data, places), MEMBERS)
    assert changed is not None
    joined = b"".join(changed)
    for decode in (json.loads, msgspec.json.decode):
        assert decode(joined) == {**whole, **ADDED}
    assert size_of(changed) == len(joined)
    at = joined.rindex(MEMBERS)
    before, after = joined[:at].removesuffix(b","), joined[at + len(MEMBERS) :]
    assert before + after == data


def test_of_two_members_with_one_name_the_new_one_counts() -> None:
    changed = append([b'{"rid":"theirs","a":1}'], MEMBERS)
    assert changed is not None
    for decode in (json.loads, msgspec.json.decode):
        assert decode(b"".join(changed)) == {"a": 1, **ADDED}


@pytest.mark.parametrize(
    "odd",
    [b"", b"  ", b"[1]", b'"{', b"--boundary\r\n{", b"{}x", b'{"a":1', b'{"a":"}"', b"}", b"{"],
)
def test_what_is_no_object_stays(odd: bytes) -> None:
    assert append([odd], MEMBERS) is None
    assert append([], MEMBERS) is None


def test_a_small_body_stays_one_piece_and_a_large_one_is_not_copied_twice() -> None:
    small = append([b'{"a":1}'], MEMBERS)
    assert small is not None
    assert len(small) == 1
    large = append([b'{"a":"%b"}' % (b"x" * 100_000)], MEMBERS)
    assert large is not None
    again = append(large, b'"b":2')
    assert again is not None
    assert again[0] is large[0]
    assert json.loads(b"".join(again))["b"] == 2


def test_the_content_length_is_recomputed() -> None:
    lines = b"\r\nvia: 1.1 a\r\ncontent-length: 99"
    assert with_length(lines, 99, 130) == b"\r\nvia: 1.1 a\r\ncontent-length: 130"
    assert with_length(lines, 9, 130) is None
    assert with_length(lines + b"\r\nx: y", 99, 130) is None
