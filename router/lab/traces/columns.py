"""Reads CSV files with a header: finds columns by name and reads cells as numbers.

The columns may have any order, and the file may have further columns. Must never: accept a row with
more or fewer cells than the header, because such a file is truncated or was joined wrongly.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator

from router.lab.simulator.traffic import TraceError
from router.lab.traces.format import TOKENS_MAX, bad_length
from router.lab.traces.lines import Lines, excerpt


def names_of(header: bytes) -> list[str]:
    """Return the stripped column names of a header line; empty if the line is not CSV."""
    try:
        return [name.strip() for name in _split(header.decode("utf-8", "replace").rstrip("\r\n"))]
    except csv.Error:
        return []


class Table:
    """Iterates over the rows of a file as lists of cells. The constructor reads the header. Raises
    TraceError.
    """

    def __init__(self, lines: Lines, needed: tuple[str, ...]) -> None:
        self._lines = lines
        self._rows = iter(lines)
        header = next(self._rows, None)
        if header is None:
            raise lines.error("empty file")
        self.names = names_of(header)
        missing = [name for name in needed if name not in self.names]
        if missing:
            found = excerpt(", ".join(self.names))
            raise lines.error(f"missing column: {', '.join(missing)} (the header has {found})")

    def __iter__(self) -> Iterator[list[str]]:
        lines = self._lines
        width = len(self.names)
        is_empty = True
        for line in self._rows:
            is_empty = False
            try:
                cells = _split(line.decode().rstrip("\r\n"))
            except UnicodeDecodeError:
                raise lines.error("not UTF-8") from None
            except csv.Error as err:
                raise lines.error(f"not CSV: {err}") from None
            if len(cells) != width:
                raise self._ragged(len(cells))
            yield cells
        if is_empty:
            raise lines.error("the file has a header but no rows")

    def _ragged(self, found: int) -> TraceError:
        cut = "; the file is truncated here" if self._lines.is_cut else ""
        return self._lines.error(f"{found} cells, but the header has {len(self.names)}{cut}")


def tokens(lines: Lines, name: str, cell: str, least: int) -> int:
    """Parse a cell as a number of tokens, at least `least`. Raises TraceError."""
    try:
        value = int(cell)
    except ValueError:
        raise lines.error(f"{name} is not a whole number: {excerpt(cell)}") from None
    if not least <= value <= TOKENS_MAX:
        raise bad_length(lines, name, value, least)
    return value


def _split(text: str) -> list[str]:
    if '"' in text:
        return next(csv.reader([text]), [])
    return text.split(",")
