"""Arguments on the command line: their meaning, and the errors for invalid ones."""

from argparse import ArgumentTypeError
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from router.config.model import Config, Hedging, PolicyChoice, Queue
from router.config.varied import varied
from router.lab.emulator.core.timing import PROFILES, Timing
from router.lab.flags import count, not_negative, positive, share
from router.lab.replay import arguments as words
from router.lab.replay.arguments import candidates
from router.lab.simulator.scenario import Fault


def test_a_policy_and_its_options() -> None:
    choice = words.policy("kv_aware:miss_cost=4,queue_depth=8")
    assert (choice.label, choice.name) == ("kv_aware:miss_cost=4,queue_depth=8", "kv_aware")
    assert choice.options == {"miss_cost": 4, "queue_depth": 8}
    assert words.policy("random").options == {}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("8", (8,)),
        ("8..11", (8, 9, 10, 11)),
        ("8..13:2", (8, 10, 12)),
        ("8,4,8", (4, 8)),
        ("1,4..6,16..32:16", (1, 4, 5, 6, 16, 32)),
    ],
)
def test_sizes(text: str, found: tuple[int, ...]) -> None:
    assert words.sizes(text) == found


@given(st.integers(1, 500), st.integers(0, 200), st.integers(1, 50))
def test_a_range_is_as_python_has_it(low: int, more: int, step: int) -> None:
    found = words.sizes(f"{low}..{low + more}:{step}")
    assert found == tuple(range(low, low + more + 1, step))


def test_timing_is_in_milliseconds() -> None:
    assert words.timing("20,0.01,0,12,0.05,0.5") == Timing(0.02, 1e-5, 0.0, 0.012, 5e-5, 5e-4)


def test_faults() -> None:
    assert words.fault("slow:0:60:120:4") == Fault(
        at=60.0, replica=0, kind="slow", until=120.0, factor=4.0
    )
    assert words.fault("slow:0:60:120").factor == 10.0
    assert words.fault("kill:3:60:inf").until == float("inf")


@pytest.mark.parametrize(
    ("parse", "text", "problem"),
    [
        (words.policy, "nope", "unknown policy 'nope'"),
        (words.policy, "", "unknown policy ''"),
        (words.policy, "kv_aware:nope=1", "nope: unknown option of kv_aware"),
        (words.policy, "kv_aware:miss_cost", "'miss_cost' is not option=value"),
        (words.policy, "kv_aware:=1", "'=1' is not option=value"),
        (words.policy, "kv_aware:miss_cost=much", "miss_cost: .*float"),
        (words.policy, "kv_aware:miss_cost=[", "is not a YAML value"),
        (words.policy, "kv_aware:miss_cost=1,miss_cost=2", "miss_cost is given twice"),
        (words.sizes, "", "not a whole number"),
        (words.sizes, "0", "not a whole number of at least 1"),
        (words.sizes, "-1", "not a whole number"),
        (words.sizes, "1.5", "not a whole number"),
        (words.sizes, "9..8", "8 is less than 9"),
        (words.sizes, "8..", "'' is not a whole number"),
        (words.sizes, "8:2", "a step needs a range"),
        (words.sizes, "1..9:0", "'0' is not a whole number"),
        (words.sizes, "1..5000", "more than 1,000 fleets"),
        (words.sizes, "1..900,2000..2900", "more than 1,000 fleets"),
        (words.sizes, "9" * 12, "more than 100,000 replicas"),
        (words.sizes, "9" * 5000, "not a whole number"),
        (words.sizes, "²", "not a whole number"),
        (words.timing, "1,2,3,4,5", "six numbers"),
        (words.timing, "1,2,3,4,5,x", "'x' is not a number"),
        (words.timing, "1,2,3,4,5,nan", "'nan' is not a number"),
        (words.timing, "1,2,3,4,5,-1", "coefficients must be 0 or more"),
        (words.fault, "slow:0:1", "is not kind:replica:at:until"),
        (words.fault, "burn:0:1:2", "unknown fault 'burn'"),
        (words.fault, "slow:a:1:2", "'a' is not a replica number"),
        (words.fault, "kill:0:1:2:3", "only slow takes a factor"),
        (words.fault, "slow:0:2:1", "end after its beginning"),
        (words.fault, "freeze:0:1:inf", "a freeze must end"),
        (positive, "0", "not above 0"),
        (positive, "inf", "not a number"),
        (not_negative, "-1", "below 0"),
        (share, "1.1", "not between 0 and 1"),
        (count, "0", "at least 1"),
    ],
)
def test_what_means_nothing(parse: Callable[[str], Any], text: str, problem: str) -> None:
    with pytest.raises(ArgumentTypeError, match=problem):
        parse(text)


def test_a_timing_is_read_as_it_is_written() -> None:
    for profile in PROFILES.values():
        assert words.timing(profile.text()).text() == profile.text()


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
