"""Predicts the time to first token of a request that reaches an engine now.

The forecast assumes that no other request arrives later. It reads the engine's true state: its
queue, its batch, its free blocks and its prefix cache. It then simulates the scheduler's steps on a
copy of these numbers: prefills in the order of the queue, a token per step for each decoding
request, and a free slot whenever a request ends. Preemption is not simulated, so the forecast is
too short if the KV cache overflows.

Benchmarks use the forecast for an oracle: a router that reads the engines' true state, which no
real router can. Must never change the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from router.lab.emulator.core.engine_core import EngineCore
from router.lab.emulator.core.request import DECODING, Request

# Maximum number of simulated steps. Decode steps that are simulated together count as one.
_STEPS_MAX = 10_000
# Assumed number of output tokens of a request that is not in the engine's queue yet.
_OUTPUT = 100


@dataclass(slots=True, eq=False)
class _Prefill:
    """A request without a first token yet."""

    start: int  # number of tokens whose KV exists
    end: int  # number of tokens to prefill, including `start`
    output: int  # number of output tokens after the one that the prefill generates
    hashes: Sequence[int]  # hashes of the prompt's full blocks


@dataclass(slots=True, eq=False)
class _Decode:
    """A decoding request."""

    left: int  # number of steps until the request ends
    blocks: int  # number of blocks that become free when it ends


def first_token_s(
    core: EngineCore[Any],
    prompt_tokens: int,
    hashes: Sequence[int],
    now: float,
    priority: int = 0,
    before: Sequence[tuple[int, Sequence[int]]] = (),
) -> float:
    """Seconds from `now` to the first token; infinity if the engine is stalled.

    `before` has the number of prompt tokens and the block hashes of further requests. They will
    reach the engine before this request and are not in the engine's queue yet.
    """
    core.settle(now)
    if core._stalled_at is not None:
        return inf
    own = _Prefill(0, prompt_tokens, 0, hashes)
    waiting: list[_Prefill] = []
    # Less urgent requests. They may lengthen the step in which the new request's prefill ends.
    behind: list[_Prefill] = []
    for request in core.queued():
        tokens = request.prompt_tokens + request.generated
        later = core.config.priority_scheduling and request.priority > priority
        (behind if later else waiting).append(
            _Prefill(0, tokens, _more(request), request.block_hashes)
        )
    waiting += [_Prefill(0, tokens, _OUTPUT, known) for tokens, known in before]
    played = _Played(core, [*waiting, own, *behind])
    seconds = _rest_s(core, now)
    for _ in range(_STEPS_MAX):
        if own in played.end_step():
            return seconds
        step_s = played.step_s()
        if step_s == inf:
            break
        seconds += step_s
    return inf


class _Played:
    """A copy of an engine's numbers, on which the engine's next steps are simulated."""

    def __init__(self, core: EngineCore[Any], waiting: list[_Prefill]) -> None:
        self._core = core
        self._size = core.kv.block_size
        self._free = core.kv.free
        self._waiting = waiting  # in the order of the queue
        self._prefilling: list[_Prefill] = []
        self._decoding: list[_Decode] = []
        self._hashes: set[int] = set()  # hashes of blocks that simulated steps computed
        for request in core.rows():
            if request._state == DECODING:
                left = request._finish_step - core.steps
                self._decoding.append(_Decode(left, len(request._blocks)))
            else:
                self._prefilling.append(
                    _Prefill(
                        request._computed, request._target, _more(request), request.block_hashes
                    )
                )

    def end_step(self) -> list[_Prefill]:
        """Free the slots and blocks of ended requests.

        Returns the requests that got their first token in this step.
        """
        self._free += sum(one.blocks for one in self._decoding if one.left <= 0)
        self._decoding = [one for one in self._decoding if one.left > 0]
        done = [one for one in self._prefilling if one.start == one.end]
        self._prefilling = [one for one in self._prefilling if one.start < one.end]
        for one in done:
            blocks = -(-(one.end + one.output) // self._size)
            if one.output > 0:
                self._decoding.append(_Decode(one.output, blocks))
            else:
                self._free += blocks
        return done

    def step_s(self) -> float:
        """Simulate the next step, or all steps until a request ends if nothing is prefilled.

        Returns the duration of the simulated steps in seconds; infinity if no request can run.
        """
        sequences = len(self._decoding)
        tokens, squares = self._prefill(self._core.config.max_num_batched_tokens - sequences)
        steps = 1
        if not tokens:
            if not sequences:
                return inf
            steps = min(one.left for one in self._decoding)
        for one in self._decoding:
            one.left -= steps
        context = self._core._scheduler.batch.context
        step_s = self._core.timing.step_s(tokens, squares, sequences, context)
        return steps * self._core.slowdown * step_s

    def _prefill(self, budget: int) -> tuple[int, int]:
        """Prefill at most `budget` tokens. Returns `tokens` and `squares` for `Timing.step_s`.

        Waiting requests are admitted while there is budget, a slot and enough free blocks for the
        whole prompt.
        """
        tokens = squares = index = 0
        while tokens < budget and (index < len(self._prefilling) or self._admit()):
            one = self._prefilling[index]
            end = min(one.end, one.start + budget - tokens)
            tokens += end - one.start
            squares += end * end - one.start * one.start
            # As in the scheduler, a later request of the same step may share these blocks.
            self._hashes.update(one.hashes[one.start // self._size : end // self._size])
            one.start = end
            index += 1
        return tokens, squares

    def _admit(self) -> bool:
        """Admit the head of the queue. False: nothing waits, or slots or blocks are lacking."""
        if not self._waiting:
            return False
        head = self._waiting[0]
        cached, blocks = self._prefix(head)
        slots = self._core.config.max_num_seqs - len(self._prefilling) - len(self._decoding)
        if slots <= 0 or blocks > self._free:
            return False
        head.start = cached
        self._free -= blocks
        self._prefilling.append(self._waiting.pop(0))
        return True

    def _prefix(self, one: _Prefill) -> tuple[int, int]:
        """Number of cached tokens of a waiting request, and of free blocks that it would take."""
        kv, size = self._core.kv, self._size
        blocks = -(-one.end // size)
        if not self._core.config.prefix_caching:
            return 0, blocks
        most = (one.end - 1) // size  # The last token is computed even if it is cached.
        hits = kv.match(one.hashes, most)
        count = len(hits)
        while count < min(most, len(one.hashes)) and one.hashes[count] in self._hashes:
            count += 1
        return size * count, blocks - count + kv.idle(hits)


def _rest_s(core: EngineCore[Any], now: float) -> float:
    """Seconds until the current step ends."""
    leap = core._leap
    if not leap.steps:
        return 0.0
    end = leap.end if leap.steps == 1 else leap.end_of(leap.under_way(now))
    return max(end - now, 0.0)


def _more(request: Request) -> int:
    """Number of output tokens that the request generates after its next one."""
    return max(request.output_tokens - request.generated - 1, 0)
