"""Reads the query of GET /usage: the days, and the format.

`from` and `to` are dates in `usage.time_zone`, such as 2026-11-30, and both days are included.
`format` is json or csv.

Must never: read a clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Final, NamedTuple

from router.core.periods import parse_date
from router.observe.admin.actions import Refused

FIRST: Final = -1_000_000  # days since 1970: before every day that a clock can show
LAST: Final = 3_000_000
_NAMES: Final = ("from", "to", "format")
_FORMATS: Final = ("json", "csv")


class UsageQuery(NamedTuple):
    """The days from `first` to `last` (days since 1970), and whether the answer is CSV."""

    first: int = FIRST
    last: int = LAST
    is_csv: bool = False


def read_query(pairs: Iterable[tuple[str, str]]) -> UsageQuery:
    """Return the query with these names and values. Raises Refused."""
    found: dict[str, str] = {}
    for name, value in pairs:
        if name not in _NAMES:
            raise _refused(f"{name!r} is unknown; known are {', '.join(_NAMES)}")
        if name in found:
            raise _refused(f"{name!r} is stated twice")
        found[name] = value
    style = found.get("format", "json")
    if style not in _FORMATS:
        raise _refused(f"format must be one of {', '.join(_FORMATS)}, not {style!r}")
    first, last = FIRST, LAST
    try:
        if "from" in found:
            first = parse_date(found["from"])
        if "to" in found:
            last = parse_date(found["to"])
    except ValueError as err:
        raise _refused(str(err)) from None
    if first > last:
        raise _refused("from is after to")
    return UsageQuery(first, last, style == "csv")


def _refused(why: str) -> Refused:
    return Refused(HTTPStatus.BAD_REQUEST, "bad_query", why)
