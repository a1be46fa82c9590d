"""Runs in separate processes: results are in order, and every process ends."""

import multiprocessing
import os
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, TextIO

import pytest

from router.lab.replay.report.run import Run
from router.lab.replay.workers import Broken, Refused, run_all
from router.lab.simulator.traffic import TraceError
from tests.lab.replay.report import made


@dataclass(frozen=True)
class Work:
    """Replaces a job: prints a word and then ends as configured."""

    policy: str
    ends: str = "well"

    @property
    def scenario(self) -> Any:
        return SimpleNamespace(replicas=1)

    def run(self, line: TextIO | None = None) -> Run:
        if line is not None:
            line.write(f"\r{self.policy}\r")
        if self.ends == "dies":
            os._exit(7)
        if self.ends == "refuses":
            raise TraceError("trace.jsonl", 3, "no number")
        if self.ends == "breaks":
            raise ZeroDivisionError("in a policy")
        if self.ends == "no file":
            raise FileNotFoundError(2, "No such file or directory", "trace.jsonl")
        return made.run(self.policy, [made.outcome()])


def policies(jobs: list[Work], at_once: int) -> list[str]:
    return [run.policy for run in run_all(jobs, at_once)]


@pytest.mark.parametrize("at_once", [1, 2])
def test_results_are_in_the_order_of_the_jobs(at_once: int) -> None:
    assert policies([Work("a"), Work("b"), Work("c")], at_once) == ["a", "b", "c"]
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize(
    ("at_once", "ends", "error", "problem"),
    [
        (1, "refuses", Refused, r"trace\.jsonl:3: no number"),
        (2, "refuses", Refused, r"trace\.jsonl:3: no number"),
        (1, "no file", Refused, r"trace\.jsonl: No such file or directory"),
        (1, "breaks", Broken, r"(?s)b on 1 replicas:.*ZeroDivisionError: in a policy"),
    ],
)
def test_the_first_that_fails_ends_them_all(
    at_once: int, ends: str, error: type[Exception], problem: str
) -> None:
    with pytest.raises(error, match=problem):
        policies([Work("a"), Work("b", ends), Work("c")], at_once)
    assert multiprocessing.active_children() == []


def test_a_process_that_dies_is_noticed() -> None:
    with pytest.raises(Broken, match=r"b on 1 replicas: its process crashed \(status 7"):
        policies([Work("a"), Work("b", "dies")], 2)
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("at_once", [1, 2])
def test_finished_runs_are_counted(at_once: int) -> None:
    seen: list[tuple[int, int]] = []
    run_all([Work("a"), Work("b")], at_once, finished=lambda done, of: seen.append((done, of)))
    assert seen == [(0, 2), (1, 2), (2, 2)]


@pytest.mark.parametrize("at_once", [1, 2])
def test_output_is_shown_and_an_interrupt_leaves_no_process(at_once: int) -> None:
    shown: list[tuple[int, str]] = []

    def show(done: int, text: str) -> None:
        shown.append((done, text))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_all([Work("a"), Work("b")], at_once, show)
    (told,) = shown
    assert told == (0, "a") if at_once == 1 else told[1] in "ab"
    assert multiprocessing.active_children() == []
