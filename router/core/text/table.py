"""A table of texts, and functions to print a table as plain text or as Markdown.

`build` creates a table with one row per item and one column per value. The best value in each group
of comparable rows is marked, unless all values have the same text. Must never: depend on the
meaning of the values.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any, Generic, Literal, NamedTuple, TypeVar

T = TypeVar("T")
Better = Literal["low", "high", ""]  # whether the lowest or the highest value is best; "": neither


class Cell(NamedTuple):
    text: str
    is_best: bool = False


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """A column of numbers, or of names if `text` is given."""

    key: str  # the name of the column for `--sort`
    title: str
    unit: str = ""
    value: Callable[[T], float | None] = lambda _: None
    better: Better = ""
    text: Callable[[T], str] | None = None

    @property
    def is_number(self) -> bool:
        return self.text is None


@dataclass(frozen=True, slots=True)
class Table:
    """A table: its columns, and rows with one cell per column."""

    columns: Sequence[Column[Any]]
    rows: Sequence[Sequence[Cell]]
    breaks: frozenset[int] = frozenset()  # numbers of the rows that begin a new group


def build(
    things: Sequence[T],
    columns: Sequence[Column[T]],
    *,
    group: Callable[[T], Hashable] = lambda _: None,
    sort: str | None = None,
) -> Table:
    """Build a table with one row per item, in the given order.

    `group`: the group of an item. `sort`: the key of a column to sort by, best first. Raises
    KeyError if there is no such column.
    """
    groups: dict[Hashable, list[T]] = {}
    for thing in things:
        groups.setdefault(group(thing), []).append(thing)
    best = {(g, c.key): _best(members, c) for g, members in groups.items() for c in columns}
    rows = []
    ordered = _sorted(things, columns, sort)
    for thing in ordered:
        row = []
        for column in columns:
            if column.text is not None:
                row.append(Cell(column.text(thing)))
                continue
            value = column.value(thing)
            text = number(value)
            row.append(Cell(text, text == best[group(thing), column.key]))
        rows.append(row)
    return Table(columns, rows, _breaks([group(thing) for thing in ordered]))


def number(value: float | None) -> str:
    """Format a number with up to three significant digits: 0.12, 1.23, 12.3, 123.

    Integers and numbers above 100 are written in full (12,345), None is "–".
    """
    if value is None:
        return "–"
    if not isfinite(value):
        return "∞" if value > 0 else "–"
    size = abs(value)
    if isinstance(value, int) or not value:
        return f"{int(value):,}"
    digits = 0 if size >= 99.95 else 1 if size >= 9.995 else 2 if size >= 0.0995 else 3
    return f"{value:,.{digits}f}"


def plain(table: Table) -> str:
    """Format the table for a terminal: aligned columns, units below the titles, `*` after the best
    values.
    """
    heads = [[column.title for column in table.columns], [column.unit for column in table.columns]]
    # Every number is followed by a star or a space, so that numbers stay aligned.
    body = [
        [
            cell.text + ("*" if cell.is_best else " ") if column.is_number else cell.text
            for cell, column in zip(row, table.columns, strict=True)
        ]
        for row in table.rows
    ]
    heads = [
        [
            text + " " if column.is_number else text
            for text, column in zip(head, table.columns, strict=True)
        ]
        for head in heads
    ]
    widths = [max(map(len, texts)) for texts in zip(*heads, *body, strict=True)]

    def line(row: Sequence[str]) -> str:
        padded = [
            text.rjust(width) if column.is_number else text.ljust(width)
            for text, width, column in zip(row, widths, table.columns, strict=True)
        ]
        return " ".join(padded).rstrip() + "\n"

    lines = [*map(line, heads), line(["-" * width for width in widths])]
    for place, row in enumerate(body):
        if place in table.breaks:
            lines.append("\n")
        lines.append(line(row))
    return "".join(lines)


def markdown(table: Table) -> str:
    """Format the table in Markdown: the best values in bold, changes in parentheses."""
    heads = [
        _escaped(f"{column.title} ({column.unit})" if column.unit else column.title)
        for column in table.columns
    ]
    lines = [heads, ["---:" if column.is_number else "---" for column in table.columns]]
    for row in table.rows:
        cells = []
        for cell in row:
            text = f"**{_escaped(cell.text)}**" if cell.is_best else _escaped(cell.text)
            cells.append(text)
        lines.append(cells)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _escaped(text: str) -> str:
    """Escape Markdown's special characters in a text."""
    for mark in "\\`*_|<>[]":
        text = text.replace(mark, "\\" + mark)
    return " ".join(text.split())


def _best(things: Sequence[T], column: Column[T]) -> str | None:
    """Return the text of the best value of a column.

    None: the column has no best value, or all texts are the same.
    """
    if not column.better or not column.is_number:
        return None
    values = [value for thing in things if (value := column.value(thing)) is not None]
    if not values or len({number(column.value(thing)) for thing in things}) < 2:
        return None
    return number(min(values) if column.better == "low" else max(values))


def _breaks(groups: Sequence[Hashable]) -> frozenset[int]:
    """Return the rows at which a new group begins.

    The result is empty if the rows of groups are mixed or each group has a single row.
    """
    found = {n for n in range(1, len(groups)) if groups[n] != groups[n - 1]}
    if len(found) + 1 != len(set(groups)) or len(found) + 1 == len(groups):
        return frozenset()
    return frozenset(found)


def _sorted(things: Sequence[T], columns: Sequence[Column[T]], sort: str | None) -> Sequence[T]:
    if sort is None:
        return things
    column = {column.key: column for column in columns}[sort]
    if column.text is not None:
        return sorted(things, key=column.text)
    sign = -1.0 if column.better == "high" else 1.0

    def rank(thing: T) -> float:
        value = column.value(thing)
        return inf if value is None else sign * value

    return sorted(things, key=rank)
