"""One request of an engine core. This class only stores values; the core reads and changes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mypy_extensions import mypyc_attr

from router.lab.emulator.core.kv import Block

# States of a request.
NEW: Final = 0
WAITING: Final = 1
PREFILLING: Final = 2
DECODING: Final = 3
ENDED: Final = 4


@mypyc_attr(allow_interpreted_subclasses=True)
class Request:
    """One request. The caller fills the first group of fields; the second group belongs to the
    core.

    `output_tokens` is the number of tokens to generate (0: none, as for an embedding).
    `block_hashes` are the chained hashes of the full blocks of the prompt and, if known, of the
    output. `token_ids` are the same tokens as numbers; only KV events need them.
    """

    __slots__ = (
        "_blocks",
        "_chunk",
        "_computed",
        "_finish_step",
        "_first_step",
        "_grow_step",
        "_order",
        "_place",
        "_promised",
        "_state",
        "_target",
        "arrival",
        "block_hashes",
        "cache_salt",
        "cached_tokens",
        "generated",
        "id",
        "output_tokens",
        "preemptions",
        "priority",
        "prompt_tokens",
        "started_at",
        "token_ids",
    )

    def __init__(
        self,
        id: str,
        prompt_tokens: int,
        output_tokens: int,
        block_hashes: Sequence[int] = (),
        priority: int = 0,
        token_ids: Sequence[int] = (),
        cache_salt: str | None = None,
    ) -> None:
        self.id = id
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.block_hashes = block_hashes
        self.priority = priority  # a lower number is scheduled earlier
        self.token_ids = token_ids
        self.cache_salt = cache_salt

        self.arrival = 0.0
        self.cached_tokens = 0  # prompt tokens taken from the prefix cache at the first admission
        # Number of output tokens, set at the end. Before the end, call `EngineCore.generated`.
        self.generated = 0
        self.preemptions = 0
        self.started_at = 0.0  # time of the first admission, in seconds
        self._state = NEW
        # Order in the queue: (rank, arrival time, number of the arrival). The lowest is first.
        self._place = (0, 0.0, 0)
        self._target = 0  # tokens to prefill: the prompt, plus its output when it was preempted
        self._computed = 0  # tokens of `_target` whose KV exists or is computed in this step
        self._chunk = 0  # tokens of `_computed` that are computed in this step
        self._blocks: list[Block] = []
        self._promised = 0  # blocks reserved for the request; 0 without `reserve_output`
        # The step that would have generated the first token if the request had run without
        # preemption since then.
        self._first_step = 0
        self._grow_step = 0  # the next step in which the request needs another block; 0: none
        self._finish_step = 0
        self._order = 0  # a later beginning of decoding has a higher number

    @property
    def computed(self) -> int:
        """Uncached prompt tokens computed so far, including tokens of the current step."""
        return max(0, min(self._computed, self.prompt_tokens) - self.cached_tokens)

    @property
    def first_step(self) -> int:
        """The step that generated the request's first token; 0: no token so far."""
        return self._first_step
