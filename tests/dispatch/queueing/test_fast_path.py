"""A request is sent without a queue ticket if the chosen replica accepts it; else it gets one."""

from __future__ import annotations

import pytest

from policies.contract import RequestView
from router.admission.pools import Pools
from router.config.model import (
    BatchClass,
    Classes,
    ClassSettings,
    Config,
    Health,
    Queue,
    Reservations,
)
from router.config.model import Replica as ReplicaConfig
from router.core.errors import Reason, RouterError
from router.core.urgency import BATCH, NORMAL
from router.dispatch.queueing.fast_path import fast_path
from router.dispatch.queueing.places import Places
from router.fleet.replica import Replica
from tests.dispatch.driven import World
from tests.tickets import make_ticket

ABSENT_S = 3.0
RULES = Config(
    queue=Queue(policy="fifo"),
    classes=Classes(normal=ClassSettings(absent_s=ABSENT_S), batch=BatchClass(absent_s=60.0)),
)


class Front:
    """A router with a queue and no request. Its policy chooses the first replica by name."""

    def __init__(self, replicas: int = 2, most: int | None = 1, rules: Config = RULES) -> None:
        self.world = World(replicas, most=most)
        places = Places(self.world.fleet)
        self.pools = Pools(rules, places)
        self.pools.regroup(places.served(), 0.0)

    def ask(
        self, model: str | None = "m", rank: int = NORMAL, *, may_pass: bool = True
    ) -> Replica | None:
        world = self.world
        view = RequestView(model=model)
        now = world.time.at
        return fast_path(world.fleet, self.pools, world.chooser, view, rank, now, may_pass)

    def refusal(self, model: str | None = "m", rank: int = NORMAL) -> Reason:
        with pytest.raises(RouterError) as caught:
            self.ask(model, rank)
        return caught.value.reason


def test_the_chosen_replica_takes_the_request_and_nothing_is_counted_as_held() -> None:
    front = Front()
    first, second = front.world.replicas
    assert front.ask() is first
    assert front.ask(model=None) is first  # there is one model: a request need not name it
    assert first.inflight == second.inflight == 0
    assert front.pools.waiting == 0
    assert front.pools.queues[0].counts.passed[NORMAL] == 2


def test_a_chosen_replica_that_is_full_means_a_ticket_although_another_has_room() -> None:
    """The queue may know a better replica; asking the queue costs more than one check."""
    front = Front()
    front.world.replicas[0].inflight = 1
    assert front.ask() is None
    assert front.pools.queues[0].counts.passed[NORMAL] == 0


def test_the_current_facts_count_and_not_the_cached_gate() -> None:
    front = Front(replicas=1)
    (replica,) = front.world.replicas
    replica.inflight = 1
    front.pools.freed(replica, 0.0)
    assert front.ask() is None
    replica.inflight = 0
    assert front.ask() is replica


def test_a_key_at_its_limit_does_not_pass() -> None:
    assert Front().ask(may_pass=False) is None


def test_no_request_overtakes_one_that_waits() -> None:
    front = Front(replicas=1)
    (replica,) = front.world.replicas
    replica.inflight = 1
    front.pools.freed(replica, 0.0)
    ticket = make_ticket(model="m")
    assert front.pools.offer(ticket, 0.0) == ()
    replica.inflight = 0
    assert front.ask() is None
    front.pools.leave(ticket)
    assert front.ask() is replica


def test_rules_that_count_every_request_need_a_ticket_for_each() -> None:
    assert Front(rules=Config(queue=Queue(reservations=Reservations(enabled=True)))).ask() is None


def test_a_model_that_does_not_exist_is_refused_at_once() -> None:
    front = Front()
    assert front.refusal("unknown") is Reason.MODEL_NOT_FOUND


def test_a_request_waits_for_a_lost_replica_as_long_as_its_class_allows() -> None:
    front = Front(replicas=1)
    front.world.goes_down("r0")
    assert front.ask() is None
    front.world.time.at += ABSENT_S - 0.5
    assert front.ask() is None
    front.world.time.at += 0.5
    assert front.refusal() is Reason.NO_REPLICA
    assert front.ask(rank=BATCH) is None


def test_the_reason_is_the_models_where_other_replicas_are_up() -> None:
    front = Front(replicas=1)
    world = front.world
    other = Replica(ReplicaConfig(url="http://n:1", id="n", models=("n",)), Health(), None)
    world.fleet.add(other)
    world.goes_down("r0")
    world.time.at += ABSENT_S
    assert front.refusal("m") is Reason.MODEL_RESTARTING
    assert front.refusal(None) is Reason.MODEL_REQUIRED
    assert front.ask("n") is other
