"""Single members of a body are decoded without an error, whatever their bytes are."""

import json
from typing import Any

import msgspec
import pytest

from router.core.session_names import MAX_SESSION
from router.intake.fields import fields_of
from router.intake.routes import JSON, Route
from router.intake.shapes import Members
from router.intake.stretch import Stretch
from router.intake.values import (
    bytes_of,
    opening_of,
    output_tokens_of,
    session_of,
)
from tests.intake.members import made


def raw(data: bytes) -> msgspec.Raw:
    return msgspec.Raw(data)


def test_a_stretch_and_a_raw_value_are_read_alike() -> None:
    body = b'{"prompt":"some text"}'
    stretch = Stretch([body[:14], body[14:]], 10, len(body) - 1)
    assert bytes_of(stretch) == bytes_of(raw(b'"some text"')) == b'"some text"'
    assert opening_of(stretch) == opening_of(raw(b'"some text"')) == ord('"')


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
        assert session_of(fields_of(msgspec.json.decode(data, type=Members))) == session


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
    fields = made(max_completion_tokens=completion, max_tokens=most, max_output_tokens=output)
    assert output_tokens_of(fields, Route(kind, True, JSON, True)) == tokens
    assert output_tokens_of(fields, Route(kind, True, JSON, True, limits_output=False)) is None
