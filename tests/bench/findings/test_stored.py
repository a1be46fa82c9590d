"""The store of finished runs: what is used again, what is not, and damaged files."""

import subprocess
import sys
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import TextIO

import pytest

from bench.findings import stored
from bench.findings.stored import Store
from bench.priority.simulated.goals import SATURATED, SHIPPED, Length, Task as PriorityTask
from router.lab.simulator.scenario import Scenario

SCENARIO = PriorityTask(SATURATED, SHIPPED, 1, Length()).scenario


@dataclass
class Part:
    name: str


@dataclass
class Figures:
    seed: int
    ttfts: list[float] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)


def figures(seed: int) -> Figures:
    return Figures(seed, [0.5, inf], [Part("a")])


@dataclass(frozen=True)
class Counted:
    """A task that counts its runs in a list that is no part of its name."""

    seed: int
    ran: list[int] = field(repr=False)
    policy: str = "none"
    fails: bool = False

    @property
    def scenario(self) -> Scenario:
        return SCENARIO

    def run(self, line: TextIO | None = None) -> Figures:
        if self.fails:
            raise ValueError("broken")
        self.ran.append(self.seed)
        return figures(self.seed)


def run(path: Path | None, *seeds: int) -> list[int]:
    """Ask for the runs of these seeds; returns those that were run."""
    ran: list[int] = []
    found = Store(path, Figures).run([Counted(seed, ran) for seed in seeds], 1)
    assert found == [figures(seed) for seed in seeds]
    return ran


def test_finished_runs_are_not_run_again(tmp_path: Path) -> None:
    path = tmp_path / "build" / "runs.jsonl"
    assert run(path, 1, 2) == [1, 2]
    assert run(path, 3, 2, 1) == [3]
    assert run(path, 3, 1) == []
    assert run(None, 1) == [1]


def test_results_of_other_code_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "runs"
    run(path, 1)
    monkeypatch.setattr(stored, "digest", lambda *folders: "changed")
    assert run(path, 1) == [1]


@pytest.mark.parametrize("part", ["{", '{"run": "0123', '{"run": "01", "figures": {"seed'])
def test_a_part_of_a_line_is_left_out(part: str, tmp_path: Path) -> None:
    path = tmp_path / "runs"
    run(path, 1)
    with path.open("a") as file:
        file.write(part)
    assert run(path, 1, 2) == [2]
    assert run(path, 1, 2) == []


@pytest.mark.parametrize("text", ["hello\n", "{}\n", "[1]\n", '{"figures": {"seed": 1}}\n'])
def test_a_file_that_is_no_store_is_refused_and_not_changed(text: str, tmp_path: Path) -> None:
    path = tmp_path / "runs"
    path.write_text(text)
    with pytest.raises(ValueError, match="no store"):
        Store(path, Figures)
    assert path.read_text() == text


def test_a_changed_source_changes_the_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "router").mkdir()
    file = tmp_path / "router" / "a.py"
    monkeypatch.setattr(stored, "_ROOT", tmp_path)
    found = []
    for text in ("a = 1", "a = 2", "a = 1"):
        file.write_text(text)
        found.append(stored.digest.__wrapped__("router"))  # without its cache
    assert found[0] != found[1] and found[0] == found[2]


def test_a_task_has_the_same_name_in_every_process() -> None:
    program = (
        "from bench.findings.stored import name;"
        "from tests.bench.hedging.test_hedging_simulated import made;"
        "from bench.priority.simulated.goals import BACKLOG, SHIPPED, Length, Task;"
        "print(name(made()), name(Task(BACKLOG, SHIPPED, 1, Length())))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONPATH": str(Path(__file__).parents[3]), "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1
