"""Builds the table that compares the log with the simulation."""

from __future__ import annotations

from router.core.text.table import Column, Table, build
from router.lab.replay.truth.judged import Row
from router.lab.replay.truth.trust import Trust


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
