"""The head of a kept table."""

from __future__ import annotations

from bench.tables.parts import commit_of, page


def test_a_table_names_its_commit() -> None:
    text = page("gain", "hedgerow bench gain", "0123456789", "2026-01-02", "2 CPUs", "| a |\n")
    assert commit_of(text) == "0123456789"
    assert "hedgerow bench gain" in text
    assert text.endswith("| a |\n")
