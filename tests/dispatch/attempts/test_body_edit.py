"""`append` adds members to a JSON object, whose meaning and bytes otherwise stay the same."""

import json

import msgspec
import pytest
from hypothesis import given, strategies as st

from router.dispatch.attempts.body_edit import append, renamed, size_of, with_length
from router.intake.body import DECODE_UP_TO, watch
from router.intake.forms import read_form
from router.intake.routes import POSTS

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


# -- another model name: every other byte stays, however the body comes in pieces ----------------

JSON_TYPE = b"application/json"
FORM = b"multipart/form-data; boundary=b"
BODIES = [
    (b'{"model":"a","n":1}', b'{"model":"new","n":1}'),
    (b'{"n": 1 , "model" :  "a" }', b'{"n": 1 , "model" :  "new" }'),
    (b' {"x":{"model":"a"},"model":"a"}\n', b' {"x":{"model":"a"},"model":"new"}\n'),
    (b'{"model":"a","model":"b"}', b'{"model":"new","model":"new"}'),
    (b'{"mod\\u0065l":"a\\"b","p":"\\"model\\":"}', b'{"mod\\u0065l":"new","p":"\\"model\\":"}'),
    (b'{"p":"\xc3\xa9 \\ud83d","model":"a"}', b'{"p":"\xc3\xa9 \\ud83d","model":"new"}'),
]
PART = b'--b\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n'
AUDIO = PART % (b"file", b"\x00model\r\n--c\xff") + PART % (b"x", b"a")


def splits(body: bytes) -> list[list[bytes]]:
    whole, single = [body], [body[place : place + 1] for place in range(len(body))]
    return [whole, single, *([body[:at], body[at:]] for at in range(1, len(body)))]


@pytest.mark.parametrize(("before", "after"), BODIES)
def test_only_the_name_changes(before: bytes, after: bytes) -> None:
    for pieces in splits(before):
        found = renamed(pieces, len(before), JSON_TYPE, None, "new")
        assert found is not None
        assert b"".join(found[0]) == after


@pytest.mark.parametrize("body", [b'{"n":1}', b"[1]", b'{"model":"a"', b'{"model":"a"}x', b"no"])
def test_a_body_without_a_certain_name_is_not_changed(body: bytes) -> None:
    found = renamed([body], len(body), JSON_TYPE, None, "new")
    assert found is None or b"".join(found[0]) == body.replace(b'"a"', b'"new"')


def test_a_name_is_encoded() -> None:
    found = renamed([b'{"model":"a"}'], 13, JSON_TYPE, None, 'q"é\n')
    assert found is not None
    assert json.loads(b"".join(found[0])) == {"model": 'q"é\n'}


def test_a_form_keeps_all_other_fields() -> None:
    before = AUDIO + PART % (b"model", b"a") + PART % (b"y", b"model") + b"--b--\r\n"
    after = AUDIO + PART % (b"model", b"new") + PART % (b"y", b"model") + b"--b--\r\n"
    for pieces in splits(before):
        found = renamed(pieces, len(before), FORM, None, "new")
        assert found is not None
        assert b"".join(found[0]) == after
    assert read_form([after], FORM, {b"model"}) == {b"model": b"new"}


@pytest.mark.parametrize("size", [DECODE_UP_TO + 1, 9 * 1024 * 1024])
def test_a_large_body_is_not_scanned_again(size: int) -> None:
    """The positions of the members behind the name move with it."""
    text = b"x" * size
    body = b'{"model":"a","prompt":"%b","priority": 3,"user":"u"}' % text
    pieces = [body[at : at + 65536] for at in range(0, len(body), 65536)]
    large = watch(POSTS[b"/v1/completions"], len(body), JSON_TYPE)
    for piece in pieces:
        large.feed(piece)
    found = renamed(pieces, len(body), JSON_TYPE, large, "a longer name")
    assert found is not None
    made = b"".join(found[0])
    assert made == body.replace(b'"a"', b'"a longer name"', 1)
    assert found[0][1:] == pieces[1:]
    members = {place.name: made[place.value : place.end] for place in found[1]}
    assert members["priority"] == b" 3"
    assert members["user"] == b'"u"'
    assert members["model"] == b'"a longer name"'
