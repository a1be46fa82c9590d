"""A key's limit of concurrent requests at replicas; waiting requests do not count."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, strategies as st

from policies.queueing.contract import order_names
from policies.queueing.ticket import ENDED, SENT, WAITING, Ticket
from router.admission.concurrency import Concurrency
from router.admission.limits import Account, Grant, LimitCheck
from router.core.errors import Reason
from router.core.urgency import BATCH
from tests.addons.needed import needs
from tests.admission.test_pools import Desk, Fleet
from tests.admission.world import Spot, World, config, every_class
from tests.tickets import make_ticket

OPEN: dict[str, Any] = {"waiting": 64, "prefill_tokens": 0}  # settings of the gates
ONE: dict[str, Any] = {"waiting": 1, "prefill_tokens": 0}


def come(world: World, limit: Concurrency | None, **facts: Any) -> Ticket:
    return world.come(**{"tokens": 100, "output": 50, "concurrency": limit, **facts})


def test_a_slot_is_taken_at_the_dispatch_and_released_at_the_end() -> None:
    limit = Concurrency(2)
    assert limit.free(is_batch=False) == 2
    limit.take(False, 0.0)
    limit.take(True, 0.0)
    assert (limit.free(is_batch=False), limit.free(is_batch=True)) == (1, 0)
    limit.give(False, 1.0)
    assert (limit.free(is_batch=False), limit.free(is_batch=True)) == (2, 1)
    limit.adopt(1, 1.0)
    assert (limit.free(is_batch=False), limit.free(is_batch=True)) == (1, 0)
    limit.adopt(None, 1.0)
    assert limit.free(is_batch=True) > 10**9


def test_requests_at_other_routers_count() -> None:
    limit = Concurrency(5)
    limit.take(False, 0.0)
    limit.counts_elsewhere(2, 1, 0, 0.0)
    assert (limit.free(is_batch=False), limit.free(is_batch=True)) == (2, 1)
    limit.entered = 1
    assert not limit.may_enter()
    limit.counts_elsewhere(0, 0, 0, 1.0)
    assert (limit.free(is_batch=False), limit.free(is_batch=True)) == (4, 4)


def test_a_divided_limit_allows_one_request_at_least() -> None:
    limit = Concurrency(5)
    parts = {1: 5, 2: 2, 4: 1, 9: 1}
    for count, expected in parts.items():
        limit.divide(count, 0.0)
        assert limit.limit == expected
    limit.adopt(18, 0.0)
    assert limit.limit == 2
    limit.adopt(0, 0.0)
    assert limit.limit == 0
    limit.adopt(None, 0.0)
    assert limit.free(is_batch=False) > 10**9


def test_waiting_requests_are_sent_when_another_router_runs_fewer() -> None:
    world = World([Spot("a")], config(policy="fifo", gates=OPEN))
    limit = Concurrency(3)
    limit.counts_elsewhere(2, 0, 0, 0.0)
    tickets = [come(world, limit, output=2000) for _ in range(3)]
    assert [t.state for t in tickets] == [SENT, WAITING, WAITING]
    limit.counts_elsewhere(1, 0, 0, world.now)
    assert world.queue.wait_lists.woken
    world._after_event()
    assert [t.state for t in tickets] == [SENT, SENT, WAITING]
    limit.counts_elsewhere(3, 0, 0, world.now)
    world.run(600.0)
    assert tickets[2].state == WAITING
    limit.counts_elsewhere(0, 0, 0, world.now)
    world._after_event()
    assert tickets[2].state == SENT
    world.run(600.0)
    world.assert_empty()


def test_a_queued_request_is_charged_at_arrival_but_takes_no_slot() -> None:
    ours = Account(1, 3, 1000.0, 0.0)
    grants = []
    for _ in range(3):
        assert ours.ask(100, 0.0, waits=True) == LimitCheck.WITHIN
        grants.append(Grant(ours, 100, 100, waits=True))
    assert ours.ask(100, 0.0, waits=True) == LimitCheck.REQUESTS
    assert ours.left(0.0) == (pytest.approx(0.0), pytest.approx(700.0))
    assert (ours.under_way, ours.concurrency.own) == (3, 0)
    for grant in grants:
        grant.settle(100, 10, 0.0)
    assert (ours.under_way, ours.concurrency.own) == (0, 0)


def test_batch_counts_from_its_arrival_and_refuses_no_chat() -> None:
    ours = Account(2, None, None, 0.0)
    for _ in range(2):
        assert ours.ask(1, 0.0, is_batch=True, waits=True) == LimitCheck.WITHIN
    assert ours.ask(1, 0.0, is_batch=True, waits=True) == LimitCheck.CONCURRENCY
    assert ours.ask(1, 0.0, waits=True) == LimitCheck.WITHIN
    assert ours.concurrency.may_pass(is_batch=False)
    ours.settle(1, None, None, 1.0, is_batch=True, waits=True)
    ours.concurrency.take(False, 1.0)
    assert ours.ask(1, 1.0, is_batch=True, waits=True) == LimitCheck.CONCURRENCY
    ours.concurrency.give(False, 2.0)
    assert ours.ask(1, 2.0, is_batch=True, waits=True) == LimitCheck.WITHIN


def test_blocked_requests_do_not_block_others_and_keep_their_order() -> None:
    world = World([Spot("a")], config(policy="fifo", gates=OPEN))
    limit = Concurrency(2)
    ours = [come(world, limit) for _ in range(6)]
    assert [t.state for t in ours] == [SENT] * 2 + [WAITING] * 4
    assert world.queue.waiting == 4 and world.queue.eligible == [0] * 5
    assert world.queue.is_passable
    other = come(world, None)
    assert other.state == SENT
    world.run(60.0)
    assert world.order == [*ours[:2], other, *ours[2:]]
    world.assert_empty()
    assert (limit.own, limit.key_queues) == (0, {})


@pytest.mark.parametrize("policy", ["fair", "round_robin"])
def test_users_of_a_key_share_its_slots(policy: str) -> None:
    world = World([Spot("a")], config(policy=policy, gates=OPEN))
    limit = Concurrency(2)
    many = [come(world, limit, key="k", user="many") for _ in range(40)]
    single = come(world, limit, key="k", user="single")
    world.run(600.0)
    assert world.order.index(single) <= 6
    assert set(many) <= set(world.done)


def test_a_blocked_request_can_be_cancelled_expire_or_be_evicted() -> None:
    rules = config(gates=OPEN, classes=every_class(depth=3, wait_s=20.0))
    world = World([Spot("a")], rules)
    limit = Concurrency(1)
    first = come(world, limit, output=2000, key="k")
    left = come(world, limit, key="k")
    late = come(world, limit, deadline=world.now + 5.0, key="k")
    old = come(world, limit, key="k")
    assert world.queue.waiting == 3
    world.leave(left)
    world.run(6.0)
    assert world.expired[late].reason == Reason.DEADLINE_PASSED
    newest = [come(world, limit, key="k") for _ in range(2)]
    busy = Concurrency(0)
    other = come(world, busy, key="other")
    assert [gone for gone, _ in world.evicted] == [newest[1]]
    assert world.evicted[0][1].reason == Reason.QUEUE_EVICTED
    world.run(19.0)
    assert world.expired[old].reason == Reason.QUEUE_TIMEOUT
    assert "key" in str(world.expired[old])
    world.leave(first)
    assert newest[0].state == SENT
    world.run(60.0)
    assert other in world.expired
    world.assert_empty()
    assert (limit.own, limit.key_queues, busy.key_queues) == (0, {}, {})


def test_removing_a_waiting_ticket_unblocks_a_blocked_one() -> None:
    """A ticket that leaves the queue frees its place under the limit for a blocked ticket."""
    spot = Spot("a", slots=1)
    world = World([spot], config(policy="fifo", gates=ONE))
    blocker = come(world, None, output=500)
    come(world, None, output=500)
    limit = Concurrency(1)
    standing, blocked = come(world, limit), come(world, limit)
    assert (standing.blocked_in, blocked.blocked_in is not None) == (None, True)
    world.leave(standing)
    assert blocked.blocked_in is None
    world.run(60.0)
    assert {blocker, blocked} <= set(world.done)
    world.assert_empty()


def test_a_ticket_is_in_the_line_only_while_its_key_is_below_its_limit() -> None:
    """Two classes of a key wait for one place: sending one blocks the other."""
    world = World([Spot("a", slots=1)], config(policy="strict", gates=ONE))
    for _ in range(5):
        come(world, None, number=0.0)
    limit = Concurrency(1)
    low, urgent = come(world, limit, number=3.0), come(world, limit, number=0.0)
    assert (low.blocked_in, urgent.blocked_in) == (None, None)
    while urgent.state == WAITING:
        world.run(0.1)
    assert low.blocked_in is not None
    world.run(60.0)
    assert world.order[5:] == [urgent, low]
    world.assert_empty()


def test_a_request_put_back_frees_its_slot_and_goes_first_again() -> None:
    world = World([Spot("a")], config(policy="strict", gates=OPEN))
    limit = Concurrency(1)
    first, second = come(world, limit), come(world, limit)
    world._put_back(first)
    world._after_event()
    assert (first.state, second.state, limit.own) == (SENT, WAITING, 1)
    world.run(60.0)
    assert world.order == [first, first, second]
    world.assert_empty()
    assert limit.own == 0


def test_blocked_tickets_take_the_order_of_another_policy() -> None:
    world = World([Spot("a")], config(policy="strict", gates=OPEN))
    limit = Concurrency(1)
    come(world, limit)
    long, short = come(world, limit, output=400), come(world, limit, output=10)
    world.queue.adopt(config(policy="shortest", gates=OPEN))
    world.tick()
    world.run(60.0)
    assert world.order[1:] == [short, long]


def test_one_key_in_two_pools() -> None:
    """A request sent by one queue blocks a request in the other until the first one ends."""
    desk = Desk(Fleet(a="m", b="n"))
    limit = Concurrency(1)
    first, second = (
        make_ticket(model=model, tokens=1, concurrency=limit, arrival=desk.now) for model in "mn"
    )
    pools = desk.pools
    places = pools.offer(first, desk.now)
    first.queue.sent(first, places[0], desk.now)
    assert pools.offer(second, desk.now) == ()
    assert not pools.is_woken
    first.queue.runs.settle(first, 1, 1, desk.now)
    assert pools.is_woken
    found = pools.woken(desk.now)
    assert found is not None and found[0] is second
    second.queue.grant(second, found[1][0], desk.now)
    assert (second.state, limit.own) == (SENT, 1)
    assert pools.woken(desk.now) is None and not pools.is_woken


# -- any order of events -------------------------------------------------------------------------


def check(world: World, limits: Sequence[Concurrency]) -> None:
    queue, wait_lists = world.queue, world.queue.wait_lists
    for limit in limits:
        running = [t for t in world.jobs if t.concurrency is limit]
        assert limit.own == sum(t.urgency != BATCH for t in running)
        assert limit.batch == sum(t.urgency == BATCH for t in running)
        for key_queue in limit.key_queues:
            free = max(0, limit.free(key_queue.urgency == BATCH))
            assert key_queue.count + len(key_queue.standing) > 0
            assert len(key_queue.standing) == min(free, key_queue.count + len(key_queue.standing))
            assert key_queue.held() <= 64 + 2 * key_queue.count + 1
    waiting = queue.wait_lists.tickets()
    assert len(waiting) == queue.waiting == sum(queue.depth)
    free_to_go = [t for t in waiting if t.blocked_in is None]
    assert len(free_to_go) == wait_lists.eligible == sum(queue.eligible)
    assert not wait_lists.woken and not wait_lists.short
    for ticket in free_to_go:
        for spot in world.pool.spots:
            assert not queue.gates.is_open(spot, ticket.urgency) or spot in ticket.excluded


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("come"),
            st.integers(0, 3),  # number of the key; 3: without a limit
            st.sampled_from([0.0, 2.0, 2.0, 4.0]),
            st.integers(0, 2),  # number of the user
            st.sampled_from([5, 50, 500]),
        ),
        st.tuples(st.just("leave"), st.integers(0, 10**6)),
        st.tuples(st.just("limit"), st.integers(0, 2), st.sampled_from([1, 2, 5, None])),
        st.tuples(st.just("elsewhere"), st.integers(0, 2), *[st.integers(0, 4)] * 3),
        st.tuples(st.just("divide"), st.integers(0, 2), st.integers(1, 3)),
        st.tuples(st.just("policy"), st.sampled_from(order_names())),
        st.tuples(st.just("run"), st.sampled_from([0.0, 0.05, 0.5, 5.0])),
    ),
    max_size=80,
)


@needs("preemption")
@given(STEPS, st.sampled_from(order_names()), st.booleans(), st.integers(1, 3))
def test_under_random_operations_no_limit_is_exceeded_and_no_ticket_is_lost(
    steps: list[tuple[Any, ...]], policy: str, preempts: bool, slots: int
) -> None:
    preemption = {"enabled": preempts, "after_s": 0.1, "budget": 1.0}
    rules: dict[str, Any] = {
        "gates": ONE,
        "preemption": preemption,
        "classes": every_class(starvation_s=2.0),
    }
    world = World([Spot("a", slots=slots), Spot("b", slots=slots)], config(policy=policy, **rules))
    limits = [Concurrency(n) for n in (1, 2, 5)]
    most = [1, 2, 5]

    def sent(ticket: Ticket, spot: Spot) -> None:
        limit = ticket.concurrency
        if limit is not None:
            assert limit.free(ticket.urgency == BATCH) >= 0

    world.on_sent = sent
    tickets: list[Ticket] = []
    for step in steps:
        if step[0] == "come":
            _, key, number, user, output = step
            limit = limits[key] if key < 3 else None
            facts = {"number": number, "key": f"k{key}", "user": f"u{user}", "output": output}
            tickets.append(come(world, limit, **facts))
        elif step[0] == "leave" and tickets:
            ticket = tickets[step[1] % len(tickets)]
            if ticket.state != ENDED:
                world.leave(ticket)
        elif step[0] == "limit":
            most[step[1]] = step[2]
            limits[step[1]].adopt(step[2], world.now)
            world._after_event()
        elif step[0] == "elsewhere":
            limits[step[1]].counts_elsewhere(step[2], step[3], step[4], world.now)
            world._after_event()
        elif step[0] == "divide":
            limits[step[1]].divide(step[2], world.now)
            world._after_event()
        elif step[0] == "policy":
            world.queue.adopt(config(policy=step[1], **rules))
            world.tick()
            world._after_event()
        elif step[0] == "run":
            world.run(step[1])
        check(world, limits)
    for limit in limits:
        limit.counts_elsewhere(0, 0, 0, world.now)
        limit.divide(1, world.now)
    world._after_event()
    world.run(10_000.0)
    check(world, limits)
    world.assert_empty()
    assert all(ticket.state == ENDED for ticket in tickets)
    for limit in limits:
        assert (limit.own, limit.batch, limit.key_queues) == (0, 0, {})
