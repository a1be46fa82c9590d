"""The claims of the policies' docstrings about a fleet, on the model in this folder.

Hotspot is replicas x the largest share of the requests: 1 is even, 8 is everything at one replica.
"""

import pytest

from policies.contract import make_policy
from tests.policies.model import Fleet, Outcome
from tests.policies.workloads import Request, blocks, chats, shared_prefix, unique

AFFINE = ("kv_aware", "prefix_affinity")


def run(name: str, requests: list[Request], **fleet: float) -> Outcome:
    return Fleet(make_policy(name), **fleet).run(requests)  # type: ignore[arg-type]


def hotspot(outcome: Outcome, since_s: float = 0.0, until_s: float = float("inf")) -> float:
    return 8 * max(outcome.shares(since_s, until_s).values())


def stayed(outcome: Outcome) -> float:
    """The share of turns, after the first, that went to the replica of the previous turn."""
    last: dict[str | None, str] = {}
    kept = turns = 0
    for request, home in outcome.homes:
        if request.session in last:
            turns += 1
            kept += last[request.session] == home
        last[request.session] = home
    return kept / turns


# One system prompt for all clients.


@pytest.mark.parametrize("rate", [0.5, 10, 40])
@pytest.mark.parametrize("name", [*AFFINE, "least_load", "chwbl"])
def test_a_shared_system_prompt_of_two_blocks_makes_no_hotspot(name: str, rate: float) -> None:
    assert hotspot(run(name, shared_prefix(rate, 1000, prefix=2, tail=10))) <= 1.3


# Bursts and cold starts.


@pytest.mark.parametrize("name", [*AFFINE, "least_load", "weighted"])
def test_a_cold_start_spreads(name: str) -> None:
    burst = [Request(0.0, blocks(12)) for _ in range(8)]
    assert hotspot(run(name, burst)) == 1.0
    assert hotspot(run(name, unique(30, 400, 12))) <= 1.3


# A replica that restarts.


@pytest.mark.parametrize("name", [*AFFINE, "least_load"])
@pytest.mark.parametrize("kind", ["chats", "one system prompt"])
def test_a_restarted_replica_is_refilled_without_a_stampede(name: str, kind: str) -> None:
    if kind == "chats":
        requests = chats(4, 500, 8)
    else:
        requests = shared_prefix(20, 2400, prefix=8, tail=6)
    fleet = Fleet(make_policy(name))
    restarted = fleet.replicas[0]
    fleet.at(40.0, lambda: fleet.up.remove(restarted))
    fleet.at(60.0, restarted.cache.clear)
    fleet.at(60.0, lambda: fleet.up.append(restarted))
    outcome = fleet.run(requests)
    assert "r0" not in outcome.shares(41.0, 59.0)
    # A fair share is 0.125. The new replica has no load and may get more, but not most requests ...
    assert outcome.shares(60.0, 65.0).get("r0", 0.0) < 0.35
    # ... and soon the replica gets a share like each of the eight.
    assert 0.08 < outcome.shares(70.0, 110.0)["r0"] < 0.17
    assert hotspot(outcome, 70.0, 110.0) <= 1.3


# Conversations.


@pytest.mark.parametrize("name", [*AFFINE, "session", "chwbl"])
def test_conversations_stay_at_their_replica(name: str) -> None:
    assert stayed(run(name, chats(3, 400, 8))) > 0.9


@pytest.mark.parametrize("name", [*AFFINE, "session", "weighted"])
def test_affinity_lowers_the_time_to_first_token(name: str) -> None:
    requests = chats(4, 400, 8, seed=1)
    blind = run("least_load", requests)
    assert run(name, requests).ttft(0.5) < 0.5 * blind.ttft(0.5)
    assert run(name, requests).ttft(0.9) < 0.7 * blind.ttft(0.9)


# Nothing to reuse.


@pytest.mark.parametrize("rate", [10, 30, 42])
@pytest.mark.parametrize("name", ["kv_aware", "least_tokens", "weighted"])
def test_without_reuse_it_is_no_worse_than_least_load(name: str, rate: float) -> None:
    requests = unique(rate, 1500, 12)
    ours, blind = run(name, requests), run("least_load", requests)
    for share in (0.5, 0.9, 0.99):
        assert ours.ttft(share) <= 1.05 * blind.ttft(share)
    assert hotspot(ours) <= 1.05
