"""Builds the page of a replay from its plots and from the tables and sentences of the command.

`of_truth`: builds the table that compares the log with the simulation.
"""

from __future__ import annotations

from collections.abc import Sequence

from router.core.errors import Reason
from router.core.text.table import Column, Table, build, plain
from router.lab.page import page as whole
from router.lab.replay.report import plots
from router.lab.replay.report.columns import of_parts, of_runs, parts_of
from router.lab.replay.report.findings import findings
from router.lab.replay.report.run import Replay, Run
from router.lab.replay.truth.judged import Row, Trust


def of_truth(truth: Trust) -> Table:
    """Return a table with one row per figure. A figure with too large an error is marked with
    "off".
    """
    off = set(truth.off)

    def error(row: Row) -> str:
        return f"{row.error_text}{' off' if row in off else ''}"

    columns: list[Column[Row]] = [
        Column("part", "second half", text=lambda row: row.part),
        Column("figure", "figure", text=lambda row: row.name),
        Column("unit", "unit", text=lambda row: row.unit),
        Column("requests", "requests", value=lambda row: row.requests),
        Column("logged", "logged", value=lambda row: row.logged),
        Column("simulated", "simulated", value=lambda row: row.simulated),
        Column("error", "error", text=error),
    ]
    return build(truth.rows, columns, group=lambda row: row.part)


_NOTE = (
    "In quantiles, a request without a complete answer counts as slower than all others (∞); means "
    "do not include it. Goodput: only requests within the SLO. Hits: prompt tokens found in an "
    "engine's cache. Hotspot: the largest share of requests at one replica, times the number of "
    "replicas."
)


def page(replay: Replay) -> str:
    """Return the complete file. The page has plots only if matplotlib is installed."""
    runs = replay.runs
    truth = replay.truth
    figures = plain(build(runs, of_runs(runs), group=lambda run: run.setup))
    here = replay.at(replay.focus())
    return whole(
        replay.title,
        lambda: plots.draw(replay),
        [
            ("Findings", findings(replay)),
            ("Log and simulation", plain(of_truth(truth)) if truth and truth.is_judged else ""),
            ("Log and simulation in words", truth.lines() if truth else ()),
            ("Results", figures),
            ("How to read the results", [_NOTE]),
            (f"By class: {replay.focus()}", _split(here, "class", "by_class")),
            (f"By tenant: {replay.focus()}", _split(here, "tenant", "by_tenant")),
            ("Failures", _failures(runs)),
            ("What was simulated", [f"{what}: {how}" for what, how in replay.facts]),
            ("Calibration of the engine model", "\n".join(replay.calibration)),
            ("Simulated", [replay.when] if replay.when else ()),
        ],
    )


def _split(runs: list[Run], what: str, of: str) -> str:
    parts = parts_of(runs, of)
    return plain(build(parts, of_parts(what, parts), group=lambda part: part.name)) if parts else ""


def _failures(runs: Sequence[Run]) -> str:
    failing = [run for run in runs if run.summary.reasons or run.summary.repeated]
    shown: list[Column[Run]] = [
        Column("policy", "policy", text=lambda run: run.policy),
        Column("place", "fleet", text=lambda run: str(run.setup)),
        Column("repeated", "retried", value=lambda run: run.summary.repeated),
        *map(_failed_by, sorted({reason for run in failing for reason in run.summary.reasons})),
    ]
    return plain(build(failing, shown)) if failing else ""


def _failed_by(reason: Reason) -> Column[Run]:
    return Column(reason, str(reason), value=lambda run: run.summary.reasons.get(reason, 0))
