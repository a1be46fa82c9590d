"""A file of rounds: read back as written, and never mixed with rounds of another run."""

from dataclasses import fields, replace
from pathlib import Path

import pytest

from bench.fleet.kept import Kept, KeptError, Plan
from bench.fleet.run import Row
from tests.bench.fleet.fleet_rows import rounds

PLAN = Plan("abc1234", "compiled", "two CPUs", ("a", "b"), ("chat",), 0.7, 1, "whole")


def test_rounds_are_read_back(tmp_path: Path) -> None:
    file = tmp_path / "rounds.json"
    first, second, third = rounds("hedgerow kv_aware", 0.1, 0.2, 0.3)
    third.problems = ["3 × status 503"]
    kept = Kept(file, PLAN)
    kept.add(2, [third])
    kept.add(0, [first, Row("nginx", "chat", absent="not installed")])
    found = Kept(file, PLAN)
    assert [found.has(number) for number in range(3)] == [True, False, True]
    found.add(1, [second])
    absent = Row("nginx", "chat", absent="not installed")
    assert Kept(file, PLAN).rows == [first, absent, second, third]
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


@pytest.mark.parametrize("name", [field.name for field in fields(Plan)])
def test_a_file_of_another_run_is_refused(tmp_path: Path, name: str) -> None:
    file = tmp_path / "rounds.json"
    Kept(file, PLAN)
    value = getattr(PLAN, name)
    other = (*value, "more") if isinstance(value, tuple) else value * 2
    with pytest.raises(KeptError, match=name):
        Kept(file, replace(PLAN, **{name: other}))


def test_a_file_that_cannot_be_used_is_refused_before_anything_is_played(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not rounds")
    with pytest.raises(KeptError, match="has no rounds"):
        Kept(tmp_path / "text", PLAN)
    with pytest.raises(KeptError, match="cannot be written"):
        Kept(tmp_path / "missing" / "rounds", PLAN)
