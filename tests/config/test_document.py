"""YAML text: plain values only, errors with their position, limits against expansion."""

import re
from typing import Any

import pytest
from hypothesis import given, strategies as st

from router.config.document import parse_document
from router.config.problems import Problems


def read(text: str) -> tuple[dict[str, Any], list[str]]:
    problems = Problems()
    return parse_document(text, problems), problems.lines


@pytest.mark.parametrize("text", ["", "\n# nothing\n", "---\n", "~", "null"])
def test_an_empty_document_is_an_empty_mapping(text: str) -> None:
    assert read(text) == ({}, [])


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        ("12", 12),
        ("-3", -3),
        ("0x1F", 31),
        ("007", 7),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("-.inf", float("-inf")),
        ("true", True),
        ("False", False),
        ("null", None),
        ("", None),
        ("no", "no"),
        ("on", "on"),
        ("10:30", "10:30"),
        ("2026-01-01", "2026-01-01"),
        ("1_000", "1_000"),
        ("'12'", "12"),
        ("gpu-1:8000", "gpu-1:8000"),
    ],
)
def test_scalars_follow_the_core_schema(scalar: str, value: object) -> None:
    data, problems = read(f"key: {scalar}")
    assert problems == []
    assert data["key"] == value
    assert type(data["key"]) is type(value)


def test_every_duplicate_key_is_named_with_its_lines() -> None:
    data, problems = read("a:\n  b: 1\n  b: 2\nc: [{d: 1, d: 2}]\na: 3\n")
    assert problems == [
        "a.b: given twice (lines 2 and 3)",
        "c[0].d: given twice (lines 4 and 4)",
        "a: given twice (lines 1 and 5)",
    ]
    assert data == {"a": {"b": 1}, "c": [{"d": 1}]}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("- a\n- b", "must be a mapping"),
        ("just words", "must be a mapping"),
        ("a: [1", "not YAML: line 1"),
        ("a: b: c", "not YAML: line 1, column 5.*check the indentation, or write the value in quo"),
        ("a:\n\t- b", "not YAML: line 2, column 1.*indent with spaces, not with tabs"),
        ("a:\n  - b: 1\n   c: 2", "not YAML: line 3.*the indentation differs from the lines above"),
        ("a: 1\n---\nb: 2", "not YAML"),
        ("a: \x00", "not YAML"),
        ("a: &x [1]\nb: *x", "aliases are not supported"),
        ("a: " + "[" * 40 + "]" * 40, "nested too deeply"),
        ("a: " + "[" * 100_000, "nested too deeply"),
        ("a: " + "9" * 5000, "a: the number is too long"),
        ("a: !!python/object/apply:os.system ['true']", "a: the tag .* is not supported"),
        ("a: !!binary aGk=", "a: the tag .* is not supported"),
        ("a: !!int x", "a: invalid literal"),
        ("? [a]\n: b", "a key must be a plain word"),
    ],
)
def test_what_is_not_plain_is_refused(text: str, problem: str) -> None:
    _, problems = read(text)
    assert len(problems) == 1
    assert re.search(problem, problems[0])


@given(st.text(max_size=200))
def test_no_text_raises_an_exception(text: str) -> None:
    data, _ = read(text)
    assert isinstance(data, dict)


@given(st.text(alphabet="ab:-[]{}&*!?|>'\"% #\n\t,1.~<", max_size=60))
def test_no_syntax_raises_an_exception(text: str) -> None:
    data, _ = read(text)
    assert isinstance(data, dict)
