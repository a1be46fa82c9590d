"""One queue for all replicas that are connected by the models they serve."""

from collections.abc import Iterable, Mapping, Sequence
from math import inf

import pytest

from policies.facts import RequestView
from policies.queueing.ticket import ENDED, SENT, WAITING, Ticket
from router.admission.counts import GONE, LEFT, QueueCounts
from router.admission.pool import Pool
from router.admission.pools import ANY, Pools, pools_of
from router.core.errors import Reason, RouterError
from router.core.lease import Lease
from router.core.replica_load import ReplicaLoad
from tests.admission.world import Spot, config
from tests.tickets import make_ticket


def groups(pools: dict[str, int]) -> set[frozenset[str]]:
    return {
        frozenset(model for model in pools if pools[model] == number and model != ANY)
        for number in set(pools.values())
    } - {frozenset()}


@pytest.mark.parametrize(
    ("served", "wanted"),
    [
        ([], []),
        ([{"a"}, {"a"}], ["a"]),
        ([{"a"}, {"b"}], ["a", "b"]),
        ([{"a", "b"}, {"b", "c"}, {"d"}], ["abc", "d"]),
        ([{"a"}, {"b"}, {"c", "b"}, {"a", "c"}], ["abc"]),
        ([{"a"}, None, {"b"}], ["ab"]),
        ([None], []),
        ([set(), {"a"}], ["a"]),
    ],
)
def test_pools_are_what_is_connected(
    served: Sequence[Iterable[str] | None], wanted: list[str]
) -> None:
    assert groups(pools_of(served)) == {frozenset(each) for each in wanted}


class Fleet(Pool):
    """Replicas and the models they serve."""

    def __init__(self, **served: str | None) -> None:
        self.spots = {name: Spot(name) for name in served}
        self.served = {
            self.spots[name]: None if models is None else set(models)
            for name, models in served.items()
        }
        self.retired: set[str] = set()  # models that no longer exist
        self.blind: set[ReplicaLoad] = set()  # replicas without metrics
        self.known_slots: float | None = None

    def refusal(self, lane: str) -> RouterError | None:
        return RouterError(Reason.MODEL_NOT_FOUND, "gone") if lane in self.retired else None

    def eligible(self, lane: str) -> Sequence[ReplicaLoad]:
        return [spot for spot in self.served if self.serves(spot, lane)]

    def absent_since(self, lane: str) -> float:
        return inf if self.eligible(lane) else 1.0

    def serves(self, place: ReplicaLoad, lane: str) -> bool:
        assert isinstance(place, Spot)
        models = self.served.get(place, set())
        return models is None or lane in models

    def held(self, view: RequestView) -> Mapping[ReplicaLoad, int]:
        return {}

    def slots(self, place: ReplicaLoad) -> float | None:
        return self.known_slots

    def guess(self, place: ReplicaLoad) -> float:
        return 8.0

    def is_blind(self, place: ReplicaLoad) -> bool:
        return place in self.blind


class Desk:
    """Drives pools manually; a sent request runs until it is ended explicitly."""

    def __init__(self, fleet: Fleet, **fields: object) -> None:
        rules = config(gates={"waiting": 1, "prefill_tokens": 0}, **fields)
        self.fleet = fleet
        self.pools = Pools(rules, fleet)
        self.now = 0.0
        self.leases: dict[Ticket, Lease] = {}
        self.regroup()

    def regroup(self) -> None:
        self.pools.regroup(self.fleet.served, self.now)
        for spot in self.fleet.served:
            self.free(spot)

    def come(self, model: str, key: str = "", number: float = 2.0) -> Ticket:
        ticket = make_ticket(
            model=model, key=key, number=number, tokens=100, output=10, arrival=self.now
        )
        places = self.pools.offer(ticket, self.now)
        if places:
            self._lease(ticket, places[0])
            ticket.queue.sent(ticket, places[0], self.now)
        return ticket

    def _lease(self, ticket: Ticket, place: ReplicaLoad) -> None:
        assert isinstance(place, Spot)
        self.leases[ticket] = Lease(place, ticket.view.prompt_tokens)

    def free(self, place: ReplicaLoad) -> None:
        for ticket in self.pools.freed(place, self.now):
            self._lease(ticket, ticket.place)

    def end(self, ticket: Ticket) -> None:
        place = ticket.place
        self.leases.pop(ticket).release()
        ticket.queue.runs.settle(ticket, 100, 10, self.now)
        self.free(place)


def test_unconnected_models_have_separate_queues() -> None:
    desk = Desk(Fleet(one="a", two="b"), classes={"normal": {"depth": 2}})
    assert len(desk.pools.queues) == 2
    a = [desk.come("a") for _ in range(3)]
    b = [desk.come("b") for _ in range(3)]
    assert [t.state for t in a + b] == [SENT, WAITING, WAITING] * 2
    assert desk.pools.of("a") is not desk.pools.of("b")
    assert desk.pools.waiting == 4
    desk.end(a[0])
    assert [t.state for t in a] == [ENDED, SENT, WAITING]
    assert desk.pools.of("b").waiting == 2


def test_joined_pools_order_waiting_requests_by_arrival() -> None:
    desk = Desk(Fleet(one="a", two="b"), policy="fifo")
    came = [desk.come(model) for model in "abbaabab"]
    both = Spot("both")
    desk.fleet.served[both] = {"a", "b"}
    desk.now = 1.0
    desk.regroup()
    assert len(desk.pools.queues) == 1
    taken = [t for t in came if t.place is both]
    assert taken == [came[2]]  # one request of each model had been sent
    order = [taken[0]]
    for _ in range(5):
        desk.end(order[-1])
        order += [t for t in came if t.place is both and t.state == SENT]
    assert order == came[2:]
    assert all(t.queue is desk.pools.queues[0] for t in order)


def test_pools_that_part_take_their_own_with_them() -> None:
    desk = Desk(Fleet(one="a", two="b", both="ab"))
    came = [desk.come(model) for model in "aabb" * 5]
    waiting = [t for t in came if t.state == WAITING]
    del desk.fleet.served[desk.fleet.spots["both"]]
    desk.regroup()
    assert len(desk.pools.queues) == 2
    assert desk.pools.waiting == len(waiting)
    for ticket in waiting:
        assert ticket.queue is desk.pools.of(ticket.model)
    # A request running at the lost replica is settled in the queue that counted it.
    for ticket in [t for t in came if t.state == SENT]:
        desk.end(ticket)
    while running := [t for t in came if t.state == SENT]:
        for ticket in running:
            desk.end(ticket)
    assert all(t.state == ENDED for t in came)
    assert desk.pools.waiting == 0


def test_requests_for_a_model_without_replicas_wait_for_a_limited_time() -> None:
    desk = Desk(Fleet(one="a"), classes={"normal": {"absent_s": 5.0}})
    ticket = desk.come("unknown")
    assert ticket.state == WAITING
    desk.pools.tick(1.0)
    assert desk.pools.next_at <= 6.0
    expired = desk.pools.tick(6.0).expired
    assert [over.ticket for over in expired] == [ticket]
    assert desk.pools.next_at == float("inf")


def test_requests_for_a_removed_model_move_to_another_queue() -> None:
    desk = Desk(Fleet(one="a", two="b"), classes={"normal": {"absent_s": 5.0}})
    running, ticket = desk.come("b"), desk.come("b")
    assert ticket.state == WAITING
    two = desk.fleet.spots["two"]
    del desk.fleet.served[two]
    desk.regroup()
    (queue,) = desk.pools.queues
    assert ticket.queue is queue and desk.pools.waiting == 1
    assert [over.ticket for over in desk.pools.tick(6.0).expired] == [ticket]
    desk.leases.pop(running).release()
    running.queue.runs.settle(running, 100, 10, desk.now)


def test_requests_for_a_model_that_no_longer_exists_fail_at_once() -> None:
    desk = Desk(Fleet(one="ab"), classes={"normal": {"absent_s": 500.0}})
    desk.come("a")
    tickets = [desk.come("b") for _ in range(3)]
    assert [t.state for t in tickets] == [WAITING] * 3
    desk.fleet.served[desk.fleet.spots["one"]] = {"a"}
    desk.regroup()
    assert desk.pools.tick(1.0).expired == []  # the replica may come back
    desk.fleet.retired.add("b")
    desk.pools.rebuilt(2.0)
    assert desk.pools.next_at == 2.0
    expired = desk.pools.tick(2.0).expired
    assert [over.ticket for over in expired] == tickets
    assert {over.error.reason for over in expired} == {Reason.MODEL_NOT_FOUND}
    (queue,) = desk.pools.queues
    assert queue.counts.dropped[GONE][2] == 3
    assert desk.pools.waiting == 0


def test_cancelled_and_returning_requests_use_the_current_queue() -> None:
    desk = Desk(Fleet(one="a", two="b"))
    first, second = desk.come("a"), desk.come("a")
    both = Spot("both")
    desk.fleet.served[both] = {"a", "b"}
    third = desk.come("a")
    desk.regroup()
    assert second.place is both
    assert third.queue.leave(third)
    desk.leases.pop(first).release()
    assert desk.pools.requeue(first, desk.now)
    desk.free(desk.fleet.spots["one"])
    assert first.state == SENT and first.queue is desk.pools.queues[0]
    for ticket in (first, second):
        desk.end(ticket)
    assert desk.pools.waiting == 0


def test_counts_of_a_removed_queue_are_kept() -> None:
    desk = Desk(Fleet(one="a", two="b"), classes={"normal": {"depth": 1}})
    for model in "aab":
        desk.come(model)
    with pytest.raises(RouterError):
        desk.come("a")
    ticket = desk.come("b")
    ticket.queue.leave(ticket)
    both = Spot("both")
    desk.fleet.served[both] = {"a", "b"}
    desk.regroup()
    (queue,) = desk.pools.queues
    total = QueueCounts()
    for counts in (desk.pools.past, queue.counts):
        total.add(counts)
    assert (total.passed[2], total.queued[2], total.granted[2]) == (2, 2, 1)
    dropped = {why: by[2] for why, by in total.dropped.items() if by[2]}
    assert dropped == {Reason.QUEUE_FULL: 1, LEFT: 1}
    before = desk.pools.past.dropped[Reason.QUEUE_FULL][2], desk.pools.past.dropped[LEFT][2]
    assert sorted(before) == [0, 1]  # one of two queues no longer exists
