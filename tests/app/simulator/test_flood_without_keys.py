"""A log without keys: the flood of one client is replayed as the proxy served it.

The proxy's clients have no key, so each has the share of its address, whatever credentials it
invents. The access log records this address (`within`), and the replay must give each request the
same flow as the proxy. The other client then waits as long as in the proxy, and not behind the
flood.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from policies.contract import ROUTING, policy_names
from router.config.model import Hedging, Queue, QueueGates
from router.lab.emulator.settings import EngineSettings
from router.lab.simulator.traffic import Arrival
from router.lab.traces import Trace
from tests.app.simulator.decisions import POLICY, NotedP2C, Story, World, by_proxy, by_simulator
from tests.harness.running import run_bounded

FLOOD, OTHER = "192.0.2.1", "192.0.2.2"
MANY = 40
# A prompt takes about 120 ms; one request at a time waits at each of two replicas.
WORLD = World(
    engines=EngineSettings(
        models=("m",),
        profile="fast",
        speed=0.5,
        max_num_seqs=64,
        max_num_batched_tokens=65536,
        num_blocks=16384,
        max_model_len=32768,
        prefix_caching=False,
        scheduling_policy="fcfs",
    ),
    replicas=2,
    arrivals=(),
    faults=(),
    queue=Queue(policy="fair", gates=QueueGates(waiting=1, prefill_tokens=0)),
    hedging=Hedging(policy="off"),
    health={"suspect_min_s": 60.0},
)
ASKED = [0.4, 0.9, 1.4]  # times at which the other client sends a request, in seconds


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    policy_names()
    monkeypatch.setitem(ROUTING.classes, POLICY, NotedP2C)


def arrivals(invents: bool) -> tuple[Arrival, ...]:
    """The flood, and some requests of the other client. `invents`: each request of the flood has
    another invented credential.
    """
    found = [(0.1 + 0.005 * n, FLOOD, f"invented-{n}" if invents else "") for n in range(MANY)]
    found += [(at, OTHER, "mine" if invents else "") for at in ASKED]
    return tuple(
        Arrival(number, at, 4000, 1, within=within, tenant=tenant)
        for number, (at, within, tenant) in enumerate(sorted(found))
    )


def waits(story: Story, asked: tuple[Arrival, ...]) -> dict[int, float]:
    """Seconds from arrival to dispatch, by request number."""
    times = zip(story.sent, story.at, strict=True)
    return {sent.request: at - asked[sent.request].at for sent, at in times}


@pytest.mark.parametrize("invents", [False, True], ids=["no credentials", "invented credentials"])
def test_the_other_client_waits_as_long_as_it_did(tmp_path: Path, invents: bool) -> None:
    asked = arrivals(invents)
    stories: list[Story] = []

    async def play() -> None:
        stories.append(await by_proxy(replace(WORLD, arrivals=asked)))

    run_bounded(play, 60.0)
    (proxy,) = stories
    log = tmp_path / "access.log"
    log.write_bytes(proxy.log)
    read = tuple(Trace(log, block_tokens=WORLD.engines.block_size))
    others = [one.number for one in asked if one.within == OTHER]
    assert len(read) == len(asked)
    assert not any(one.is_known for one in read)
    assert len({one.within for one in read}) == 2
    assert len({one.within for one in read if one.number in others}) == 1
    assert len({one.tenant for one in read}) == (MANY + 1 if invents else 1)

    in_proxy = waits(proxy, asked)
    replayed = waits(by_simulator(replace(WORLD, arrivals=read)), read)
    slack_s = 0.1 + proxy.stall_s
    for number in others:
        assert replayed[number] == pytest.approx(in_proxy[number], abs=slack_s)
        assert replayed[number] < 0.5
    # If both clients were one flow, the other client would wait for the whole flood.
    for one in read:
        one.within = one.tenant = ""
    together = waits(by_simulator(replace(WORLD, arrivals=read)), read)
    for number in others:
        assert together[number] > max(1.0, in_proxy[number] + slack_s)
