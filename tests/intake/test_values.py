"""Single members of a body are decoded without an error, whatever their bytes are."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.session_names import MAX_SESSION
from router.intake.fields import Fields
from router.intake.routes import JSON, Route
from router.intake.stretch import Stretch
from router.intake.values import (
    bytes_of,
    is_given,
    opening_of,
    output_tokens_of,
    session_of,
    value_of,
)


def raw(data: bytes) -> msgspec.Raw:
    return msgspec.Raw(data)


@pytest.mark.parametrize(
    ("data", "given"),
    [(None, False), (b"null", False), (b"0", True), (b'""', True), (b"false", True), (b"[]", True)],
)
def test_a_member_is_given_unless_it_is_null(data: bytes | None, given: bool) -> None:
    assert is_given(None if data is None else raw(data)) == given
    if data is not None and data != b"null":
        assert is_given(Stretch([data], 0, len(data)))


def test_a_stretch_and_a_raw_value_are_read_alike() -> None:
    body = b'{"prompt":"some text"}'
    stretch = Stretch([body[:14], body[14:]], 10, len(body) - 1)
    assert bytes_of(stretch) == bytes_of(raw(b'"some text"')) == b'"some text"'
    assert opening_of(stretch) == opening_of(raw(b'"some text"')) == ord('"')


def test_bytes_are_a_copy_that_does_not_keep_the_body() -> None:
    fields = msgspec.json.decode(b'{"prompt":[1, 2],"x":1}', type=Fields)
    assert fields.prompt is not None
    assert type(bytes_of(fields.prompt)) is bytes
    assert bytes_of(fields.prompt) == b"[1, 2]"


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"1", 1),
        (b'"a"', "a"),
        (b"null", None),
        (b"[1]", [1]),
        (b"", ...),
        (b"{", ...),
        (b"NaN", ...),
        (b'"\xff"', ...),
        (b'"\\ud800"', ...),
        (b"[" * 5000 + b"]" * 5000, ...),
    ],
)
def test_a_value_that_cannot_be_decoded_is_present_but_unusable(data: bytes, value: object) -> None:
    assert value_of(raw(data)) == value
    assert value_of(None) is None


@given(st.binary(max_size=20))
def test_no_bytes_raise(data: bytes) -> None:
    value_of(raw(data))
    session_of(Fields(user=raw(data)))


@pytest.mark.parametrize(
    ("body", "session"),
    [
        ({}, None),
        ({"user": "u"}, "u"),
        ({"prompt_cache_key": "p", "user": "u"}, "p"),
        ({"session_id": "s", "prompt_cache_key": "p", "user": "u"}, "s"),
        # If a field is not usable, the next field is used.
        ({"session_id": None, "user": "u"}, "u"),
        ({"session_id": "", "user": "u"}, "u"),
        ({"session_id": 7, "user": "u"}, "u"),
        ({"session_id": ["s"], "prompt_cache_key": {}, "user": "u"}, "u"),
        ({"session_id": "s" * (MAX_SESSION + 1), "user": "u"}, "u"),
        ({"user": "s" * (MAX_SESSION + 1)}, None),
        ({"user": "s" * MAX_SESSION}, "s" * MAX_SESSION),
        ({"user": "é" * MAX_SESSION}, "é" * MAX_SESSION),  # six bytes each, as escapes
        ({"user": "\0"}, "\0"),
    ],
)
def test_the_first_usable_field_names_the_session(
    body: dict[str, Any], session: str | None
) -> None:
    for plain in (True, False):
        data = json.dumps(body, ensure_ascii=plain).encode()
        assert session_of(msgspec.json.decode(data, type=Fields)) == session


@pytest.mark.parametrize(
    ("kind", "limits", "tokens"),
    [
        ("chat", (None, None, None), None),
        ("chat", (5, 6, 7), 6),  # an engine may read the second, or the first
        ("chat", (6, 5, 7), 6),
        ("chat", (None, 6, 7), 6),
        ("chat", (1, None, 7), 1),
        ("chat", (None, None, 7), None),
        ("chat", (0, 6, None), 6),
        ("chat", (-1, 0, 7), None),
        ("chat", (1 << 31, 6, None), None),  # an engine that reads it has no limit
        ("chat", ((1 << 31) - 1, None, None), (1 << 31) - 1),
        ("chat", (1 << 100, -(1 << 100), 0), None),
        ("generate", (5, 6, 7), 6),
        ("completions", (1, 100_000, 1), 100_000),
        ("completions", (1, None, 1), None),
        ("messages", (1, 6, 1), 6),
        ("responses", (1, 1, 6), 6),
        ("responses", (1, 1, None), None),
    ],
)
def test_the_members_that_engines_read_limit_the_output(
    kind: str, limits: tuple[int | None, int | None, int | None], tokens: int | None
) -> None:
    completion, most, output = limits
    fields = Fields(max_completion_tokens=completion, max_tokens=most, max_output_tokens=output)
    assert output_tokens_of(fields, Route(kind, True, JSON, True)) == tokens
    assert output_tokens_of(fields, Route(kind, True, JSON, True, limits_output=False)) is None
