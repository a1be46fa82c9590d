"""The compared candidates: every combination, and no other setting of the configuration changes."""

from __future__ import annotations

import msgspec

from router.config.model import Config, Hedging, PolicyChoice, Queue
from router.config.varied import varied
from router.lab.replay import arguments as words
from router.lab.replay.arguments import candidates

BASE = varied(
    routing={"policy": "p2c", "options": {}, "models": {"m": PolicyChoice(policy="random")}},
    queue=Queue(policy="strict", affinity=3),
    hedging=Hedging(budget=0.01),
    retry={"attempts": 7},
)


def changed(config: Config) -> list[str]:
    """The sections that differ from the base."""
    return [
        field.name
        for field in msgspec.structs.fields(Config)
        if getattr(config, field.name) != getattr(BASE, field.name)
    ]


def test_a_routing_policy_is_for_all_models() -> None:
    (only,) = candidates(BASE, [words.policy("kv_aware:miss_cost=4")], [], [])
    assert changed(only.config) == ["routing"]
    routing = only.config.routing
    assert (routing.policy, routing.options, routing.models) == ("kv_aware", {"miss_cost": 4}, {})
    assert routing.sample == BASE.routing.sample


def test_orders_and_hedging_policies_keep_the_rest_of_their_sections() -> None:
    found = candidates(
        BASE,
        [],
        [words.queue("off"), words.queue("fair")],
        [words.hedging("off"), words.hedging("fixed:delay_s=1")],
    )
    assert [one.label for one in found] == [
        *("p2c, queue off, hedging off", "p2c, queue off, hedging fixed:delay_s=1"),
        *("p2c, queue fair, hedging off", "p2c, queue fair, hedging fixed:delay_s=1"),
    ]
    assert [one.config.queue.enabled for one in found] == [False, False, True, True]
    assert {one.config.queue.affinity for one in found} == {3}
    assert {one.config.hedging.budget for one in found} == {0.01}
    assert found[3].config.hedging.options == {"delay_s": 1}
    assert all(set(changed(one.config)) <= {"queue", "hedging"} for one in found)
