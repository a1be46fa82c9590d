"""The time to first token of a request that would reach an engine now, if no other one came later.

The forecast is made from the engine's true state: its queue, its batch, its free blocks and its
prefix cache. It plays the scheduler's steps on copied numbers: prefills in the order of the queue,
a token for each decoding request, a new place whenever one ends. Preemption is not played, so the
forecast is too short where the KV cache overflows.

A bench uses it for an oracle, a router that sees what a real one cannot. Must never: change the
engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import inf

from router.emulator.core.engine_core import EngineCore
from router.emulator.core.request import DECODING, Request
from router.emulator.core.step_time import step_s

_STEPS_MAX = 10_000  # played steps; decode steps without another change count as one
_OUTPUT = 100  # output tokens of a request that has not arrived, which nobody knows


@dataclass(slots=True)
class _Prefill:
    """A request without a first token yet."""

    start: int  # tokens of its KV that exist
    end: int  # tokens to prefill
    output: int  # output tokens after its first one
    hashes: Sequence[int]  # of the prompt's full blocks
    is_own: bool = False


@dataclass(slots=True)
class _Decode:
    """A decoding request."""

    left: int  # steps until it ends
    blocks: int  # blocks that its end frees


def first_token_s(
    core: EngineCore[Request],
    prompt_tokens: int,
    hashes: Sequence[int],
    now: float,
    priority: int = 0,
    before: Sequence[tuple[int, Sequence[int]]] = (),
) -> float:
    """Seconds from `now` to the first token; infinity if the engine is stalled.

    `before`: prompt tokens and block hashes of requests that will reach the engine before this one
    and are not in its queue yet.
    """
    core.settle(now)
    if core._stalled_at is not None:
        return inf
    size = core.kv.block_size
    step = core.steps
    decoding: list[_Decode] = []
    begun: list[_Prefill] = []
    free = core.kv.free
    for request in core.rows():
        if request._state == DECODING:
            decoding.append(_Decode(request._finish_step - step, len(request._blocks)))
        else:
            begun.append(
                _Prefill(request._computed, request._target, _more(request), request.block_hashes)
            )
    waiting: list[_Prefill] = []
    own = _Prefill(0, prompt_tokens, 0, hashes, is_own=True)
    played: set[int] = set()  # hashes of the blocks that the played steps computed
    behind: list[_Prefill] = []  # They may fill the step in which the own prefill ends.
    for request in core.queued():
        tokens = request.prompt_tokens + request.generated
        later = core.config.priority_scheduling and request.priority > priority
        (behind if later else waiting).append(
            _Prefill(0, tokens, _more(request), request.block_hashes)
        )
    waiting += [_Prefill(0, tokens, _OUTPUT, known) for tokens, known in before]
    waiting += [own, *behind]
    seconds = _rest_s(core, now)
    for _ in range(_STEPS_MAX):
        # The boundary: ended requests free their places.
        ended = [one for one in decoding if one.left <= 0]
        free += sum(one.blocks for one in ended)
        decoding = [one for one in decoding if one.left > 0]
        for one in [one for one in begun if one.start == one.end]:
            begun.remove(one)
            if one.is_own:
                return seconds
            if one.output > 0:
                decoding.append(_Decode(one.output, -(-(one.end + one.output) // size)))
            else:
                free += -(-one.end // size)
        budget = core.config.max_num_batched_tokens - len(decoding)
        tokens = squares = 0
        chunks: list[tuple[_Prefill, int]] = []
        for one in begun:
            chunk = min(one.end - one.start, budget)
            if chunk <= 0:
                break
            chunks.append((one, chunk))
            played.update(one.hashes[one.start // size : (one.start + chunk) // size])
            budget -= chunk
        while waiting and budget > 0:
            head = waiting[0]
            blocks = _find_prefix(core, head, played)
            if len(begun) + len(decoding) >= core.config.max_num_seqs or blocks > free:
                break
            begun.append(waiting.pop(0))
            free -= blocks
            chunk = min(head.end - head.start, budget)
            chunks.append((head, chunk))
            # As in the scheduler, the next request of this step may share these blocks.
            played.update(head.hashes[head.start // size : (head.start + chunk) // size])
            budget -= chunk
        steps = 1
        if chunks:
            for one, chunk in chunks:
                squares += (one.start + chunk) ** 2 - one.start**2
                tokens += chunk
                one.start += chunk
        elif decoding:
            steps = min(one.left for one in decoding)  # nothing can begin before one of them ends
        else:
            return inf
        seconds += steps * _step_s(core, tokens, squares, len(decoding))
        for running in decoding:
            running.left -= steps
    return inf


def _rest_s(core: EngineCore[Request], now: float) -> float:
    """Seconds until the current step ends."""
    leap = core._leap
    if not leap.steps:
        return 0.0
    end = leap.end if leap.steps == 1 else leap.end_of(leap.under_way(now))
    return max(end - now, 0.0)


def _step_s(core: EngineCore[Request], tokens: int, squares: int, sequences: int) -> float:
    timing = core.timing
    return core.slowdown * step_s(
        timing.prefill_s,
        timing.prefill_token_s,
        timing.prefill_square_s,
        timing.decode_s,
        timing.decode_sequence_s,
        timing.decode_context_s,
        tokens,
        squares,
        sequences,
        core._scheduler.batch.context if sequences else 0,
    )


def _more(request: Request) -> int:
    return max(request.output_tokens - request.generated - 1, 0)


def _find_prefix(core: EngineCore[Request], one: _Prefill, played: AbstractSet[int]) -> int:
    """Set the start of a prefill to the end of its cached prefix; returns the blocks it takes."""
    size = core.kv.block_size
    if not core.config.prefix_caching:
        return -(-one.end // size)
    most = (one.end - 1) // size  # The last token is always computed.
    hits = core.kv.match(one.hashes, most)
    count = len(hits)
    while count < min(most, len(one.hashes)) and one.hashes[count] in played:
        count += 1
    one.start = size * count
    return -(-one.end // size) - count + core.kv.idle(hits)
