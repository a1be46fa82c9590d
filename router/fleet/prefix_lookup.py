"""How many leading blocks of a request each replica holds, and how many tokens a prompt has.

One interface over two precisions: the approximate index of what was sent where (always there), and
the exact one that engines' KV events feed (opt-in, for requests whose token ids are known in time).
Policies see one unit, the request's own blocks, whichever answered.

Must never: do I/O, or make a request wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, cast

from policies.contract import RequestView
from router.config.model import Prefix as Rules
from router.fleet.kv_events.chains import TokenChains
from router.fleet.kv_events.index import ExactIndex
from router.fleet.listed import ANY
from router.fleet.prefix import SHARDS, PrefixIndex, TokenRatio
from router.fleet.replica import Replica

_NOBODY: Final[Mapping[Replica, int]] = {}
_WORTH: Final = 0.05  # a capacity that changes by less is left as it is


class PrefixLookup:
    """What the router knows of its replicas' caches."""

    def __init__(self, rules: Rules, shards: int = SHARDS) -> None:
        """`shards`: of the prefix index."""
        self.rules = rules
        self.prefixes: PrefixIndex[Replica] = PrefixIndex(rules.entries, shards)
        self.ratio = TokenRatio()
        self.exact: ExactIndex | None = None  # fed by KV events, where they are asked for
        self._capacities: dict[Replica, int] = {}

    # -- replicas -----------------------------------------------------------------------------

    def add(self, replica: Replica) -> None:
        self.add_all((replica,))

    def add_all(self, replicas: Sequence[Replica]) -> None:
        self.prefixes.add_replicas(replicas)
        for replica in replicas:
            self.sized(replica)

    def remove(self, replica: Replica) -> None:
        self.prefixes.remove_replica(replica)
        self._capacities.pop(replica, None)

    def restarted(self, replica: Replica) -> None:
        """Its engine was started anew: the cache is empty."""
        self.prefixes.clear(replica)

    def sized(self, replica: Replica) -> None:
        """Bring what a replica may hold in line with its KV cache and what its tokens measure."""
        tokens = replica.kv_tokens or self.rules.kv_tokens
        model = min(replica.models - {ANY}, default=None) if replica.models else None
        blocks = int(tokens * self.ratio.of(model) / self.rules.block_bytes)
        known = self._capacities.get(replica)
        if known is None or abs(blocks - known) > _WORTH * known:
            self._capacities[replica] = blocks
            self.prefixes.set_capacity(replica, blocks)

    def tend(self) -> None:
        """Free the memory of removed replicas, a little with each call."""
        self.prefixes.tend()

    # -- requests -----------------------------------------------------------------------------

    def measure(self, view: RequestView, blocks: tuple[int, ...], prompt_bytes: int) -> None:
        """Put a prompt's blocks, and its size in tokens as far as it can be told, into the view."""
        ratio = self.ratio.of(view.model)
        view.prompt_bytes = prompt_bytes
        view.blocks = blocks
        view.prompt_tokens = int(prompt_bytes / ratio)
        view.block_tokens = self.rules.block_bytes / ratio

    def held(self, view: RequestView) -> Mapping[Replica, int]:
        """Leading blocks of the request by replica; who holds none is not in it."""
        if not view.blocks:
            return _NOBODY
        roughly = self.prefixes.match(view.blocks)
        chains = view.chains
        exact = self.exact
        if exact is None or not isinstance(chains, TokenChains):
            return roughly
        found = exact.match(chains, view.block_tokens)
        # Of a replica whose events we have heard from the start, they are the whole truth.
        held = {r: n for r, n in roughly.items() if not exact.is_complete(r)}
        for key, depth in found.items():
            replica = cast(Replica, key)
            held[replica] = max(depth, held.get(replica, 0))
        return held

    def sent(self, replica: Replica, blocks: tuple[int, ...], held: int) -> None:
        self.prefixes.insert(replica, blocks, held)

    def begun(self, replica: Replica, blocks: tuple[int, ...], held: int) -> None:
        """The first token is here: the replica has prefilled all of it."""
        self.prefixes.confirm(replica, blocks, held)

    def failed(self, replica: Replica, blocks: tuple[int, ...], held: int) -> None:
        """The attempt ended before its first token."""
        self.prefixes.withdraw(replica, blocks, held)

    def counted(self, model: str | None, prompt_bytes: int, prompt_tokens: int | None) -> None:
        """An engine has told how many tokens a prompt had."""
        self.ratio.learn(model, prompt_bytes, prompt_tokens)
