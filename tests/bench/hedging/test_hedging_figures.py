"""The figures of a run, and their store."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench.hedging.simulated import figures, nodes
from bench.hedging.simulated.cases import CASES, Length, task
from bench.hedging.simulated.figures import Figures, Store
from bench.hedging.simulated.task import Task
from router.config.model import Hedging

BRIEF = Length(measured_s=10.0, seeds=1, nodes=1, warm_s=2.0)
AT = {case.name: case for case in CASES}


def made(name: str = "calm", seed: int = 1) -> Task:
    return task(AT[name], "with", Hedging(), 8.0, seed, BRIEF, False)


def test_the_engines_tokens_are_those_of_the_routers_requests() -> None:
    """Without copies each prompt token is either computed or cached."""
    one = replace(made(), policy="off", measure_from=0.0)
    one = replace(one, scenario=nodes.fleet(Hedging(policy="off"), 1))
    result = one.run()
    asked = sum(seen.prefill_tokens for seen in result.classes.values())
    assert Figures.of(one, result).prefilled_tokens == asked > 0


def test_the_tokens_of_neighbours_are_not_counted() -> None:
    busy = replace(made("neighbour"), measure_from=0.0)
    neighbours = (
        AT["neighbour"].scenario(Hedging(), 1, replace(BRIEF, measured_s=2000.0)).neighbours
    )
    first = replace(neighbours[0], at=1.0)
    busy = replace(busy, scenario=replace(busy.scenario, neighbours=(first,)))
    computed = Figures.of(busy, busy.run()).prefilled_tokens
    usual = Figures.of(made(), made().run()).prefilled_tokens
    assert computed == pytest.approx(usual, rel=0.3)


def test_finished_runs_are_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "runs"
    first = Store(path).run([made(), made(seed=2)], 1)
    assert len(path.read_text().splitlines()) == 2
    ran: list[Task] = []
    monkeypatch.setattr(figures, "play", lambda tasks, _: ran.extend(tasks) or [])
    assert Store(path).run([made(), made(seed=2)], 1) == first
    assert not ran
    with pytest.raises(ValueError, match="zip"):
        Store(path).run([made(seed=3)], 1)  # `play` returns nothing
    assert [one.scenario.seed for one in ran] == [3]


def test_figures_of_other_code_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "runs"
    first = Store(path).run([made()], 1)
    monkeypatch.setattr(figures, "digest", lambda *folders: "changed")
    assert Store(path).run([made()], 1) == first
    assert len(path.read_text().splitlines()) == 2


def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "runs"
    path.write_text("hello\n")
    with pytest.raises(ValueError):
        Store(path)


def test_hedging_with_other_random_numbers_has_the_same_traffic_and_stragglers() -> None:
    first, again = (
        task(AT["steps"], "with", Hedging(), 8.0, 1, replace(BRIEF, measured_s=300.0), other)
        for other in (False, True)
    )
    assert first.scenario.seed != again.scenario.seed
    assert replace(first.scenario, seed=0) == replace(again.scenario, seed=0)
    assert [a.at for a in first.traffic()] == [a.at for a in again.traffic()]


def test_a_run_has_the_same_name_in_every_process() -> None:
    program = (
        "from tests.bench.hedging.test_hedging_figures import figures, made;"
        "print(figures._name(made()))"
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
