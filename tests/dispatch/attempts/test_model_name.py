"""Another model's name in a body: every other byte stays, however the body comes in pieces."""

from __future__ import annotations

import json

import pytest

from router.dispatch.attempts.body_edit import renamed
from router.intake.body import DECODE_UP_TO, watch
from router.intake.forms import read_form
from router.intake.routes import POSTS

JSON = b"application/json"
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
        found = renamed(pieces, len(before), JSON, None, "new")
        assert found is not None
        assert b"".join(found[0]) == after


@pytest.mark.parametrize("body", [b'{"n":1}', b"[1]", b'{"model":"a"', b'{"model":"a"}x', b"no"])
def test_a_body_without_a_certain_name_is_not_changed(body: bytes) -> None:
    found = renamed([body], len(body), JSON, None, "new")
    assert found is None or b"".join(found[0]) == body.replace(b'"a"', b'"new"')


def test_a_name_is_encoded() -> None:
    found = renamed([b'{"model":"a"}'], 13, JSON, None, 'q"é\n')
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
    large = watch(POSTS[b"/v1/completions"], len(body), JSON)
    for piece in pieces:
        large.feed(piece)
    found = renamed(pieces, len(body), JSON, large, "a longer name")
    assert found is not None
    made = b"".join(found[0])
    assert made == body.replace(b'"a"', b'"a longer name"', 1)
    assert found[0][1:] == pieces[1:]
    members = {place.name: made[place.value : place.end] for place in found[1]}
    assert members["priority"] == b" 3"
    assert members["user"] == b'"u"'
    assert members["model"] == b'"a longer name"'
