"""How urgent a client says its request is."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.intake.priority import CLASSES, class_of


def of_body(value: object) -> str:
    return class_of(msgspec.Raw(json.dumps(value).encode()), None)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("critical", "critical"),
        ("High", "high"),
        (0, "critical"),
        (4, "batch"),
        (-7, "critical"),
        (99, "batch"),
        (1.4, "high"),
        (1.5, "normal"),
        (2.0, "normal"),
        (1e300, "batch"),
        ("urgent", ""),
        ("", ""),
        (None, ""),
        (True, ""),
        ([1], ""),
        ("x" * 100, ""),
        ("normal\u00e9", ""),
    ],
)
def test_the_body(value: object, expected: str) -> None:
    assert of_body(value) == expected


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (b"high", "high"),
        (b"  Low ", "low"),
        (b'"batch"', "batch"),
        (b"3", "low"),
        (b"0.2", "critical"),
        (b"nan", ""),
        (b"", ""),
        (b"\xff", ""),
        (b"1" * 100, ""),
    ],
)
def test_the_header(header: bytes, expected: str) -> None:
    assert class_of(None, header) == expected


def test_the_body_comes_first() -> None:
    assert class_of(msgspec.Raw(b'"low"'), b"high") == "low"


@given(st.binary(max_size=40))
def test_any_bytes(header: bytes) -> None:
    assert class_of(None, header) in {"", *CLASSES}
    assert class_of(msgspec.Raw(header or b"null"), None) in {"", *CLASSES}
