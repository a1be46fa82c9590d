"""`hedgerow bench promise`: what is counted, the goals, and one quick run."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench.promise import cases, cli, coverage
from bench.promise.coverage import Coverage, Recorded
from router.lab.simulator.outcome import Outcome
from router.lab.simulator.traffic import Arrival
from tests.commands import command_of

GOOD = Coverage("50 %", "high", 1000, 1000, 50, 50, 0.2, 1.0, 0.1)


run = command_of(cli)


def outcome(at: float, ttft_s: float, low_s: float, high_s: float, of: str = "high") -> Outcome:
    one = Outcome(Arrival(0, at, 100, 9, priority=of), "", 0, at)
    one.first = at + ttft_s if ttft_s >= 0.0 else -1.0
    one.estimate_s = 0.5 * (low_s + high_s)
    one.estimate_low_s, one.estimate_high_s = low_s, high_s
    return one


def test_streams_after_the_warm_up_are_counted_by_class() -> None:
    recorded = Recorded("x", 10.0, 20.0)
    for one in (
        outcome(9.0, 1.0, 2.0, 3.0),  # in the warm-up
        outcome(21.0, 1.0, 2.0, 3.0),  # after the judged part
        outcome(10.0, -1.0, 2.0, 3.0),  # no first token
        outcome(10.0, 1.0, -1.0, -1.0),  # no estimate
        outcome(11.0, 1.0, 2.0, 3.0),
        outcome(12.0, 2.5, 2.0, 3.5),
        outcome(13.0, 9.0, 2.0, 6.0),
        outcome(13.0, 9.0, 2.0, 6.0, of="batch"),
    ):
        recorded.ended(one)
    high = recorded.classes()[1]
    assert (high.name, high.streams, high.estimated) == ("high", 4, 3)
    assert (high.below, high.above) == (1, 1)
    assert high.covered == pytest.approx(1 / 3)
    assert high.width_s == pytest.approx(1.5)
    assert high.range_s == pytest.approx(8.0)
    assert high.relative_width == pytest.approx(1.5 / 8.0)
    empty = recorded.classes()[0]
    assert (empty.streams, empty.covered, empty.relative_width) == (0, None, None)


def test_goals_are_judged_by_the_worst_class() -> None:
    covered, width = coverage.judge([GOOD, replace(GOOD, name="low")])
    assert covered.met and width.met
    wide = replace(GOOD, name="low", width_s=0.6)
    narrow = replace(GOOD, name="batch", estimated=999, above=250)
    covered, width = coverage.judge([GOOD, wide, narrow])
    assert not covered.met and not width.met
    assert covered.here == "70.0%"
    assert covered.note == "worst: batch; fewer than 1000 estimates: batch"
    assert width.note.startswith("worst: low;")


def test_a_quick_run_end_to_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, runs = tmp_path / "found.json", tmp_path / "runs.jsonl"
    words = ("--quick", "--jobs", "1", "--case", "90 %", "--json", str(file), "--runs", str(runs))
    assert run(*words) == 0
    (found,) = json.loads(file.read_text())
    (of_seed,) = found["runs"]
    assert of_seed["seed"] == 1
    assert [row["name"] for row in of_seed["classes"]] == list(cases.CLASSES)
    assert sum(row["estimated"] for row in of_seed["classes"]) > 0
    printed = capsys.readouterr().out
    assert "90 %: coverage" in printed
    # The finished run is read from the file.
    monkeypatch.delattr(cases, "simulate")
    assert run(*words) == 0
    assert capsys.readouterr().out == printed


def test_every_seed_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []

    def measure(world: object, seed: int) -> cases.Run:
        seeds.append(seed)
        return cases.Run("90 %", seed, [replace(GOOD, scenario="90 %")])

    monkeypatch.setattr(cases, "measure", measure)
    assert run("--jobs", "1", "--case", "90 %", "--seed", "3") == 0
    assert seeds == [3, 4, 5, 6, 7]
