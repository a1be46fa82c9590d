"""The running requests of an engine: prefilling, decoding, and the steps at which each changes.

A decode step changes nothing for most requests, so no work is done for them. Two heaps list, by
step, the requests that end with a step and those whose token of a step begins a new block. Equal
steps are ordered by the begin of decoding. Must never touch blocks; the core holds and frees them.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace, nsmallest
from typing import Generic, TypeVar

from router.emulator.core.request import DECODING, PREFILLING, Request

R = TypeVar("R", bound=Request)


class Batch(Generic[R]):
    """The running requests of one engine core. Steps are numbered from 1."""

    __slots__ = (
        "_block_size",
        "_finishing",
        "_growing",
        "_joined",
        "context",
        "decoding",
        "prefilling",
    )

    def __init__(self, block_size: int) -> None:
        self.prefilling: dict[str, R] = {}  # in order of admission
        self.decoding: dict[str, R] = {}  # in order of their first token
        self.context = 0  # tokens of all decoding requests together
        self._block_size = block_size
        self._joined = 0
        self._finishing: list[tuple[int, int, R]] = []  # (step, order, request)
        self._growing: list[tuple[int, int, R]] = []

    def __len__(self) -> int:
        return len(self.prefilling) + len(self.decoding)

    def rows(self) -> list[R]:
        """All running requests: prefilling, then decoding, each kind in order of admission."""
        return [*self.prefilling.values(), *self.decoding.values()]

    def admit(self, request: R) -> None:
        request._state = PREFILLING
        self.prefilling[request.id] = request

    def decode(self, request: R, step: int) -> None:
        """Add a request whose prefill ended with this step, which also generated its next token."""
        del self.prefilling[request.id]
        request._state = DECODING
        self.decoding[request.id] = request
        self.context += request._target + 1
        self._joined += 1
        request._order = self._joined
        request._first_step = step - request.generated
        request._finish_step = request._first_step + request.output_tokens - 1
        heappush(self._finishing, (request._finish_step, request._order, request))
        grow_step = step + 1 + -request._target % self._block_size
        if grow_step <= request._finish_step:
            request._grow_step = grow_step
            heappush(self._growing, (grow_step, request._order, request))
        else:
            request._grow_step = 0

    def growing(self, until: int) -> R | None:
        """The next request that needs a block, if it needs one in a step up to `until`."""
        if self._growing and self._growing[0][0] <= until:
            return self._growing[0][2]
        return None

    def grown(self) -> None:
        """Record that the request of `growing` has its block, and schedule its next need."""
        step, order, request = self._growing[0]
        step += self._block_size
        if step <= request._finish_step:
            request._grow_step = step
            heapreplace(self._growing, (step, order, request))
        else:
            request._grow_step = 0
            heappop(self._growing)

    def decoded(self, steps: int) -> int:
        """Record that `steps` steps have ended, without a change of the batch; returns their
        tokens.
        """
        tokens = steps * len(self.decoding)
        self.context += tokens
        return tokens

    def finished(self, step: int) -> list[R]:
        """Remove and return the requests that generated their last token in this step."""
        ended = []
        finishing = self._finishing
        while finishing and finishing[0][0] == step:
            request = heappop(finishing)[2]
            del self.decoding[request.id]
            self.context -= request.prompt_tokens + request.output_tokens
            ended.append(request)
        return ended

    def remove(self, request: R, steps_ended: int) -> None:
        """Remove a request before its end; it keeps its generated tokens. O(batch)."""
        if request._state == PREFILLING:
            del self.prefilling[request.id]
            return
        request.generated = steps_ended - request._first_step + 1
        del self.decoding[request.id]
        self.context -= request.prompt_tokens + request.generated
        self._finishing.remove((request._finish_step, request._order, request))
        heapify(self._finishing)
        if request._grow_step:
            self._growing.remove((request._grow_step, request._order, request))
            heapify(self._growing)

    def quiet_until(self, free: int) -> int:
        """The last step before a request ends with it, or needs a block when none is free.

        For a batch that only decodes, with `free` blocks, when the needs of the current step are
        met. Each listed request takes a block every block_size steps.
        """
        last = self._finishing[0][0]
        growing = self._growing
        if growing:
            rounds, rest = divmod(free, len(growing))
            most = rounds * self._block_size
            if growing[0][0] + most <= last:
                lacking = nsmallest(rest + 1, growing)[rest][0] + most
                return min(last, lacking - 1)
        return last
