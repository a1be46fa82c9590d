"""Traffic for the measurement of decisions: a fleet with a filled prefix index, and prompts.

There are three kinds of prompt, all of 16 KB:

- `unique`: a new prompt;
- `conversation`: the next turn of a conversation; one replica holds all but the end of the prompt;
- `shared`: a system prompt of 1 KB that every replica holds, then new text.

The kinds alternate. Every replica has running requests, and the prefix index has as
many entries as the replicas' KV caches allow. As in the proxy, a dispatched request delivers its
first token and ends some decisions later.
"""

from __future__ import annotations

import asyncio
from collections import deque
from random import Random
from typing import Final

from policies.contract import Context, RequestView, make_policy
from router.config.model import Config, Replica as ReplicaConfig
from router.core.kv_estimate import report_kv
from router.core.lease import Lease
from router.dispatch.chooser import Chooser, Policies
from router.fleet.prefix.lookup import PrefixLookup
from router.fleet.replica import Replica
from router.observe.metrics import Metrics
from router.wire.pool import Address, Pool
from router.wire.sweep import Sweeper

PROMPT_BYTES: Final = 16 * 1024
KINDS: Final = ("unique", "conversation", "shared")
_TURN: Final = 4  # number of blocks that a turn adds to its conversation
_SYSTEM: Final = 2  # number of blocks of the system prompt
_KV_TOKENS: Final = 442_944  # KV cache of one replica, in tokens
_UNDER_WAY: Final = 4  # requests per replica, on average; one of them has no first token yet

Blocks = tuple[int, ...]


class Fleet:
    """Replicas and the prefix index of their caches, which all measured policies share."""

    def __init__(self, count: int, rng: Random) -> None:
        self.config = Config(
            replicas=tuple(
                ReplicaConfig(url=f"http://10.0.{n // 250}.{n % 250}:8000", id=f"r{n}")
                for n in range(count)
            )
        )
        self.rng = rng
        self.knowledge = PrefixLookup(self.config.prefix)
        # Nothing is sent, so the connection pool gets an event loop that does not run.
        loop = asyncio.new_event_loop()
        loop.close()
        config = self.config
        pool = Pool(Address("", 0), config.limits, config.timeouts, Sweeper(loop, print), loop)
        self.replicas = tuple(
            Replica(replica, self.config.health, pool) for replica in self.config.replicas
        )
        for replica in self.replicas:
            self.knowledge.add(replica)
        self.length = PROMPT_BYTES // self.config.prefix.block_bytes
        self.system = self.fresh(_SYSTEM)
        self._fill()
        # After the index is filled, so that these values do not change its size.
        for replica in self.replicas:
            replica.kv_tokens = _KV_TOKENS
            report_kv(replica, 0.5, 0)

    def fresh(self, length: int) -> Blocks:
        """Return the hashes of `length` new blocks."""
        bits = self.rng.getrandbits
        return tuple([bits(64) for _ in range(length)])

    def _fill(self) -> None:
        index = self.knowledge.prefixes
        for replica in self.replicas:
            index.confirm(replica, self.system)
            capacity = index.capacity(replica)
            for _ in range(capacity // self.length + 1):
                index.insert(replica, self.fresh(self.length))
            index.confirm(replica, self.system)


class Traffic:
    """The requests for the decisions of one policy, one after the other."""

    def __init__(self, fleet: Fleet, policy: str) -> None:
        self._fleet = fleet
        config = fleet.config
        metrics = Metrics()
        self._policy = make_policy(policy)
        self._ctx = Context(fleet.rng)
        self._policy.on_fleet_change(frozenset(r.id for r in fleet.replicas))
        self.chooser = Chooser(
            Policies(self._policy, {}, config.routing.sample), fleet.knowledge, metrics, fleet.rng
        )
        self.metrics = metrics
        self._count = 0
        self._waiting: deque[tuple[RequestView, Replica, Lease, int]] = deque()
        self._running: deque[tuple[RequestView, Replica, Lease]] = deque()
        self._block_bytes = config.prefix.block_bytes

    def next(self) -> RequestView:
        """Return the next request for which a replica must be chosen."""
        fleet = self._fleet
        self._count += 1
        kind = KINDS[self._count % len(KINDS)]
        if kind == "shared":
            blocks = fleet.system + fleet.fresh(fleet.length - _SYSTEM)
        elif kind == "conversation":
            earlier = fleet.fresh(fleet.length - _TURN)
            home = fleet.rng.choice(fleet.replicas)
            fleet.knowledge.prefixes.insert(home, earlier)
            fleet.knowledge.prefixes.confirm(home, earlier, 0)
            blocks = earlier + fleet.fresh(_TURN)
        else:
            blocks = fleet.fresh(fleet.length)
        view = RequestView(model="m", stream=True, body_bytes=PROMPT_BYTES)
        fleet.knowledge.measure(view, blocks, len(blocks) * self._block_bytes)
        return view

    def placed(self, view: RequestView, replica: Replica, placement: tuple[int, int]) -> None:
        """Record a decision: the request runs now, and an earlier request ends."""
        tokens, held = placement
        lease = Lease(replica, tokens)
        self._waiting.append((view, replica, lease, held))
        count = len(self._fleet.replicas)
        if len(self._waiting) > count:
            self._begin()
        if len(self._running) > (_UNDER_WAY - 1) * count:
            self._finish()

    def end(self) -> None:
        """End all running requests."""
        while self._waiting:
            self._begin()
        while self._running:
            self._finish()

    def _begin(self) -> None:
        """Let the oldest request without a first token deliver it."""
        view, replica, lease, held = self._waiting.popleft()
        lease.begun()
        self._fleet.knowledge.prefixes.confirm(replica, view.blocks, held)
        self._policy.on_first_token(view, replica, 0.1, self._ctx)
        self._running.append((view, replica, lease))

    def _finish(self) -> None:
        view, replica, lease = self._running.popleft()
        lease.release()
        self._policy.on_finish(view, replica, 100, self._ctx)
