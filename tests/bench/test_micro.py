"""A microbenchmark with a missed goal also returns exit status 1."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench import micro


@pytest.mark.parametrize(("reached", "status"), [(1.0, 0), (2.0, 0), (2.1, 1)])
def test_the_exit_status_says_whether_the_goals_are_met(
    reached: float, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    goals = [{"goal": "a", "most": 3.0, "reached": 1.0}, {"goal": "b", "most": 2.0}]
    goals[1]["reached"] = reached
    results: dict[str, Any] = {"goals": goals}
    file = tmp_path / "out.json"
    assert micro.tell(results, lambda _: "the table", str(file)) == status
    assert json.loads(file.read_text()) == results
    assert capsys.readouterr().out == "the table\n"
