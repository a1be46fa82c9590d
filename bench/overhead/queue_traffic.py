"""Runs an admission queue without a router: with replicas, and with an endless source of requests.

To the queue, the replicas look like those of the router's fleet table, with real leases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from random import Random
from typing import cast

import msgspec

from policies.facts import RequestView
from policies.queueing.flow_identity import FlowIdentity
from policies.queueing.ticket import Ticket
from router.admission.pool import Pool
from router.admission.queue import Queue
from router.config.model import Config
from router.core.errors import RouterError
from router.core.kv_estimate import report_kv
from router.core.lease import Lease
from router.core.replica_load import ReplicaLoad
from router.dispatch.slos import class_slos

FLOWS = 100


class Replica(ReplicaLoad):
    """A replica whose KV cache is half full."""

    def __init__(self, number: int) -> None:
        super().__init__(f"replica-{number}")
        self.slots, self.kv_tokens = 256, 4_000_000
        report_kv(self, 0.5, 0)


class Fleet(Pool):
    """A fleet for the queue in which each replica serves every model and reports its load."""

    def __init__(self, size: int) -> None:
        self.replicas = tuple(Replica(number) for number in range(size))

    def eligible(self, lane: str) -> Sequence[ReplicaLoad]:
        return self.replicas

    def refusal(self, lane: str) -> RouterError | None:
        return None

    def absent_since(self, lane: str) -> float:
        return inf

    def serves(self, place: ReplicaLoad, lane: str) -> bool:
        return True

    def held(self, view: RequestView) -> Mapping[ReplicaLoad, int]:
        return cast(dict[ReplicaLoad, int], view.chains)

    def slots(self, place: ReplicaLoad) -> float | None:
        return 256

    def guess(self, place: ReplicaLoad) -> float:
        return 256.0

    def is_blind(self, place: ReplicaLoad) -> bool:
        return False


class Traffic:
    """A queue with its fleet, and requests of many users, sizes and classes."""

    def __init__(self, policy: str, replicas: int) -> None:
        self.fleet = Fleet(replicas)
        none_full = {"depth": 10**6, "wait": 1e6}
        classes = dict.fromkeys(("critical", "high", "normal", "low", "batch"), none_full)
        rules = {"queue": {"policy": policy, "limits": _LIMITS}, "classes": classes}
        config = msgspec.convert(rules, Config)
        self.queue = Queue(config, self.fleet)
        self._slos = class_slos(config.classes)
        self.now = 1000.0
        self.leases: dict[Ticket, Lease] = {}
        self._rng = Random(1)
        self._flows = [FlowIdentity(f"key-{n % 10}", f"user-{n}") for n in range(FLOWS)]
        for replica in self.fleet.replicas:
            self.queue.freed(replica, self.now)

    def ticket(self) -> Ticket:
        rng = self._rng
        flow = rng.randrange(FLOWS)
        number = float(rng.choice((1, 2, 2, 2, 3)))
        view = RequestView(
            stream=True,
            prompt_tokens=rng.randrange(100, 4000),
            output_tokens=rng.randrange(50, 500),
        )
        view.chains = {}
        self._slos[int(number)].fill(view, self.now)
        return Ticket(None, view, self._flows[flow], lane="model", number=number, arrival=self.now)

    def lease(self, ticket: Ticket, place: Replica) -> None:
        self.leases[ticket] = Lease(place, ticket.view.prompt_tokens)

    def fill(self, depth: int) -> None:
        """Offer requests until all replicas are full and `depth` requests wait."""
        while self.queue.waiting < depth:
            ticket = self.ticket()
            places = self.queue.offer(ticket, self.now)
            if places:
                place = places[0]
                assert isinstance(place, Replica)
                self.lease(ticket, place)
                self.queue.sent(ticket, place, self.now)


_LIMITS = {"flow": 10**6, "bytes": 2**40}
