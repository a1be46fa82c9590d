"""A replay as one HTML page that needs nothing else: no script, no font, no picture from elsewhere.

Readable on a telephone, in the dark, printed, and without matplotlib (then without plots). Every
text that comes from a trace or a flag is escaped. Must never: name another host.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from router.core.errors import Reason
from router.simulator.report import columns, plots, svg
from router.simulator.report.findings import findings
from router.simulator.report.page import CSS
from router.simulator.report.run import Replay, Run
from router.simulator.report.table import Cell, Column, Table, build

_NEEDED = "pip install 'hedgerow[replay]'"


def page(replay: Replay) -> str:
    """The whole file. Draws the plots if matplotlib is installed."""
    return "".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            '<meta name="color-scheme" content="light dark">\n',
            f"<title>{escape(replay.title)}</title>\n<style>\n{CSS}</style>\n</head>\n<body>\n",
            f"<header><h1>{escape(replay.title)}</h1>{_when(replay)}</header>\n<main>\n",
            *_sections(replay),
            "</main>\n</body>\n</html>\n",
        ]
    )


def _when(replay: Replay) -> str:
    return f"<p>Simulated {escape(replay.when)}</p>" if replay.when else ""


def _sections(replay: Replay) -> Iterator[str]:
    yield _list(findings(replay))
    table = build(
        replay.runs, columns.of_runs(replay.runs), group=lambda run: run.place, deltas=True
    )
    yield _section("Figures", _table(table), _figures_note(replay))
    focus = replay.focus()
    if svg.can_draw():
        drawn = "".join(_figure(plot) for plot in plots.draw(replay, focus))
        yield f'<div class="plots">\n{drawn}</div>\n'
    else:
        yield f"<p>Plots need matplotlib: <code>{escape(_NEEDED)}</code></p>\n"
    here = replay.at(focus)
    for what, parts in (
        ("class", columns.parts_of(here, "by_class")),
        ("tenant", columns.parts_of(here, "by_tenant")),
    ):
        if parts:
            table = build(parts, columns.of_parts(what, parts), group=lambda part: part.name)
            yield _section(f"By {what}", _table(table), f"<p>{escape(str(focus))}.</p>")
    yield _failures(replay)
    yield _knowledge(here, str(focus))
    yield _section("What was simulated", _facts(replay.facts))
    if replay.calibration:
        lines = "\n".join(replay.calibration)
        yield _section("How well the engine model fits", f"<pre>{escape(lines)}</pre>")


def _figures_note(replay: Replay) -> str:
    slo = replay.runs[0].summary.slo
    return (
        "<p>In bold the best of each fleet; small, the change against its first row. A request "
        "without a whole answer counts as slower than all others (∞), means are of the others. "
        f"SLO: first token within {slo.ttft_s:g} s, then {slo.tpot_s * 1e3:g} ms a token. "
        "Goodput counts what is within it. Hits: prompt tokens found in an engine's cache. "
        "Hotspot: replicas times the largest share of the requests.</p>"
    )


def _failures(replay: Replay) -> str:
    failing = [run for run in replay.runs if run.summary.reasons or run.summary.repeated]
    if not failing:
        return ""
    reasons = sorted({reason for run in failing for reason in run.summary.reasons})
    shown: list[Column[Run]] = [
        Column("policy", "policy", text=lambda run: run.policy),
        Column("place", "fleet", text=lambda run: str(run.place)),
        Column("repeated", "tried again", value=lambda run: run.summary.repeated),
    ]
    shown += [_failed_by(reason) for reason in reasons]
    return _section("What went wrong", _table(build(failing, shown)))


def _failed_by(reason: Reason) -> Column[Run]:
    return Column(reason, str(reason), value=lambda run: run.summary.reasons.get(reason, 0))


def _knowledge(runs: Sequence[Run], fleet: str) -> str:
    if not any(run.summary.knowledge.expected for run in runs):
        return ""

    def share(tokens: int, run: Run) -> float | None:
        prompts = run.summary.all.prompt_tokens
        return 100.0 * tokens / prompts if prompts else None

    shown: list[Column[Run]] = [
        Column("policy", "policy", text=lambda run: run.policy),
        Column("expected", "expected", "%", lambda run: share(run.summary.knowledge.expected, run)),
        Column("found", "found", "%", lambda run: share(run.summary.all.cached_tokens, run)),
        Column("too_high", "wrongly", "%", lambda run: share(run.summary.knowledge.too_high, run)),
        Column("too_low", "missed", "%", lambda run: share(run.summary.knowledge.too_low, run)),
    ]
    note = (
        f"<p>{escape(fleet)}. Cached tokens as a share of all prompt tokens: what the router "
        "expected where it sent a request, what the engine found, what was expected wrongly, and "
        "what was there unexpected.</p>"
    )
    return _section("What routers knew of the caches", _table(build(runs, shown)), note)


def _section(title: str, *parts: str) -> str:
    return f"<section>\n<h2>{escape(title)}</h2>\n{''.join(parts)}\n</section>\n"


def _figure(plot: plots.Plot) -> str:
    return (
        f"<figure>\n<h2>{escape(plot.title)}</h2>\n{plot.svg}\n"
        f"<figcaption>{escape(plot.caption)}</figcaption>\n</figure>\n"
    )


def _table(table: Table) -> str:
    heads = "".join(
        f'<th scope="col"{_align(column)}>{escape(column.title)}'
        + (f"<span>{escape(column.unit)}</span>" if column.unit else "")
        + "</th>"
        for column in table.columns
    )
    rows = "".join(
        ('<tr class="first">' if place in table.breaks else "<tr>")
        + "".join(_cell(cell, column) for cell, column in zip(row, table.columns, strict=True))
        + "</tr>\n"
        for place, row in enumerate(table.rows)
    )
    # The table scrolls in its own box, so that the page does not; the keyboard must reach it.
    return (
        f'<div class="scroll" tabindex="0"><table>\n<thead><tr>{heads}</tr></thead>\n'
        f"<tbody>\n{rows}</tbody>\n</table></div>\n"
    )


def _cell(cell: Cell, column: Column[Run]) -> str:
    text = escape(cell.text)
    if not column.is_number:
        return f"<td>{text}</td>"
    if cell.is_best:
        text = f"<b>{text}</b>"
    if cell.delta:
        text += f"<small>{escape(cell.delta)}</small>"
    return f"<td{_align(column)}>{text}</td>"


def _align(column: Column[Run]) -> str:
    return ' class="n"' if column.is_number else ""


def _list(lines: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(line)}</li>\n" for line in lines)
    return f'<ul class="findings">\n{items}</ul>\n' if items else ""


def _facts(facts: Sequence[tuple[str, str]]) -> str:
    rows = "".join(f"<dt>{escape(what)}</dt><dd>{escape(how)}</dd>\n" for what, how in facts)
    return f"<dl>\n{rows}</dl>\n"
