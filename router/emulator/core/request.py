"""One request of an engine core. Plain values; `core` does the work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mypy_extensions import mypyc_attr

from router.emulator.core.kv import Block

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
        self.generated = 0  # output tokens, final at the end; before, use `EngineCore.generated`
        self.preemptions = 0
        self.started_at = 0.0  # time of the first admission, in seconds
        self._state = NEW
        self._place = (0, 0.0, 0)  # in the queue: rank, arrival, order of arrival; higher is later
        self._target = 0  # tokens to prefill: the prompt, plus its output when it was preempted
        self._computed = 0  # tokens of `_target` whose KV exists or is computed in this step
        self._chunk = 0  # tokens of `_computed` that are computed in this step
        self._blocks: list[Block] = []
        self._promised = 0  # blocks reserved for the request; 0 unless output is reserved
        # the step that generated its first token, as if it was never preempted
        self._first_step = 0
        self._grow_step = 0  # the next step that needs another block; 0: none
        self._finish_step = 0
        self._order = 0  # order of the request among the decoding requests

    @property
    def computed(self) -> int:
        """Uncached prompt tokens computed so far, including tokens of the current step."""
        return max(0, min(self._computed, self.prompt_tokens) - self.cached_tokens)

    @property
    def first_step(self) -> int:
        """The step that generated the request's first token; 0: no token so far."""
        return self._first_step
