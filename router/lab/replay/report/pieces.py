"""Builds the elements of a report's HTML page. The page needs no scripts, fonts or image files.

It supports small screens, dark mode and printing. Without matplotlib it has no plots. Every text is
escaped. Must never: load or link anything from another host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any

from router.core.text.table import Cell, Column, Table
from router.lab.replay.report import svg
from router.lab.replay.report.css import CSS
from router.lab.replay.report.plots import Plot

_NEEDED = "pip install '.[lab]'"


def document(title: str, lead: str, parts: Iterable[str]) -> str:
    """Return the complete file. `lead`: a line below the title, or empty; `parts`: HTML."""
    below = f"<p>{escape(lead)}</p>" if lead else ""
    return "".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            '<meta name="color-scheme" content="light dark">\n',
            f"<title>{escape(title)}</title>\n<style>\n{CSS}</style>\n</head>\n<body>\n",
            f"<header><h1>{escape(title)}</h1>{below}</header>\n<main>\n",
            *parts,
            "</main>\n</body>\n</html>\n",
        ]
    )


def drawn(plots: Callable[[], Iterable[Plot]]) -> str:
    """Return the plots, or without matplotlib a text that says what to install."""
    if not svg.can_draw():
        return f"<p>Plots need matplotlib: <code>{escape(_NEEDED)}</code></p>\n"
    figures = "".join(map(_figure, plots()))
    return f'<div class="plots">\n{figures}</div>\n'


def section(title: str, *parts: str) -> str:
    return f"<section>\n<h2>{escape(title)}</h2>\n{''.join(parts)}\n</section>\n"


def _figure(plot: Plot) -> str:
    return (
        f"<figure>\n<h2>{escape(plot.title)}</h2>\n{plot.svg}\n"
        f"<figcaption>{escape(plot.caption)}</figcaption>\n</figure>\n"
    )


def table(shown: Table) -> str:
    heads = "".join(
        f'<th scope="col"{_align(column)}>{escape(column.title)}'
        + (f"<span>{escape(column.unit)}</span>" if column.unit else "")
        + "</th>"
        for column in shown.columns
    )
    rows = "".join(
        ('<tr class="first">' if place in shown.breaks else "<tr>")
        + "".join(_cell(cell, column) for cell, column in zip(row, shown.columns, strict=True))
        + "</tr>\n"
        for place, row in enumerate(shown.rows)
    )
    # A wide table scrolls in its own box, not with the page. `tabindex` makes the box reachable by
    # keyboard.
    return (
        f'<div class="scroll" tabindex="0"><table>\n<thead><tr>{heads}</tr></thead>\n'
        f"<tbody>\n{rows}</tbody>\n</table></div>\n"
    )


def _cell(cell: Cell, column: Column[Any]) -> str:
    text = escape(cell.text)
    if not column.is_number:
        return f"<td>{text}</td>"
    if cell.is_best:
        text = f"<b>{text}</b>"
    if cell.delta:
        text += f"<small>{escape(cell.delta)}</small>"
    return f"<td{_align(column)}>{text}</td>"


def _align(column: Column[Any]) -> str:
    return ' class="n"' if column.is_number else ""


def listed(lines: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(line)}</li>\n" for line in lines)
    return f'<ul class="findings">\n{items}</ul>\n' if items else ""


def facts(known: Sequence[tuple[str, str]]) -> str:
    rows = "".join(f"<dt>{escape(what)}</dt><dd>{escape(how)}</dd>\n" for what, how in known)
    return f"<dl>\n{rows}</dl>\n"
