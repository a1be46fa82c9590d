"""Capacity is reserved while its class needs it, else lent; no borrower is stopped."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from policies.queueing.ticket import CLASSES, Ticket
from router.addons.reservations.reservations import WINDOW_S, Reservations
from router.admission.gates.gate_cache import CachedGate
from router.admission.queue import Queue
from router.config.model import Config
from router.core.urgency import NORMAL
from tests.admission.extras import held_tokens, reservations, used_tokens
from tests.admission.world import Spot, Stand, World, config
from tests.examples import examples
from tests.fleet.conftest import _closes_tables as _closes_tables
from tests.share.routers import over, world as fleet
from tests.tickets import make_ticket

SHARES = (0.1, 0.3, 0.4, 0.15, 0.05)
CAPACITY = 100_000


def table_of(*spots: Spot) -> Reservations:
    """The reservations of a queue without requests."""
    rules = config(reservations={"enabled": True}, gates={"waiting": 3, "prefill_tokens": 0})
    made = reservations(Queue(rules, Stand(spots)))
    assert isinstance(made, Reservations)
    return made


def allows(table: Reservations, urgency: int, tokens: int) -> bool:
    return table.allows(make_ticket(number=float(urgency), tokens=tokens, output=0))


def reserved(*, strict: bool = False, kv_tokens: int = CAPACITY, **fields: object) -> World:
    spot = Spot("a", slots=10_000, prefill_rate=1e9, tpot_s=0.01)
    spot.kv_tokens = kv_tokens
    world = World(
        [spot],
        config(
            reservations={"enabled": True, "strict": strict},
            classes={"batch": {"waiting": 3, "prefill_tokens": 8192, "kv_usage": 1.0}},
            **fields,
        ),
    )
    world.free(spot)
    assert reservations(world.queue).capacity == kv_tokens
    return world


def test_demand_is_held_for_a_minute_and_no_further_than_it_went() -> None:
    table = table_of()
    table.capacity = float(CAPACITY)
    demands = table.demands
    demands.waits(1, 5000, 0.0)
    assert table.held(1) == 5000
    demands.waits(1, 50_000, 0.0)
    assert table.held(1) == pytest.approx(30_000)
    demands.waiting[1] -= 55_000
    demands.tick(WINDOW_S - 1.0)
    assert table.held(1) == pytest.approx(30_000)
    demands.tick(WINDOW_S + 11.0)
    assert table.held(1) == 0.0


def test_an_idle_share_is_lent_and_returned_first() -> None:
    table = table_of()
    table.capacity = float(CAPACITY)
    table.demands.sent(4, 90_000, 0.0)
    table.demands.waits(1, 30_000, 1.0)
    assert not allows(table, 4, 1)  # class 4 has borrowed, and the owning class is active again
    assert allows(table, 1, 10_000)
    table.demands.used[4] -= 50_000
    assert allows(table, 4, 10_000)
    assert not allows(table, 4, 40_000)


def test_recent_urgent_demand_keeps_its_share() -> None:
    world = reserved()
    high = [world.come(number=1.0, tokens=400, output=600) for _ in range(20)]
    world.run(10.0)
    assert all(ticket in world.done for ticket in high)
    for _ in range(300):
        world.come(number=4.0, tokens=400, output=600)
    world.run(3.0)
    assert used_tokens(world.queue, 4) <= CAPACITY - 20_000
    late = [world.come(number=1.0, tokens=400, output=600) for _ in range(20)]
    world.run(1.0)
    assert all(ticket in world.first for ticket in late)
    world.run(60.0)
    more = used_tokens(world.queue, 4)
    world.run(20.0)
    assert used_tokens(world.queue, 4) >= more


class Watched(World):
    """Reports a ticket at the moment it is sent."""

    def __init__(
        self, spots: list[Spot], rules: Config, check: Callable[[list[Ticket]], None]
    ) -> None:
        self.check = check
        super().__init__(spots, rules)
        self.on_sent = self._passed

    def _passed(self, ticket: Ticket, spot: Spot) -> None:
        if not self.granting:
            self.check([ticket])

    granting = False

    def _send(self, granted: list[Ticket]) -> None:
        self.check(granted)
        self.granting = True
        super()._send(granted)
        self.granting = False


class Borrowing(RuleBasedStateMachine):
    """Random arrivals and ends of all classes.

    Each sent request is within its class's share, or the remaining capacity covers everything
    reserved for the others.
    """

    strict = False

    @initialize(capacity=st.sampled_from((5000, 20_000, 100_000)))
    def begin(self, capacity: int) -> None:
        self.spots = [Spot(name, slots=None, limit=50) for name in "ab"]
        for spot in self.spots:
            spot.kv_tokens = capacity // 2
            spot.prefills = True  # the state machine ends requests itself
        rules = config(
            reservations={"enabled": True, "strict": self.strict},
            gates={"waiting": 50},
            classes={"batch": {"waiting": 50}, "critical": {"waiting": 50}},
            batch_becomes_normal_after_s=20.0,
        )
        self.world = Watched(self.spots, rules, self.check)
        self.capacity = capacity
        reservations(self.world.queue).capacity = float(capacity)

    def check(self, granted: list[Ticket]) -> None:
        """Check tickets sent in one step, in this order; all are already counted."""
        queue = self.world.queue
        used = [used_tokens(queue, urgency) for urgency in range(CLASSES)]
        held = [held_tokens(queue, urgency) for urgency in range(CLASSES)]
        for ticket in reversed(granted):
            urgency = ticket.urgency
            if used[urgency] - ticket.reserved >= SHARES[urgency] * self.capacity:
                assert not self.strict
                others = sum(held) - held[urgency]
                assert self.capacity - sum(used) >= others - 1e-6
            # The state before this ticket. What it may have used of its share was reserved then.
            used[urgency] -= ticket.reserved
            if held[urgency] > 0.0:
                held[urgency] += ticket.reserved

    @rule(number=st.floats(0.0, 4.4), tokens=st.integers(0, 3000), output=st.integers(0, 500))
    def arrives(self, number: float, tokens: int, output: int) -> None:
        self.world.come(number=number, tokens=tokens, output=output)

    @precondition(lambda self: self.world.jobs)
    @rule(data=st.data())
    def ends(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(list(self.world.jobs.values())))
        self.world._stop(job)
        self.world.queue.runs.settle(job.ticket, -1, -1, self.world.now)
        self.world.free(job.spot)

    @rule(seconds=st.sampled_from((0.01, 1.0, 20.0, 70.0)))
    def time_goes_on(self, seconds: float) -> None:
        self.world.run(seconds)

    @invariant()
    def an_urgent_class_within_its_share_does_not_wait(self) -> None:
        """Capacity reserved for a class is really free, so its request has been sent."""
        queue = self.world.queue
        wait_lists = any(spot.inflight < 50 for spot in self.spots)
        if wait_lists:
            for urgency in range(CLASSES):
                if queue.depth[urgency]:
                    assert used_tokens(queue, urgency) >= SHARES[urgency] * self.capacity


class NoBorrowing(Borrowing):
    strict = True


TestBorrowing = Borrowing.TestCase
TestBorrowing.settings = examples(40, steps=40)
TestNoBorrowing = NoBorrowing.TestCase
TestNoBorrowing.settings = examples(20, steps=40)


# -- the capacity -----------------------------------------------------------------------------


def running(table: Reservations, spot: Spot, tokens: int) -> CachedGate:
    """A request of so many tokens runs at a replica. Returns the gate of the replica."""
    queue = table._queue
    gate = queue.gates.of(spot)
    queue.runs.begin(make_ticket(number=2.0, tokens=tokens, output=0), gate, 0.0, False, 0.0)
    return gate


def test_a_full_cache_of_unknown_size_shows_its_size() -> None:
    spot = Spot("a")
    table = table_of(spot)
    gate = running(table, spot, 700)
    spot.inflight = spot.load = 5
    spot.kv_usage = 0.99
    table._queue.gates.look(gate)
    table.ticks(0.0)
    assert table.capacity == 700.0


@pytest.mark.parametrize("slots", [None, 64])
def test_a_replica_that_is_closed_but_not_full_shows_no_capacity(slots: int | None) -> None:
    """A value that is too small would limit the classes, so that it could never grow again."""
    spot = Spot("a", slots=slots)
    table = table_of(spot)
    gate = running(table, spot, 700)
    gates = table._queue.gates
    spot.inflight = spot.waiting = spot.load = 3  # the requests wait for their prefill
    gates.look(gate)
    assert not gate.mask & (1 << NORMAL)
    table.ticks(0.0)
    assert table.capacity == 0.0
    spot.inflight = spot.waiting = spot.load = 0
    gates.look(gate)
    spot.slots, spot.polls_heard = 2, spot.polls_heard + 1
    spot.inflight = spot.load = 2  # both slots are in use, but the gate is closed by a pause
    gates.shut(gate, 10.0)
    table.ticks(0.0)
    assert table.capacity == 0.0


def test_what_a_full_replica_has_shown_moves_with_it_to_another_queue() -> None:
    spot = Spot("a")
    table, other = table_of(spot), table_of(spot)
    gate = running(table, spot, 700)
    spot.inflight = spot.load = 5
    spot.kv_usage = 0.99
    table._queue.gates.look(gate)
    table.ticks(0.0)
    assert isinstance(table._queue, Queue) and isinstance(other._queue, Queue)
    table._queue.give_place(spot, other._queue)
    other.ticks(0.0)
    assert other.capacity == 700.0
    table.ticks(0.0)
    assert (table.capacity, table._peaks) == (0.0, {})


@over
def test_each_router_counts_the_tokens_that_it_has_sent(routers: int) -> None:
    """With `strict`, a class may use its share at each router."""
    classes = {"low": {"share": 0.25}, "high": {"share": 0.75}}
    rules = config(
        reservations={"enabled": True, "strict": True},
        classes=classes,
        gates={"prefill_tokens": 0},
    )
    spot = Spot("a", slots=64, kv_tokens=8000)
    ours = fleet(routers, [spot], rules)
    ours.run(2.0)
    for _ in range(100):
        ours.come(number=3.0, tokens=100, output=100)
    ours.run(1.5)
    assert sum(ticket.reserved for ticket in ours.jobs) == routers * 0.25 * 8000
