"""The cached answers of gates: pauses after failed connections, grants, capacity, and reloads."""

import pytest

from router.admission.gates.gate_cache import ALL, GateCache
from router.admission.headroom import Headroom
from router.admission.rules import Rules
from router.core.urgency import CRITICAL, NORMAL
from tests.admission.world import Spot, Stand, World, config

RULES = {"gates": {"waiting": 3, "prefill_tokens": 0}}


def cache(*spots: Spot, **fields: object) -> GateCache:
    return GateCache(Stand(spots), Rules(config(**{**RULES, **fields})), Headroom())


def wait(spot: Spot, count: int) -> None:
    spot.inflight = spot.waiting = spot.load = count


# -- an answer and its facts ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({}, ""),
        ({"inflight": 4, "limit": 4}, "limit"),
        ({"inflight": 3, "waiting": 3, "load": 3}, "waiting"),
        ({"load": 1, "kv_usage": 0.99}, "kv_cache"),
    ],
)
def test_the_reason_of_a_closed_gate_is_readable(facts: dict[str, int], why: str) -> None:
    spot = Spot("a", slots=1)
    for name, value in facts.items():
        setattr(spot, name, value)
    assert cache(spot).why_closed(spot, NORMAL) == why


def test_a_granted_request_counts_before_it_has_a_lease() -> None:
    spot = Spot("a", slots=1)
    gates = cache(spot)
    gate = gates.of(spot)
    for _ in range(3):
        assert gate.mask & (1 << NORMAL)
        gates.grant(gate, 10, True)
    assert not gate.mask & (1 << NORMAL)
    gates.look(gate)  # the leases are taken by now; here there are none
    assert gate.mask == ALL


def test_new_rules_are_applied_to_every_gate() -> None:
    spot = Spot("a", slots=1)
    rules = Rules(config(**RULES))
    gates = GateCache(Stand([spot]), rules, Headroom())
    wait(spot, 2)
    gate = gates.of(spot)
    assert gate.mask & (1 << NORMAL)
    rules.adopt(config(gates={"waiting": 2, "prefill_tokens": 0}))
    gates.look_at_all()
    assert not gate.mask & (1 << NORMAL)


def test_slots_are_asked_for_again_after_a_poll_only() -> None:
    spot = Spot("a", slots=4)
    gates = cache(spot)
    gate = gates.of(spot)
    assert gate.facts.slots == 4.0
    spot.slots = 8
    gates.look(gate)
    assert gate.facts.slots == 4.0
    spot.polls_heard += 1
    gates.look(gate)
    assert gate.facts.slots == 8.0
    assert not gate.facts.is_guess


def test_slots_that_are_not_known_are_guessed() -> None:
    spot = Spot("a", slots=None)
    spot.learned.guess = 5.0
    gate = cache(spot).of(spot)
    assert (gate.facts.slots, gate.facts.is_guess) == (5.0, True)


def test_a_replica_without_metrics_has_a_learned_limit_while_it_has_none() -> None:
    spot = Spot("a", slots=None)
    stand = Stand([spot])
    stand.blind.add(spot)
    gates = GateCache(stand, Rules(config(**RULES)), Headroom())
    gate = gates.of(spot)
    assert gate.learned is not None and not gate.facts.is_guess
    wait(spot, gate.learned.allowed())
    assert gates.why_closed(spot, CRITICAL) == "learned limit"
    stand.blind.clear()
    spot.polls_heard += 1
    gates.look(gate)
    assert gate.learned is None


# -- failed connections -----------------------------------------------------------------------


def test_a_failed_connection_closes_to_all_for_a_pause_that_doubles() -> None:
    spot = Spot("a")
    gates = cache(spot)
    gate = gates.of(spot)
    now, pauses = 100.0, []
    for _ in range(7):
        gates.shut(gate, now)
        assert gate.mask == 0
        assert gates.why_closed(spot, CRITICAL) == "connect"
        assert not gates.admits(spot, CRITICAL)
        gates.shut(gate, now)  # several fail together
        pauses.append(gate.shut_until - now)
        now = gate.shut_until
        gate.is_shut = False
        gates.look(gate)
        assert gate.mask == ALL
    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0])
    gates.shut(gate, now + 60.0)
    assert gate.shut_until - (now + 60.0) == pytest.approx(0.1)


# -- open replicas ----------------------------------------------------------------------------


def test_a_replica_that_left_is_counted_no_more() -> None:
    gone, stays = Spot("a"), Spot("b")
    gates = cache(gone, stays)
    places = (gone, stays)
    gates.of_all(places)
    gates.shut(gates.of(gone), 0.0)
    assert gates.open_of(places, NORMAL) == (stays,)
    gates.forget(gone)
    gates.forget(gone)
    assert gates.open_of((stays,), NORMAL) == (stays,)
    assert set(gates.by_place) == {stays}
    gates.of_all(places)  # the replica comes back with another gate
    assert gates.by_place[gone].mask == ALL
    assert gates.open_of(places, NORMAL) is places


def test_who_is_open_is_remembered_only_as_long_as_no_door_moves() -> None:
    one, two, three = Spot("one"), Spot("two"), Spot("three")
    world = World([one, two, three], config(gates={"prefill_tokens": 0}))
    gates = world.queue.gates
    everybody = (one, two, three)
    assert gates.open_of(everybody, 2) is everybody
    one.waiting = 3
    world.free(one)
    found = gates.open_of(everybody, 2)
    assert found == (two, three)
    assert gates.open_of(everybody, 2) is found
    assert gates.open_of((one, three), 2) == (three,)
    assert gates.open_of(everybody, 0) is everybody  # critical: up to four may wait
    two.waiting = 3
    world.free(two)
    assert gates.open_of(everybody, 2) == (three,)
    world.queue.gone(three)
    assert gates.open_of(everybody, 2) == ()
    one.waiting = two.waiting = 0
    world.free(one)
    world.free(two)
    assert gates.open_of(everybody, 2) is everybody
