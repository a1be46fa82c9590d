"""Names and splits in a simulation: the code of the proxy, on a virtual clock."""

from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from router.config.load import parse
from router.core.errors import Reason
from router.lab.simulator.scenario import Group, Scenario
from router.lab.simulator.simulation import simulate
from router.lab.simulator.traffic import Arrival
from tests.lab.simulator.worlds import CORE, TIMING, WORLD, Kept, Script


def world(*groups: tuple[str, str], **sections: Any) -> Scenario:
    """Replicas of one model and one pool each."""
    made = tuple(
        Group(replicas=1, core=CORE, timing=TIMING, models=(model,), pool=pool)
        for model, pool in groups
    )
    config = parse("", sections, serves=False)
    parsed = {name: getattr(config, name) for name in sections}
    changed = msgspec.structs.replace(WORLD.config, **parsed)
    return replace(WORLD, groups=made, config=changed)


def played(scenario: Scenario, count: int, model: str) -> Kept:
    kept = Kept()
    arrivals = [
        Arrival(number, 0.2 * number, 100, 4, model=model, session=f"s{number % 100}")
        for number in range(count)
    ]
    simulate(scenario, Script(arrivals), kept)
    return kept


def test_pools_get_their_shares_and_keep_their_sessions() -> None:
    targets = [{"pool": "stable", "weight": 3}, {"pool": "canary", "weight": 1}]
    scenario = world(
        *(("m", "stable"), ("m", "canary"), ("m", "")),
        models={"m": {"targets": targets}},
        pools={"stable": {}, "canary": {}},
    )
    kept = played(scenario, 300, "m")
    found = [kept[number].replica for number in range(300)]
    counts = Counter(found)
    assert counts["r2"] == 0
    assert counts["r1"] / 300 == pytest.approx(0.25, abs=0.12)
    assert found[:100] == found[100:200] == found[200:]


def test_an_unknown_model_is_refused_as_in_the_proxy() -> None:
    kept = played(world(("a", ""), ("b", ""), models={"chat": "c"}), 1, "chat")
    assert kept[0].reason is Reason.MODEL_NOT_FOUND
