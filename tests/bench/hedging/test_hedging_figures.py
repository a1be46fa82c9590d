"""The figures of a run."""

from __future__ import annotations

from dataclasses import replace

from bench.hedging.simulated import nodes
from bench.hedging.simulated.nodes import CASES, Length, task
from bench.hedging.simulated.promises import Figures, Measured
from bench.hedging.simulated.world import Task
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
    assert Measured(one).run() == Figures.of(one, result)
