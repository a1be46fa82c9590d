"""The simulated part of `hedgerow bench hedging`: traffic, counted requests, the command line."""

import json
from dataclasses import replace
from functools import partial
from math import inf
from typing import cast

import pytest

from bench.hedging import cli, goals
from bench.hedging.simulated import frontier, harm, nodes, promises, world
from bench.hedging.simulated.nodes import CASES, Length, task
from bench.hedging.simulated.promises import Figures, Measured
from bench.hedging.simulated.world import Class, Result, Task, play, spells
from bench.overhead.goals import Verdict
from router.config.model import Hedging
from router.lab.simulator.totals import Totals
from tests.commands import command_of

run = command_of(cli)


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
    assert Measured(one).run() == Figures.of(one, result)


def test_slow_times_cover_their_share_of_the_time() -> None:
    found = spells("a", 50, 10_000.0, 0.05, 15.0)
    slow_s = sum(one.until - one.at for one in found)
    assert slow_s / (50 * 10_000.0) == pytest.approx(0.05, rel=0.1)
    assert {one.place for one in found} == set(range(50))
    assert [one.at for one in found] == sorted(one.at for one in found)


def test_the_seed_decides() -> None:
    first = spells("a", 4, 1000.0, 0.1, 15.0)
    assert spells("a", 4, 1000.0, 0.1, 15.0) == first
    assert spells("b", 4, 1000.0, 0.1, 15.0) != first
    # Another place does not change the times at the first ones.
    assert [one for one in spells("a", 5, 1000.0, 0.1, 15.0) if one.place < 4] == first


def test_no_worse_is_met_at_its_limit_and_not_above() -> None:
    assert goals.kept("p99", 100.0, 102.0, 0.02).met
    assert goals.kept("p99", 100.0, 50.0, 0.02).met
    assert not goals.kept("p99", 100.0, 102.1, 0.02).met
    assert not goals.kept("p99", 100.0, inf, 0.02).met


@pytest.mark.parametrize(
    "verdict",
    [
        goals.cut("p99", None, 1.0, 0.6),
        goals.kept("p99", inf, 1.0, 0.02),
        goals.kept("p99", 0.0, 1.0, 0.02),
        goals.within("extra", None, 0.05),
        goals.times("slowest", 1.0, None, 2.0, "normal"),
    ],
)
def test_what_cannot_be_judged_is_not_met(verdict: Verdict) -> None:
    assert not verdict.met
    assert verdict.here == "-" and verdict.words().startswith("not measured")


# -- where it turns -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratios", "words"),
    [
        ([0.5, 0.9, 1.1, 1.2], "from a load of 0.3 on"),
        ([0.5, 1.1, 0.9, 1.2], "from a load of 0.4 on"),
        ([0.5, 0.9, 0.9, 1.0], "at no load of this run"),
        ([1.5, 1.9, 1.9, 1.1], "from a load of 0.1 on"),
    ],
)
def test_from_which_load_on_it_harms(ratios: list[float], words: str) -> None:
    def alone(ttft: float) -> Result:
        seen = Class()
        seen.ttfts.append(ttft)
        return Result("x", {world.MOST_URGENT: seen}, cast(Totals, None))

    points = [
        harm.Point("way", (place + 1) / 10, alone(ratio), alone(1.0))
        for place, ratio in enumerate(ratios)
    ]
    assert harm.turns(points, lambda point: point.mean) == words
