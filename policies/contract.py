"""The contract between a routing policy and whoever drives it, the proxy or a simulator.

A policy is a synchronous, deterministic choice: it sees plain facts (`RequestView`, `Candidate`,
`Context`) and returns a `Pick`. It must never touch a socket, a clock, the global random generator
or another module of the router: `now` and `rng` come through the context, so the same object runs
on a virtual clock.

The rules, held by one contract test over every registered policy:
- `candidates` is never empty and already filtered (model, health, slots, not yet tried);
- the pick is one of them, and the same for the same `ctx.rng` state;
- missing signals are `None`, never 0 and never NaN, and never an exception;
- state stays bounded when ten thousand replicas come and go (`on_fleet_change` tells who is left).

If a policy raises or answers nonsense, the caller falls back to a random candidate and counts it.
Third parties register theirs through the entry-point group `hedgerow.policies`; the entry point's
name is the policy's name. One that cannot be imported harms nobody but who asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, ClassVar, Generic, TypeVar

from policies.registry import PolicyConfigError as PolicyConfigError
from policies.registry import Registry


class RequestView:
    """What a policy may know of a request. Owned by one request and updated in place: a policy may
    keep `blocks` (a tuple), nothing else."""

    __slots__ = (
        "attempts",
        "block_tokens",
        "blocks",
        "body_bytes",
        "chains",
        "kind",
        "model",
        "prompt_bytes",
        "prompt_tokens",
        "session",
        "stream",
    )

    def __init__(
        self,
        kind: str = "chat",
        model: str | None = None,
        stream: bool = False,
        body_bytes: int = 0,
        attempts: int = 0,
        *,
        prompt_bytes: int = 0,
        prompt_tokens: int = 0,
        blocks: tuple[int, ...] = (),
        block_tokens: float = 128.0,
        session: str | None = None,
    ) -> None:
        self.kind = kind  # the route: "chat", "completions", "embeddings", ... or "other"
        self.model = model  # None: the request names none
        self.stream = stream
        self.body_bytes = body_bytes
        self.attempts = attempts  # attempts already made for this request
        self.prompt_bytes = prompt_bytes  # of the prompt as the client wrote it
        self.prompt_tokens = prompt_tokens  # estimated; 0: there is no prompt, or nobody knows
        self.blocks = blocks  # chained prefix block hashes, the first block first
        self.block_tokens = block_tokens  # estimated tokens of one block, > 0
        self.chains: object = None  # the caller's own: token ids, where they are known
        self.session = session  # the client's key of a conversation, None: it gave none


class Candidate:
    """What a policy sees of a replica: one object a replica, updated in place, never copied."""

    __slots__ = (
        "id",
        "inflight",
        "kv_tokens",
        "kv_usage",
        "load",
        "pending_tokens",
        "slots",
        "tpot_s",
        "ttft_s",
        "waiting",
        "weight",
    )

    def __init__(
        self,
        id: str,
        *,
        inflight: int = 0,
        weight: float = 1.0,
        waiting: int = 0,
        load: int | None = None,
        pending_tokens: int = 0,
        kv_usage: float | None = None,
        kv_tokens: int | None = None,
        slots: int | None = None,
        ttft_s: float | None = None,
        tpot_s: float | None = None,
    ) -> None:
        self.id = id
        self.inflight = inflight  # leases held now: our attempts dispatched and not ended
        self.weight = weight  # > 0; slow start lowers it for a while
        self.waiting = waiting  # our attempts without a first content event + others' that wait
        # The batch: our attempts under way + others', running and waiting.
        self.load = inflight if load is None else load
        self.pending_tokens = pending_tokens  # uncached prompt tokens of our attempts that wait
        self.kv_usage = kv_usage  # share of the KV cache in use, 0 to 1; None: unknown
        self.kv_tokens = kv_tokens  # tokens that fit into the KV cache; None: unknown
        self.slots = slots  # requests the engine runs at once; None: unknown
        self.ttft_s = ttft_s  # seconds from dispatch to first content, lately; None: unknown
        self.tpot_s = tpot_s  # seconds per output token, lately; None: unknown


C = TypeVar("C", bound=Candidate)


_NOTHING_HELD: Mapping[Any, int] = {}


class Context:
    """What a policy may use of the world: a seeded generator, the time, who holds the prefix."""

    __slots__ = ("held", "now", "rng")

    def __init__(
        self, rng: Random, now: float = 0.0, held: Mapping[Any, int] = _NOTHING_HELD
    ) -> None:
        self.rng = rng
        self.now = now  # monotonic seconds
        # Candidate -> how many of the request's leading blocks its cache holds; absent: none. It
        # may name replicas that are no candidates.
        self.held = held


class Pick(Generic[C]):
    """A choice and, in one word, why."""

    __slots__ = ("candidate", "reason")

    def __init__(self, candidate: C, reason: str) -> None:
        self.candidate = candidate
        self.reason = reason


class RoutingPolicy:
    """Base of every routing policy: a `@dataclass(slots=True)` whose fields are its options.

    Values are checked against the fields' types; what a type cannot say, `__post_init__` refuses
    with a PolicyConfigError. State that is no option is a field with `init=False`.

    In fleets above 64 replicas `pick` sees a sample and all holders of the prefix, unless the class
    says `sees_all`. Hooks that a policy does not override cost nothing.
    """

    __slots__ = ()

    sees_all: ClassVar[bool] = False

    def pick(self, view: RequestView, candidates: Sequence[C], ctx: Context) -> Pick[C]:
        raise NotImplementedError

    def on_dispatch(self, view: RequestView, candidate: Candidate, ctx: Context) -> None:
        """The request goes to `candidate`, whoever chose it; `ctx.held` is as it was for `pick`."""

    def on_first_token(
        self, view: RequestView, candidate: Candidate, ttft_s: float, ctx: Context
    ) -> None:
        """Its first content event came `ttft_s` seconds after the dispatch. `ctx.held` is empty."""

    def on_finish(
        self, view: RequestView, candidate: Candidate, output_tokens: int | None, ctx: Context
    ) -> None:
        """An attempt ended, well or not; None: how many tokens came is not known."""

    def on_fleet_change(self, replica_ids: frozenset[str]) -> None:
        """The replicas that exist now; drop whatever is kept for others."""


ROUTING: Registry[RoutingPolicy] = Registry("routing", "policies.routing", "hedgerow.policies")
P = TypeVar("P", bound=type[RoutingPolicy])


def policy(name: str) -> Callable[[P], P]:
    """Register a routing policy class under `name`; stands above `@dataclass(slots=True)`."""
    return ROUTING.register(name)


def policy_names() -> list[str]:
    """Names to ask `make_policy` for, sorted. Third parties' are listed without being imported."""
    return ROUTING.names()


def make_policy(name: str, options: Mapping[str, Any] | None = None) -> RoutingPolicy:
    """Build a policy from its name and options (a mapping as it stands in the configuration).

    Raises PolicyConfigError for an unknown name, an unknown option or a bad value.
    """
    return ROUTING.make(name, options)
