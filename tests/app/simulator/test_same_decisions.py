"""The proxy on sockets and the simulator make the same decisions in one scenario.

The proxy is the shipped app between clients and emulated engines; its clock is real. The test
compares all attempts in the order in which they are sent: the request, the number of the attempt
and the replica. This covers the order of the queue, hedges and retries. The test also compares how
every request ends. All attempts and ends must be equal. Times may differ by a few ticks of the
proxy's sweep.

A delay of up to `SLACK_S` changes no decision (`test_the_scenario_leaves_slack`). If the event loop
was late by more than that and a decision differs, the test plays the scenario again.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from random import Random

import pytest

from policies.contract import ROUTING, policy_names
from router.config.model import BatchClass, Classes, Hedging, Queue, QueueGates
from router.lab.emulator.settings import EngineSettings
from router.lab.simulator.scenario import Fault
from router.lab.simulator.traffic import Arrival
from tests.app.simulator.decisions import (
    POLICY,
    TICK_S,
    NotedP2C,
    Story,
    World,
    by_proxy,
    by_simulator,
)
from tests.harness.running import run_bounded

SLACK_S = 0.015  # seconds of delay that change no decision
TICKS = 3  # largest allowed difference between two times, in sweeps of the proxy
PLAYS = 3

# Prompts of 4,000 tokens take 120 ms, every 1,000 more 20 ms; a step of decoding takes 24 ms.
ENGINES = EngineSettings(
    models=("m",),
    profile="fast",
    speed=0.5,
    max_num_seqs=64,
    max_num_batched_tokens=65536,
    num_blocks=16384,
    max_model_len=32768,
    prefix_caching=False,
    scheduling_policy="fcfs",
)
# Arrival in seconds, prompt and output tokens, priority class.
ARRIVALS = (
    # One request at a time.
    (0.121, 4000, 3, "normal"),
    (0.435, 4000, 3, "normal"),
    (0.738, 4000, 3, "normal"),
    # Overload: the queue fills, and the depth limit of batch is reached.
    (1.296, 10_000, 1, "normal"),
    (1.412, 6000, 1, "normal"),
    (1.463, 13_000, 1, "low"),
    (1.578, 14_000, 1, "normal"),
    (1.642, 8000, 1, "low"),
    (1.710, 14_000, 1, "batch"),
    (1.808, 13_000, 1, "normal"),
    (1.876, 18_000, 1, "batch"),
    (1.952, 6000, 1, "high"),
    (2.045, 14_000, 1, "low"),
    (2.130, 11_000, 1, "normal"),
    (2.215, 6000, 1, "high"),
    # The first replica is frozen: hedges are sent.
    (4.235, 5000, 2, "high"),
    (4.511, 5000, 2, "high"),
    (4.812, 5000, 2, "high"),
    (5.116, 5000, 3, "high"),
    # The queue fills again, and the second replica dies in the middle of it.
    (6.433, 16_000, 1, "batch"),
    (6.513, 18_000, 1, "high"),
    (6.550, 5000, 1, "low"),
    (6.653, 17_000, 1, "batch"),
    (6.723, 12_000, 1, "batch"),
    (6.808, 16_000, 1, "batch"),
    (6.935, 5000, 1, "normal"),
    (6.986, 9000, 1, "batch"),
    (7.056, 17_000, 1, "normal"),
    (7.145, 17_000, 1, "low"),
    # Two replicas are left.
    (9.337, 4000, 5, "normal"),
    (9.640, 4000, 3, "normal"),
    (9.913, 4000, 3, "normal"),
)
WORLD = World(
    engines=ENGINES,
    replicas=3,
    arrivals=tuple(
        Arrival(number, at, prompt, output, priority=name)
        for number, (at, prompt, output, name) in enumerate(ARRIVALS)
    ),
    faults=(
        Fault(at=4.1, replica=0, kind="freeze", until=5.9),
        Fault(at=6.75, replica=1, kind="kill", until=inf),
    ),
    queue=Queue(policy="strict", gates=QueueGates(waiting=1, prefill_tokens=0)),
    classes=Classes(batch=BatchClass(depth=2)),
    hedging=Hedging(policy="fixed", options={"delay_s": 0.6}, budget=1.0, utilisation=1.0),
    health={"suspect_min_s": 60.0},  # no replica is suspected during the freeze
)


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the policy for these tests only: other tests run every registered policy."""
    policy_names()
    monkeypatch.setitem(ROUTING.classes, POLICY, NotedP2C)


def later(seed: int) -> World:
    """The same scenario with each arrival delayed at random."""
    rng = Random(seed)
    arrivals = tuple(
        Arrival(
            one.number,
            one.at + SLACK_S * rng.random(),
            one.prompt_tokens,
            one.output_tokens,
            priority=one.priority,
        )
        for one in WORLD.arrivals
    )
    return replace(WORLD, arrivals=arrivals)


def test_the_scenario_leaves_slack() -> None:
    usual = by_simulator(WORLD)
    for seed in range(20):
        network_s = 0.001 + SLACK_S / 3.0 * (seed % 3) / 2.0
        moved = by_simulator(later(seed), network_s=network_s, seed=seed)
        assert moved.sent == usual.sent, seed
        assert moved.ends == usual.ends, seed


def test_everything_happens_in_it() -> None:
    story = by_simulator(WORLD)
    ends = story.ends.values()
    assert len(ends) == len(ARRIVALS)
    assert sum(end.waited for end in ends) >= 10
    assert [end.reason for end in ends].count("queue_full") == 1
    assert sum(end.hedge_won for end in ends) == 1
    assert sum(end.attempts > 1 and not end.hedged for end in ends) >= 3  # retried requests
    # A more urgent request overtook an earlier one.
    firsts = [sent.request for sent in story.sent if not sent.attempt]
    assert firsts != sorted(firsts)
    # The seed of the policy matters.
    other = by_simulator(replace(WORLD, seed=2))
    assert [sent.replica for sent in other.sent] != [sent.replica for sent in story.sent]


def test_both_decide_the_same() -> None:
    expected = by_simulator(WORLD)
    for _ in range(PLAYS):
        found = played()
        is_same = found.sent == expected.sent and found.ends == expected.ends
        if is_same or found.stall_s <= SLACK_S:
            break
    else:
        pytest.skip(f"the event loop was late by {found.stall_s:.3f} s, in each of {PLAYS} plays")
    assert found.sent == expected.sent
    assert found.ends == expected.ends
    allowed = TICKS * TICK_S + found.stall_s
    for sent, here, there in zip(expected.sent, expected.at, found.at, strict=True):
        assert abs(here - there) <= allowed, (sent, here, there, found.stall_s)


def played() -> Story:
    stories: list[Story] = []

    async def play() -> None:
        stories.append(await by_proxy(WORLD))

    run_bounded(play, 60.0)
    return stories[0]
