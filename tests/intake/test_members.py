"""Members of a large object: the scanner finds those of a decoder, for all cuts of the bytes."""

import json
from time import process_time

import pytest
from hypothesis import given, strategies as st

from router.intake.members import KEPT, MEMBERS, MemberScan

WANTED = frozenset({"model", "n", "ö", 'a"b'})
TEXT = st.text(max_size=6) | st.text('\\"{}[],: ', max_size=6)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(sorted(WANTED)) | TEXT


def scanned(body: bytes, places: list[int]) -> MemberScan:
    at = sorted({place % (len(body) + 1) for place in places})
    scan = MemberScan(WANTED)
    for a, b in zip([0, *at], [*at, len(body)], strict=True):
        scan.feed(body[a:b])
    return scan


@given(
    members=st.lists(st.tuples(NAMES, VALUES), max_size=6),
    places=st.lists(st.integers(0, 500), max_size=8),
    plain=st.booleans(),
    space=st.text(" \t\r\n", max_size=2),
)
def test_what_a_decoder_finds(
    members: list[tuple[str, object]], places: list[int], plain: bool, space: str
) -> None:
    said = ",".join(
        f"{space}{json.dumps(name, ensure_ascii=plain)}{space}:{json.dumps(value)}{space}"
        for name, value in members
    )
    body = f"{space}{{{said}}}{space}".encode()
    scan = scanned(body, places)
    assert scan.is_whole
    found = {name: json.loads(raw) for name, raw in scan.members.items()}
    assert found == {k: v for k, v in json.loads(body).items() if k in WANTED}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"model":"m"',
        b'{"model":"m"}x',
        b'{"model":"m"}{}',
        b'{"model":[}',
        b"\xff",
    ],
)
def test_what_is_no_object(body: bytes) -> None:
    assert not scanned(body, [3]).is_whole


def test_a_long_value_is_not_kept_and_hides_a_short_one() -> None:
    long = b'"' + b"x" * KEPT + b'"'
    scan = scanned(b'{"model":"m","n":2,"model":' + long + b"}", [40, 400])
    assert scan.is_whole
    assert scan.members == {"n": b"2"}


@pytest.mark.parametrize(
    "piece", [b"[", b'"",', b'"\\"', b'\\\\"', b'{"a":', b"1,", b'"a":1,', b"\\", b" "]
)
def test_dense_bodies_cost_little_per_read(piece: bytes) -> None:
    read = piece * (64 * 1024 // len(piece))
    scan = MemberScan(WANTED)
    scan.feed(b'{"x":[')
    began = process_time()
    for _ in range(4):
        scan.feed(read)
    assert process_time() - began < 0.5


def test_an_object_of_too_many_members_is_not_whole() -> None:
    for count in (MEMBERS, MEMBERS + 1):
        scan = MemberScan(WANTED)
        scan.feed(b"{" + b",".join([b'"n":1'] * count) + b"}")
        assert scan.is_whole == (count == MEMBERS)
        assert len(scan.places) == MEMBERS
    assert str(MEMBERS) in scan.problem


@given(cuts=st.lists(st.integers(0, 2000), max_size=8), text=st.text('\\"x', max_size=400))
def test_strings_that_are_searched(cuts: list[int], text: str) -> None:
    """Some bytes of a string are read one by one, others are searched."""
    body = json.dumps({"x": "x" * 70 + text, "model": text + "x" * 200 + text}).encode()
    scan = scanned(body, cuts)
    assert scan.is_whole
    assert json.loads(scan.members["model"]) == text + "x" * 200 + text
    (place,) = scan.places
    assert body[place.start : place.value].endswith(b'"model":')
    assert body[place.value : place.end].strip() == scan.members["model"]
