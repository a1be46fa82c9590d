"""Two engines with few slots and many requests, behind a router that got only their URLs.

A request that waits long because the slots are full says nothing about its engine: all must be
served, none may be suspected or ejected, and the router must not leave slots empty while requests
wait: the share of slots in use until the last request has its first token is compared with that of
the same load straight at the engines, before and after. Times are printed and not compared: the
speed of a machine changes by 40 % from one minute to the next.

Engines with other slots than the folder's default run for this module only. `python -m
tests.engine.compare` runs longer loads of every kind.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.engine.loads.rounds import (
    ROUNDS,
    Ask,
    Engines,
    Seen,
    ask_stream,
    ask_whole,
    calibrated,
    described,
    routed,
    running_pair,
    sizes,
    straight,
)
from tests.engine.machine import environment

WAIT_S = 15.0  # minimum wait of the last stream in seconds
IN_USE = 1 / 1.2  # required share of slots in use, relative to the load straight at the engines


@dataclass(frozen=True)
class Pair:
    """Two running engines with this number of slots, and the length of each answer in tokens."""

    engines: Engines
    slots: int
    tokens: list[int]


@pytest.fixture(scope="module")
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    slots: int = request.param
    logs = tmp_path_factory.mktemp(f"slots-{slots}")
    with running_pair(slots, environment.ensure(), logs) as engines:
        yield Pair(engines, slots, sizes(slots, calibrated(engines, slots, WAIT_S)))


def assert_all_served(pair: Pair, seen: Seen, light: Seen) -> None:
    assert light.failed == seen.failed == []
    assert len(seen.errors) == ROUNDS * pair.slots * len(pair.engines)
    assert seen.ejections == 0
    assert seen.breakers == ["closed", "closed"]
    assert seen.events == []


@pytest.mark.parametrize("pair", [4], indirect=True, scope="module")
def test_streams_are_served_in_time_and_no_engine_is_blamed(pair: Pair, tmp_path: Path) -> None:
    """After a cold start and after light load, alternating with the same load directly at the
    engines.
    """
    ask: Ask = ask_stream
    runs = [straight(pair.engines, ask, pair.tokens)]
    print(f"\n{pair.slots} slots: straight: {described(runs[0])}")
    for cold in (True, False):
        seen, light = routed(pair.engines, ask, pair.tokens, tmp_path, cold=cold)
        print(f"{'cold' if cold else 'after light load'}: {described(seen)}")
        assert_all_served(pair, seen, light)
        runs.append(straight(pair.engines, ask, pair.tokens))
        print(f"straight: {described(runs[-1])}")
        slots = pair.slots * len(pair.engines)
        before, after = (run.slots_in_use(slots) for run in runs[-2:])
        print(f"slots in use: {before:.2f}, routed {seen.slots_in_use(slots):.2f}, {after:.2f}")
        assert seen.slots_in_use(slots) >= IN_USE * min(before, after)


@pytest.mark.parametrize("pair", [4], indirect=True, scope="module")
def test_whole_answers_are_served_and_no_engine_is_blamed(pair: Pair, tmp_path: Path) -> None:
    seen, light = routed(pair.engines, ask_whole, pair.tokens, tmp_path, cold=False)
    print(f"\n{pair.slots} slots, whole answers: {described(seen)}")
    assert_all_served(pair, seen, light)
