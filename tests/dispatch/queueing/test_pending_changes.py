"""Changes of the fleet reach the queues once, at the end of a turn or before the next request."""

from __future__ import annotations

from router.admission.pools import Pools
from router.config.model import Config, Queue
from router.dispatch.queueing.pending_changes import PendingChanges
from router.dispatch.queueing.places import Places
from tests.dispatch.driven import World
from tests.tickets import make_ticket


class Fleet:
    """Two replicas of one model, their queue, and the changes that the queue has not read yet."""

    def __init__(self, most: int | None = None) -> None:
        self.world = World(replicas=2, most=most)
        self.a, self.b = self.world.replicas
        places = Places(self.world.fleet)
        self.pools = Pools(Config(queue=Queue(policy="fifo")), places)
        self.changes = PendingChanges(self.world.fleet, places, self.pools)
        self.changes.note(None)
        self.changes.read(0.0)

    def fill(self) -> None:
        """Both replicas are at their limit, and the queue knows it."""
        for replica in (self.a, self.b):
            replica.inflight = replica.limit
            self.pools.freed(replica, 0.0)

    def waits(self) -> None:
        """One request waits."""
        self.fill()
        assert self.pools.offer(make_ticket(model="m"), 0.0) == ()
        assert self.pools.waiting == 1


def test_without_waiting_requests_a_change_needs_no_turn_of_its_own() -> None:
    f = Fleet()
    assert not f.changes.note(f.a)
    assert not f.changes.note(f.b)
    assert list(f.changes.read(1.0)) == [f.a, f.b]


def test_while_a_request_waits_the_first_change_of_a_turn_asks_for_a_reading() -> None:
    f = Fleet(most=1)
    f.waits()
    assert f.changes.note(f.a)
    assert not f.changes.note(f.a)
    assert not f.changes.note(f.b)
    assert not f.changes.await_reading()
    assert list(f.changes.read(1.0)) == [f.a, f.b]
    assert f.changes.note(f.a)  # a new event-loop turn


def test_a_change_of_the_fleet_is_read_in_any_case() -> None:
    f = Fleet()
    assert f.changes.note(None)
    assert not f.changes.note(None)
    assert list(f.changes.read(1.0)) == [f.a, f.b]  # all replicas
    assert f.changes.read(1.0) == {}


def test_a_removed_replica_is_not_reported_after_a_rebuild() -> None:
    f = Fleet()
    f.changes.note(f.a)
    f.world.fleet.remove("r0")
    f.changes.note(None)
    assert list(f.changes.read(1.0)) == [f.b]


def test_queues_are_grouped_anew_only_where_models_have_changed() -> None:
    f = Fleet()
    groups = f.pools._by_place
    f.changes.note(None)
    f.changes.read(1.0)
    assert f.pools._by_place is groups
    f.world.fleet.remove("r0")
    f.changes.note(None)
    f.changes.read(1.0)
    assert set(f.pools._by_place) == {f.b}


def test_waiting_requests_are_checked_after_a_fleet_change() -> None:
    f = Fleet(most=1)
    f.waits()
    f.pools.tick(1.0)
    assert f.pools.next_at > 1.0
    f.changes.note(f.a)
    f.changes.read(1.0)
    assert f.pools.next_at > 1.0
    f.changes.note(None)
    f.changes.read(1.0)
    assert f.pools.next_at == 1.0


def test_the_next_request_reads_what_has_changed_before_it() -> None:
    f = Fleet(most=1)
    f.fill()
    f.a.inflight = 0
    assert not f.changes.note(f.a)
    f.changes.catch_up(1.0)
    assert f.pools.offer(make_ticket(model="m"), 1.0) == (f.a,)
    assert f.changes.read(1.0) == {}


def test_while_a_request_waits_changes_are_left_to_the_reading() -> None:
    """Capacity freed by the changes is for the request that waits, not for the next request."""
    f = Fleet(most=1)
    f.waits()
    f.a.inflight = 0
    f.changes.note(f.a)
    f.changes.catch_up(1.0)
    assert f.pools.waiting == 1
    (changed,) = f.changes.read(1.0)
    assert len(f.pools.freed(changed, 1.0)) == 1
