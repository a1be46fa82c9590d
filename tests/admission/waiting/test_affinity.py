"""Prefix affinity in the queue: a free replica takes requests whose prefix it holds, within limits.

No request is passed over for ever.
"""

from collections.abc import Mapping
from functools import partial
from random import Random
from typing import Any

import pytest

from policies.queueing.contract import order_names
from policies.queueing.ticket import Ticket
from router.admission.waiting.affinity import NEW_ASKED, OLD_ASKED, REFRESH_S
from router.core.urgency import BATCH, LOW
from tests.admission.world import Spot, World, config, holds

NARROW = {"prefill_tokens": 0}
PATIENT = {"normal": {"wait_s": 1e4, "starvation_s": 1e4}}


def closed(*spots: Spot, **fields: Any) -> World:
    """A world that accepts nothing more until a place is freed manually."""
    classes = {**PATIENT, "critical": {"waiting": 1}}
    world = World(spots, config(gates={**NARROW, "waiting": 1}, classes=classes, **fields))
    for spot in spots:
        spot.prefills = True
        world.come(tokens=10, output=10)
    return world


def free_one(world: World, spot: Spot) -> Ticket:
    """Free the waiting place of the spot and return the ticket that it takes next."""
    job = next(job for job in world.jobs.values() if job.spot is spot)
    world._stop(job)
    world.queue.runs.settle(job.ticket, -1, -1, world.now)
    before = len(world.order)
    world.free(spot)
    assert len(world.order) == before + 1
    return world.order[-1]


def test_a_replica_gets_the_request_with_the_longest_cached_prefix() -> None:
    one, two = Spot("one"), Spot("two")
    world = closed(one, two)
    facts: list[Mapping[Spot, int]] = [{}, {one: 3}, {one: 10}, {two: 10}]
    tickets = [
        world.come(tokens=2000, output=10, look=holds(held), block_tokens=100.0) for held in facts
    ]
    assert free_one(world, one) is tickets[2]
    assert free_one(world, one) is tickets[1]
    # A ticket whose prefix another replica holds better goes last.
    assert free_one(world, one) is tickets[0]
    assert free_one(world, one) is tickets[3]
    assert world.queue.counts.skipped == 2


@pytest.mark.parametrize("policy", ["fair", "fifo"])
@pytest.mark.parametrize("drift", [1.001, 0.999])
@pytest.mark.parametrize("holders", [1, 12])
def test_equal_prefixes_go_by_arrival(policy: str, drift: float, holders: int) -> None:
    """The estimated tokens of a block differ a little between requests with the same prefix."""
    spots = [Spot(f"s{number}") for number in range(12)]
    world = closed(*spots, policy=policy)
    held = dict.fromkeys(spots[:holders], 5)
    tickets = []
    for number in range(20):
        block_tokens = 100.0 * drift**number
        known = {"tokens": 1000, "output": 10, "look": holds(held)}
        tickets.append(world.come(key="one", block_tokens=block_tokens, **known))
    assert [free_one(world, spots[0]) for _ in tickets] == tickets
    assert world.queue.counts.skipped == 0


def test_the_policys_first_ticket_goes_before_an_older_one_with_the_same_prefix() -> None:
    spot = Spot("one")
    world = closed(spot, policy="fair", options={"width": 1e6})
    known = {"tokens": 1000, "output": 10, "look": holds({spot: 5})}
    rich = [world.come(key="rich", **known) for _ in range(3)]
    assert free_one(world, spot) is rich[0]
    poor = world.come(key="poor", **known)
    assert free_one(world, spot) is poor


@pytest.mark.parametrize("holders", [1, 12])
def test_a_ticket_is_passed_only_by_tickets_with_a_quarter_of_its_wait(holders: int) -> None:
    spots = [Spot(f"s{number}") for number in range(12)]
    world = closed(*spots, skips=10**6)
    held = dict.fromkeys(spots[:holders], 5)
    first = world.come(tokens=1000, output=10)
    world.run(8.0)
    late = [world.come(tokens=1000, output=10, look=holds(held)) for _ in range(2)]
    world.run(2.0)  # `first` has waited for 10 s, the others for 2 s
    newest = world.come(tokens=1000, output=10, look=holds({**held, spots[0]: 9}))
    assert free_one(world, spots[0]) is first
    world.run(1.0)
    assert [free_one(world, spots[0]) for _ in range(2)] == [newest, *late][:2]


@pytest.mark.parametrize("urgency", [LOW, BATCH])
def test_only_in_class_batch_a_new_ticket_passes_one_that_waited_long(urgency: int) -> None:
    spot = Spot("one")
    world = closed(spot)
    first = world.come(number=float(urgency), tokens=1000, output=10)
    world.run(10.0)
    newest = world.come(number=float(urgency), tokens=1000, output=10, look=holds({spot: 5}))
    assert free_one(world, spot) is (newest if urgency == BATCH else first)


def test_a_wait_is_at_most_four_times_that_by_arrival() -> None:
    """Each second, a request arrives whose prefix is cached, and a request is sent."""
    spot = Spot("one")
    world = closed(spot, skips=10**6)
    before = 5
    waiting = [world.come(tokens=1000, output=10) for _ in range(before)]
    seconds = 0
    while waiting and seconds <= 4 * before:
        world.run(1.0)
        seconds += 1
        taken = free_one(world, spot)
        if taken in waiting:
            waiting.remove(taken)
        world.come(tokens=1000, output=10, look=holds({spot: 5}))
    assert not waiting and before < seconds <= 4 * before


def test_a_ticket_is_passed_over_a_limited_number_of_times() -> None:
    spot = Spot("one")
    world = closed(spot, skips=4)
    first = world.come(tokens=1000, output=10)
    for _ in range(10):
        world.come(tokens=1000, output=10, look=holds({spot: 5}))
    taken = [free_one(world, spot) for _ in range(5)]
    assert taken.index(first) == 4


def test_a_prefix_does_not_pass_a_more_urgent_class_nor_a_poorer_flow() -> None:
    spot = Spot("one")
    world = closed(spot, policy="fair", options={"width": 100.0})
    known = {"tokens": 1000, "output": 5000, "look": holds({spot: 5})}
    rich = [world.come(key="rich", **known) for _ in range(3)]
    poor = world.come(key="poor", tokens=1000, output=10)
    critical = world.come(number=0.0, tokens=1000, output=10)
    assert free_one(world, spot) is critical
    assert free_one(world, spot) is rich[0]  # neither tenant has been served yet
    assert free_one(world, spot) is poor


def test_what_is_held_is_asked_again_after_a_while_and_of_a_few_at_a_time() -> None:
    spot = Spot("one")
    world = closed(spot)
    asked: list[int] = []

    def look(number: int) -> Mapping[Any, int]:
        asked.append(number)
        return {}

    for number in range(2 * NEW_ASKED):
        world.come(tokens=1000, output=10, look=partial(look, number))
    free_one(world, spot)
    assert asked == list(range(NEW_ASKED))
    free_one(world, spot)
    assert asked == list(range(2 * NEW_ASKED))
    free_one(world, spot)
    assert len(asked) == 2 * NEW_ASKED  # all lookups are known and recent enough
    world.run(REFRESH_S)
    free_one(world, spot)
    assert asked[2 * NEW_ASKED :] == list(range(3, 3 + OLD_ASKED))


def test_a_prefix_that_all_hold_does_not_bind_and_one_that_one_holds_does() -> None:
    spots = [Spot(f"s{number}") for number in range(12)]
    world = closed(*spots)
    system = dict.fromkeys(spots[:11], 4)
    common = [
        world.come(tokens=1000, output=10, look=holds(system), block_tokens=100.0) for _ in range(3)
    ]
    own = world.come(
        tokens=1000, output=10, look=holds({**system, spots[5]: 9}), block_tokens=100.0
    )
    stranger = world.come(tokens=1000, output=10)
    assert free_one(world, spots[5]) is own
    assert free_one(world, spots[6]) is common[0]
    assert free_one(world, spots[11]) is stranger  # the only one without a prefix anywhere
    assert free_one(world, spots[11]) is common[1]
    assert free_one(world, spots[0]) is common[2]


def test_a_cached_prefix_does_not_override_fairness() -> None:
    """The replica holds all prompts of one tenant and none of another tenant.

    The service of the two may differ by the policy's `width` and the cost of one request.
    """
    spot = Spot("one")
    cost, width = 1000 + 2 * 10, 4000.0
    world = closed(spot, policy="fair", options={"width": width})
    for _ in range(200):
        world.come(key="home", tokens=1000, output=10, look=holds({spot: 900}))
        world.come(key="away", tokens=1000, output=10, look=holds({}))
    served = {"home": 0, "away": 0}
    for _ in range(200):
        served[free_one(world, spot).flow.account] += cost
        assert abs(served["home"] - served["away"]) <= width + cost
    assert world.queue.counts.skipped > 0


def test_memory_of_prefix_lookups_is_bounded() -> None:
    """Clients come and go while nothing is taken, or while one replica is never free."""
    one, two = Spot("one"), Spot("two")
    world = closed(one, two)
    known = {"tokens": 1000, "output": 10, "look": holds({one: 3, two: 3})}
    few = [world.come(**known) for _ in range(20)]
    free_one(world, one)
    for _ in range(3000):
        world.leave(world.come(**known))
    short = few[5].class_queue.short
    assert short.held() < 200
    for _ in range(3000):
        world.come(**known)
        free_one(world, one)
    assert short.held() < 3 * 16 * 64
    for ticket in world.queue.wait_lists.tickets():
        world.leave(ticket)
    assert short.held() == 0


@pytest.mark.parametrize("name", order_names())
def test_late_binding_keeps_most_of_the_cache(name: str) -> None:
    """Sixteen groups with a common prefix over eight saturated replicas.

    Each replica holds the last three prefixes. Without affinity a request rarely finds its prefix,
    with it mostly.
    """

    def rate(affinity: int) -> float:
        rng = Random(6)
        spots = [Spot(f"s{number}", slots=4) for number in range(8)]
        rules = config(
            policy=name,
            affinity=affinity,
            gates=NARROW,
            classes={"normal": {"wait_s": 1e4, "starvation_s": 1e4}},
        )
        world = World(spots, rules)
        held: dict[Spot, list[int]] = {spot: [] for spot in spots}
        hits = 0

        def sent(ticket: Ticket, spot: Spot) -> None:
            nonlocal hits
            group = ticket.request
            assert isinstance(group, int)
            hits += group in held[spot]
            if group in held[spot]:
                held[spot].remove(group)
            held[spot].append(group)
            del held[spot][:-3]

        world.on_sent = sent
        for _ in range(600):
            group = rng.randrange(16)
            world.come(
                request=group,
                key=f"k{rng.randrange(4)}",
                tokens=2000,
                output=20,
                look=lambda group=group: {s: 10 for s in spots if group in held[s]},
                block_tokens=200.0,
            )
        world.run(100.0)
        assert len(world.done) == 600
        return hits / 600

    without, kept = rate(0), rate(64)
    assert without < 0.3
    assert kept > 2 * without and kept > 0.45
