"""Capacity is reserved while its class needs it, else lent; no borrower is stopped."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from policies.queueing.ticket import CLASSES, Ticket
from router.admission.rules import Rules
from router.admission.waiting.reservations import WINDOW_S, Reservations
from router.config.model import Config
from tests.admission.world import Spot, World, config
from tests.examples import examples

SHARES = (0.1, 0.3, 0.4, 0.15, 0.05)
CAPACITY = 100_000


def reservations(*, strict: bool = False) -> Reservations:
    made = Reservations(Rules(config(reservations={"enabled": True, "strict": strict})))
    made.capacity = float(CAPACITY)
    return made


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
    assert world.queue._reservations.capacity == kv_tokens
    return world


def test_demand_is_held_for_a_minute_and_no_further_than_it_went() -> None:
    table = reservations()
    table.waits(1, 5000, 0.0)
    assert table.held(1) == 5000
    table.waits(1, 50_000, 0.0)
    assert table.held(1) == pytest.approx(30_000)
    table.left(1, 55_000)
    table.tick(WINDOW_S - 1.0)
    assert table.held(1) == pytest.approx(30_000)
    table.tick(WINDOW_S + 11.0)
    assert table.held(1) == 0.0


def test_an_idle_share_is_lent_and_returned_first() -> None:
    table = reservations()
    table.sent(4, 90_000, 0.0)
    table.waits(1, 30_000, 1.0)
    assert not table.allows(4, 1)  # class 4 has borrowed, and the owning class is active again
    assert table.allows(1, 10_000)
    table.ended(4, 50_000)
    assert table.allows(4, 10_000)
    assert not table.allows(4, 40_000)


def test_recent_urgent_demand_keeps_its_share() -> None:
    world = reserved()
    high = [world.come(number=1.0, tokens=400, output=600) for _ in range(20)]
    world.run(10.0)
    assert all(ticket in world.done for ticket in high)
    for _ in range(300):
        world.come(number=4.0, tokens=400, output=600)
    world.run(3.0)
    assert world.queue.used_tokens(4) <= CAPACITY - 20_000
    late = [world.come(number=1.0, tokens=400, output=600) for _ in range(20)]
    world.run(1.0)
    assert all(ticket in world.first for ticket in late)
    world.run(60.0)
    more = world.queue.used_tokens(4)
    world.run(20.0)
    assert world.queue.used_tokens(4) >= more


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
        self.world.queue._reservations.capacity = float(capacity)

    def check(self, granted: list[Ticket]) -> None:
        """Check tickets sent in one step, in this order; all are already counted."""
        queue = self.world.queue
        used = [queue.used_tokens(urgency) for urgency in range(CLASSES)]
        held = [queue.held_tokens(urgency) for urgency in range(CLASSES)]
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
                    assert queue.used_tokens(urgency) >= SHARES[urgency] * self.capacity


class NoBorrowing(Borrowing):
    strict = True


TestBorrowing = Borrowing.TestCase
TestBorrowing.settings = examples(40, steps=40)
TestNoBorrowing = NoBorrowing.TestCase
TestNoBorrowing.settings = examples(20, steps=40)
