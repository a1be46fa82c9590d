"""Finds how many leading blocks of a prompt each replica has in its prefix cache.

The answer comes from two indexes. The approximate index of sent prompts always exists. The exact
index gets the engines' KV events; it is opt-in, and used for requests whose token IDs are known in
time. It replaces the approximate index for a replica only where its knowledge is proven to be
complete; otherwise the larger number of blocks counts. The results are in blocks of
`prefix.block_bytes` bytes. The module also estimates the number of tokens of a prompt.

Must never: do I/O, or make a request wait.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from policies.contract import RequestView
from router.config.model import Prefix as Rules
from router.fleet.listed import ANY
from router.fleet.prefix.exact import ExactPrefixes
from router.fleet.prefix.index import SHARDS, PrefixIndex
from router.fleet.prefix.token_ratio import TokenRatio
from router.fleet.replica import Replica

_NOBODY: Final[Mapping[Replica, int]] = {}
# A replica's capacity in the index is updated only if it changes by more than this share.
_WORTH: Final = 0.05
# The latest blocks count beside the exact index, up to this part of a replica's cache. Their KV
# events come only after the prefill, and a cache does not evict its latest blocks.
_RECENT: Final = 16


class PrefixLookup:
    """The router's view of the replicas' prefix caches."""

    def __init__(self, rules: Rules, shards: int = SHARDS) -> None:
        """`shards`: number of dicts in the prefix index."""
        self.rules = rules
        self.prefixes: PrefixIndex[Replica] = PrefixIndex(rules.entries, shards)
        # The latest part of `prefixes`, for which no KV event may have arrived yet.
        self._recent: PrefixIndex[Replica] | None = (
            PrefixIndex(rules.entries // _RECENT, shards) if rules.exact else None
        )
        # Both, for what concerns a replica.
        self._indexes = [self.prefixes] if self._recent is None else [self.prefixes, self._recent]
        self.ratio = TokenRatio()
        self.exact: ExactPrefixes | None = None  # None: `prefix.exact` is off
        # Called with each prompt that is sent, as `sent`, to tell other routers; None: there is
        # none.
        self.tell: Callable[[Replica, tuple[int, ...], int], None] | None = None
        self._capacities: dict[Replica, int] = {}

    # -- replicas -----------------------------------------------------------------------------

    def add(self, replica: Replica) -> None:
        self.add_all((replica,))

    def add_all(self, replicas: Sequence[Replica]) -> None:
        for index in self._indexes:
            index.add_replicas(replicas)
        for replica in replicas:
            self.sized(replica)

    def remove_all(self, replicas: Sequence[Replica]) -> None:
        for index in self._indexes:
            index.remove_replicas(replicas)
        for replica in replicas:
            self._capacities.pop(replica, None)

    def restarted(self, replica: Replica) -> None:
        """Clear the replica's entries: its engine restarted, so its cache is empty."""
        for index in self._indexes:
            index.clear(replica)

    def sized(self, replica: Replica) -> None:
        """Update a replica's capacity from its KV cache size and the measured bytes per token."""
        tokens = replica.kv_tokens or self.rules.kv_tokens
        model = min(replica.models - {ANY}, default=None) if replica.models else None
        blocks = int(tokens * self.ratio.of(model) / self.rules.block_bytes)
        known = self._capacities.get(replica)
        if known is None or abs(blocks - known) > _WORTH * known:
            self._capacities[replica] = blocks
            self.prefixes.set_capacity(replica, blocks)
            if self._recent is not None:
                self._recent.set_capacity(replica, blocks // _RECENT)

    def tend(self) -> None:
        """Free the memory of removed replicas, a little with each call."""
        for index in self._indexes:
            index.tend()

    # -- requests -----------------------------------------------------------------------------

    def measure(
        self,
        view: RequestView,
        blocks: tuple[int, ...],
        prompt_bytes: int,
        account: str | None = None,
    ) -> None:
        """Store a prompt's blocks and its estimated number of tokens in the request's view.

        `account`: the account of the request; `None`: the ratio of all accounts is used.
        """
        model = view.model
        ratio = self.ratio.of(model) if account is None else self.ratio.of_account(account, model)
        view.prompt_bytes = prompt_bytes
        view.blocks = blocks
        view.prompt_tokens = int(prompt_bytes / ratio)
        view.block_tokens = self.rules.block_bytes / ratio

    def held(self, view: RequestView) -> Mapping[Replica, int]:
        """Return for each replica how many leading blocks of the request it holds.

        Replicas that hold none are absent.
        """
        if not view.blocks:
            return _NOBODY
        roughly = self.prefixes.match(view.blocks)
        exact = self.exact
        if exact is None or view.chains is None:
            return roughly
        held = exact.refined(roughly, view.chains, view.block_tokens)
        if self._recent is not None:
            for replica, depth in self._recent.match(view.blocks).items():
                held[replica] = max(depth, held.get(replica, 0))
        return held

    def sent(self, replica: Replica, blocks: tuple[int, ...], held: int) -> None:
        self.prefixes.insert(replica, blocks, held)
        if self._recent is not None:
            self._recent.insert(replica, blocks)
        if self.tell is not None:
            self.tell(replica, blocks, held)

    def begun(self, replica: Replica, blocks: tuple[int, ...], held: int) -> None:
        """Record the first token: the replica has prefilled the whole prompt."""
        self.prefixes.confirm(replica, blocks, held)
        if self._recent is not None:
            self._recent.confirm(replica, blocks)

    def failed(self, replica: Replica, blocks: tuple[int, ...], held: int) -> None:
        """Record that an attempt ended before its first token, so the prompt may not be held."""
        self.prefixes.withdraw(replica, blocks, held)
        if self._recent is not None:
            self._recent.withdraw(replica, blocks)

    def counted(
        self,
        model: str | None,
        prompt_bytes: int,
        prompt_tokens: int | None,
        account: str | None = None,
    ) -> None:
        """Learn from an engine's report of the number of tokens in a prompt."""
        self.ratio.learn(model, prompt_bytes, prompt_tokens, account)
