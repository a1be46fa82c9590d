"""The running requests of an engine: those that prefill and those that decode.

A decode step changes nothing for most requests, so it does no work for them. One heap orders the
requests by the step that generates their last token. A second heap orders them by the step in
which they need their next KV block. Requests with equal steps are ordered by the begin of their
decoding. This module must never touch blocks; the scheduler holds and frees them.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace, nsmallest
from typing import Generic, TypeVar

from router.lab.emulator.core.request import DECODING, PREFILLING, Request

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
        # Heaps of (step, order of the begin of decoding, request).
        self._finishing: list[tuple[int, int, R]] = []
        self._growing: list[tuple[int, int, R]] = []

    def __len__(self) -> int:
        return len(self.prefilling) + len(self.decoding)

    def rows(self) -> list[R]:
        """All running requests: first those that prefill, then those that decode.

        Both groups are in order of admission.
        """
        return [*self.prefilling.values(), *self.decoding.values()]

    def admit(self, request: R) -> None:
        request._state = PREFILLING
        self.prefilling[request.id] = request

    def decode(self, request: R, step: int) -> None:
        """Let a request decode from now on, because its prefill ended in `step`.

        The same step generated the request's next token.
        """
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
        """The request that needs a KV block next. None: no request needs one up to step `until`."""
        if self._growing and self._growing[0][0] <= until:
            return self._growing[0][2]
        return None

    def grown(self) -> None:
        """Record that the request returned by `growing` got a block; find when it needs another."""
        step, order, request = self._growing[0]
        step += self._block_size
        if step <= request._finish_step:
            request._grow_step = step
            heapreplace(self._growing, (step, order, request))
        else:
            request._grow_step = 0
            heappop(self._growing)

    def decoded(self, steps: int) -> int:
        """Record that `steps` decode steps ended without a change of the batch.

        Returns the number of tokens that these steps generated.
        """
        tokens = steps * len(self.decoding)
        self.context += tokens
        return tokens

    def finished(self, step: int) -> list[R]:
        """Remove and return the requests that generated their last token in `step`."""
        ended = []
        finishing = self._finishing
        while finishing and finishing[0][0] == step:
            request = heappop(finishing)[2]
            del self.decoding[request.id]
            self.context -= request.prompt_tokens + request.output_tokens
            ended.append(request)
        return ended

    def remove(self, request: R, steps_ended: int) -> None:
        """Remove a request before its end and store how many tokens it generated. O(batch)."""
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
        """The last step for which the batch stays the same.

        This is the step in which the first request ends, or an earlier one: the last step for which
        the `free` blocks suffice. All requests must decode, and the blocks of the current step must
        be taken already. Each request in `_growing` takes a block every `block_size` steps.
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
