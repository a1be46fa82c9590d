"""The simulated part of `hedgerow bench hedging`: traffic, counted requests, the command line."""

from __future__ import annotations

import argparse
import json
from functools import partial

import pytest

from bench.hedging import cli
from bench.hedging.simulated import frontier, harm, nodes, promises, world
from bench.hedging.simulated.world import Task, play


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    return cli.main(parser.parse_args(words))


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


def test_an_unknown_part_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--part", "nosuch") == 2
    assert "simulated" in capsys.readouterr().err


def test_an_unknown_case_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--part", "simulated", "--quick", "--case", "nosuch") == 2
    assert "neighbour" in capsys.readouterr().err


def test_all_of_it_quickly(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--part", "simulated", "--quick", "--jobs", "1", "--json", "-")
    assert run(*words) == 0
    promised, policies, budgets, loads = json.loads(capsys.readouterr().out)
    assert len(promised["rows"]) == 2 * len(nodes.CASES)
    assert len(promised["goals"]) >= 3 * len(nodes.CASES)
    assert all(goal["value"] is not None for goal in promised["goals"])
    assert all("open: 1 pairs" in goal["verdict"] for goal in promised["goals"])
    by_name = {row["case"] + row["hedging"]: row["seeds"][0] for row in promised["runs"]}
    assert by_name["late" + promises.WITH]["requests"] > 0
    assert by_name["late" + promises.WITHOUT]["hedged"] == 0
    assert policies["rows"][0][0] == "off"
    assert len(budgets["points"]) == len(frontier.POLICIES) * len(frontier.QUICK)
    assert len(loads["points"]) == (len(harm.WAYS) - 1) * len(harm.QUICK)
