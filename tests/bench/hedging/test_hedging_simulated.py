"""The simulated part of `hedgerow bench hedging`: traffic, counted requests, the command line."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

import pytest

from bench.hedging import cli
from bench.hedging.simulated import cases, frontier, harm, world
from bench.hedging.simulated.task import Task, play, pooled


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    return cli.main(parser.parse_args(words))


def test_a_fifth_of_the_prefill_tokens_is_urgent() -> None:
    tokens: dict[str, int] = {}
    for one in islice(world.traffic(100.0, 1000.0, 1), 20_000):
        tokens[one.priority] = tokens.get(one.priority, 0) + one.prompt_tokens
    assert set(tokens) == {"high", "normal"}
    assert tokens["high"] / sum(tokens.values()) == pytest.approx(0.2, abs=0.01)


def test_what_comes_does_not_depend_on_hedging() -> None:
    length = cases.Length.quick()
    without, with_ = (
        cases.task(cases.CASES[0], label, hedging, 8.0, 3, length)
        for label, hedging in ((cases.WITHOUT, cases.OFF), (cases.WITH, cases.ON))
    )
    assert world.hedged(without.scenario, cases.ON) == with_.scenario
    first, second = (
        [(a.number, a.at, a.prompt_tokens, a.priority) for a in islice(task.traffic(), 200)]
        for task in (without, with_)
    )
    assert first == second


def test_only_what_arrives_in_the_measured_time_is_counted() -> None:
    task = Task(
        policy="x",
        scenario=world.fleet(2),
        traffic=partial(world.traffic, 1.0, 60.0, 1),
        measure_from=20.0,
        measure_until=40.0,
    )
    (result,) = play([task])
    arrivals = [a for a in world.traffic(1.0, 60.0, 1) if 20.0 <= a.at < 40.0]
    assert sum(seen.requests for seen in result.classes.values()) == len(arrivals)
    asked = sum(seen.prefill_tokens for seen in result.classes.values())
    assert asked == sum(a.prompt_tokens for a in arrivals)


def test_runs_of_one_label_are_one() -> None:
    def task(label: str, seed: int) -> Task:
        return Task(
            policy=label,
            scenario=replace(world.fleet(2), seed=seed),
            traffic=partial(world.traffic, 1.0, 30.0, seed),
        )

    results = play([task("a", 1), task("a", 2), task("b", 1)])
    alone = [result.of("normal").requests for result in results]
    found = pooled(results)
    assert list(found) == ["a", "b"]
    assert found["a"].of("normal").requests == alone[0] + alone[1]
    assert len(found["a"].totals) == 2


def test_an_unknown_part_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--part", "nosuch") == 2
    assert "simulated" in capsys.readouterr().err


def test_all_of_it_quickly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    html = tmp_path / "page" / "hedging.html"
    words = ("--part", "simulated", "--quick", "--jobs", "1", "--html", str(html), "--json", "-")
    assert run(*words) == 0
    promised, policies, budgets, loads = json.loads(capsys.readouterr().out)
    assert len(promised["rows"]) == 2 * len(cases.CASES)
    assert len(promised["goals"]) == 15
    assert all(goal["value"] is not None for goal in promised["goals"])
    by_name = {row["case"] + row["hedging"]: row for row in promised["rows_by_case"]}
    assert by_name["slow" + cases.WITH]["high"]["hedged"] > 0
    assert by_name["slow" + cases.WITHOUT]["high"]["hedged"] == 0
    assert policies["rows"][0][0] == "off"
    assert len(budgets["points"]) == len(frontier.POLICIES) * len(frontier.QUICK)
    assert len(loads["points"]) == (len(harm.WAYS) - 1) * len(harm.QUICK)
    page = html.read_text()
    assert "Where a second copy harms" in page
    assert "matplotlib" in page or page.count("<svg") == 2
