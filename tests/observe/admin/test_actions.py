"""The query of GET /usage: every valid one, and the words for an invalid one."""

import pytest

from router.observe.admin.actions import FIRST, LAST, Refused, UsageQuery, read_query


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ({}, UsageQuery(FIRST, LAST, False)),
        ({"format": "csv"}, UsageQuery(FIRST, LAST, True)),
        ({"from": "1970-01-02"}, UsageQuery(1, LAST, False)),
        ({"to": "1970-01-02"}, UsageQuery(FIRST, 1, False)),
        (
            {"from": "1970-01-02", "to": "1970-01-02", "format": "json"},
            UsageQuery(1, 1, False),
        ),
    ],
)
def test_valid_queries(pairs: dict[str, str], expected: UsageQuery) -> None:
    assert read_query(pairs.items()) == expected


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ([("day", "3")], "'day' is unknown; known are from, to, format"),
        ([("format", "xml")], "format must be one of json, csv, not 'xml'"),
        ([("from", "yesterday")], "'yesterday' is not a date such as 2026-11-30"),
        ([("to", "2026-02-30")], "'2026-02-30' is not a date such as 2026-11-30"),
        ([("from", "2026-02-02"), ("to", "2026-02-01")], "from is after to"),
        ([("to", "2026-02-02"), ("to", "2026-02-01")], "'to' is stated twice"),
    ],
)
def test_invalid_queries(pairs: list[tuple[str, str]], words: str) -> None:
    with pytest.raises(Refused) as caught:
        read_query(pairs)
    assert (caught.value.status, caught.value.message) == (400, words)
