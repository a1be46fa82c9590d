"""The commands of the kept tables."""

import pytest

from bench.tables.parts import PARTS, TRACES, Part, commit_of, page
from router import cli


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_the_command_line_is_accepted(part: Part) -> None:
    paths = {name: f"/traces/{file}" for name, file in TRACES.items()}
    words = ["bench", *part.command(paths), "--markdown"]
    args = cli._parser(words).parse_args(words)
    assert args.markdown


def test_a_trace_is_named_where_a_command_needs_it() -> None:
    part = Part("one", ("gain", "--azure", "{azure}"))
    assert part.traces == ("azure",)
    assert part.command({"azure": "/a.csv"}) == ["gain", "--azure", "/a.csv"]


def test_a_table_names_its_commit() -> None:
    text = page("gain", "hedgerow bench gain", "0123456789", "2026-01-02", "2 CPUs", "| a |\n")
    assert commit_of(text) == "0123456789"
    assert "hedgerow bench gain" in text
    assert text.endswith("| a |\n")
