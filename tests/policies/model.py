"""A small fleet on a virtual clock, for claims about where policies send requests.

Each replica prefills one prompt at a time in order of arrival, then decodes in a batch whose size
slows it down. Its prefix cache is an LRU of blocks, filled at the dispatch like the router's index.
Loads are counted as leases count them; KV usage is polled once a second. Deterministic: randomness
comes from the seed. Real engines are modelled by the emulator instead.
"""

import heapq
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from random import Random

from policies.contract import Candidate, Context, RequestView, RoutingPolicy
from tests.policies.workloads import BLOCK_TOKENS, Request

ANSWER_TOKENS = 100
KV_TOKENS = 100_000
SLOTS = 64
TPOT_S = 0.02  # seconds per token, alone in the batch; twice that in a batch of 32


@dataclass(slots=True)
class Outcome:
    homes: list[tuple[Request, str]] = field(default_factory=list)  # in order of dispatch
    ttft_s: list[float] = field(default_factory=list)

    def shares(self, since_s: float = 0.0, until_s: float = float("inf")) -> dict[str, float]:
        picked = Counter(home for r, home in self.homes if since_s <= r.at < until_s)
        return {id: n / picked.total() for id, n in picked.items()}

    def ttft(self, share: float) -> float:
        return sorted(self.ttft_s)[int(share * (len(self.ttft_s) - 1))]


class Replica(Candidate):
    __slots__ = ("cache", "context", "decoding", "prefilling", "queue")

    def __init__(self, id: str) -> None:
        super().__init__(id, kv_tokens=KV_TOKENS, slots=SLOTS, kv_usage=0.0)
        self.cache: OrderedDict[int, None] = OrderedDict()
        self.queue: deque[tuple[Request, RequestView, int]] = deque()  # and its uncached tokens
        self.prefilling = False
        self.decoding = self.context = 0  # requests in the batch, and their tokens

    def holds(self, blocks: tuple[int, ...]) -> int:
        return next((i for i, block in enumerate(blocks) if block not in self.cache), len(blocks))

    def remember(self, blocks: tuple[int, ...]) -> None:
        for block in reversed(blocks):  # the end of a prompt is evicted first
            self.cache[block] = None
            self.cache.move_to_end(block)
        while len(self.cache) * BLOCK_TOKENS > KV_TOKENS:
            self.cache.popitem(last=False)


class Fleet:
    """`run` sends every request through the policy and returns the results."""

    def __init__(
        self, policy: RoutingPolicy, size: int = 8, seed: int = 0, prefill_rate: float = 10_000.0
    ) -> None:
        self.policy = policy
        self.replicas = [Replica(f"r{i}") for i in range(size)]
        self.up = list(self.replicas)  # the candidates
        self.ctx = Context(Random(seed))
        self.prefill_rate = prefill_rate  # tokens/s of one replica
        self.outcome = Outcome()
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._order = count()
        policy.on_fleet_change(frozenset(r.id for r in self.replicas))

    def at(self, when_s: float, action: Callable[[], object]) -> None:
        heapq.heappush(self._events, (when_s, next(self._order), action))

    def run(self, requests: Sequence[Request]) -> Outcome:
        for request in requests:
            self.at(request.at, partial(self._arrive, request))
        for second in range(int(max(r.at for r in requests)) + 1):
            self.at(second, self._poll)
        while self._events:
            self.ctx.now, _, action = heapq.heappop(self._events)
            action()
        assert not any(r.inflight or r.load or r.waiting or r.pending_tokens for r in self.replicas)
        return self.outcome

    def _poll(self) -> None:
        for replica in self.replicas:
            replica.kv_usage = min(1.0, replica.context / KV_TOKENS)

    def _arrive(self, request: Request) -> None:
        view = RequestView(
            prompt_tokens=request.tokens,
            blocks=request.blocks,
            block_tokens=float(BLOCK_TOKENS),
            session=request.session,
        )
        self.ctx.held = {r: n for r in self.replicas if (n := r.holds(request.blocks))}
        replica = self.policy.pick(view, self.up, self.ctx).candidate
        self.policy.on_dispatch(view, replica, self.ctx)
        uncached = request.tokens - replica.holds(request.blocks) * BLOCK_TOKENS
        replica.remember(request.blocks)
        replica.inflight += 1
        replica.load += 1
        replica.waiting += 1
        replica.pending_tokens += uncached
        replica.queue.append((request, view, uncached))
        self.outcome.homes.append((request, replica.id))
        self._prefill(replica)

    def _prefill(self, replica: Replica) -> None:
        if not replica.prefilling and replica.queue and replica.decoding < SLOTS:
            replica.prefilling = True
            took_s = 0.01 + replica.queue[0][2] / self.prefill_rate
            self.at(self.ctx.now + took_s, partial(self._first_token, replica))

    def _first_token(self, replica: Replica) -> None:
        request, view, uncached = replica.queue.popleft()
        replica.prefilling = False
        replica.waiting -= 1
        replica.pending_tokens -= uncached
        replica.decoding += 1
        replica.context += request.tokens + ANSWER_TOKENS
        self.outcome.ttft_s.append(self.ctx.now - request.at)
        self.ctx.held = {}
        self.policy.on_first_token(view, replica, self.ctx.now - request.at, self.ctx)
        took_s = ANSWER_TOKENS * TPOT_S * (1.0 + replica.decoding / 32)
        self.at(self.ctx.now + took_s, partial(self._finish, replica, request, view))
        self._prefill(replica)

    def _finish(self, replica: Replica, request: Request, view: RequestView) -> None:
        replica.decoding -= 1
        replica.context -= request.tokens + ANSWER_TOKENS
        replica.inflight -= 1
        replica.load -= 1
        self.ctx.held = {}
        self.policy.on_finish(view, replica, ANSWER_TOKENS, self.ctx)
        self._prefill(replica)
