"""Send a request to a replica that holds most of its prompt, else to the cheapest (Preble's E2).

Source: Preble (ICLR'25, arXiv 2407.00023; WukLab/preble). If a request's longest match is longer
than the rest of its prompt, it goes to the least loaded of the replicas that hold that prefix (its
owners). Otherwise it goes to the replica with the lowest sum L + M + P, all in seconds:

    L  load: prefill dispatched in the last 3 minutes + requests under way x mean output x TPOT
    M  eviction to store the missed tokens: their prefill x the recently used share of the cache
    P  prefill of the missed tokens

An owner is not used in two cases: its time to first token doubled from the older to the newer half
of the window (it gets too many requests of this prefix), or its load is `rebalance` times the least
load.

Preble keeps counts for each node of a radix tree. Here counts are kept for each replica and each
part of the window, so the size of the fleet bounds their number. The miss rate is the measured one,
and the owners come from the router's index (`ctx.held`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from policies.contract import (
    C,
    Candidate,
    Context,
    Pick,
    PolicyConfigError,
    RequestView,
    RoutingPolicy,
    policy,
)
from policies.routing.prompts import prompt_tokens, uncached_tokens
from policies.routing.ties import draw, lowest

_PARTS = 18  # number of parts of a window; even, because halves are compared
# A replica is hot if its TTFT grew by this factor from the older to the newer half of the window.
_HOT = 2.0
_SAMPLES = 5  # minimum number of samples in each half of the window to call a replica hot
_SHARE = 0.02  # weight of one finished request in the mean number of output tokens


class _Part:
    """The tokens sent to one replica, and its times to first token, in one part of the window."""

    __slots__ = ("answers", "number", "tokens", "ttft_s")

    def __init__(self, number: int) -> None:
        self.number = number
        self.tokens = 0
        self.ttft_s = 0.0
        self.answers = 0


class _Window:
    """The parts of one replica's window, the oldest first."""

    __slots__ = ("parts", "tokens")

    def __init__(self) -> None:
        self.parts: deque[_Part] = deque()
        self.tokens = 0  # tokens sent to the replica, summed over all parts of the window

    def forget(self, number: int) -> None:
        """Drop the parts that are outside the window when `number` is the current part."""
        parts = self.parts
        while parts and parts[0].number <= number - _PARTS:
            self.tokens -= parts.popleft().tokens

    def part(self, number: int) -> _Part:
        if not self.parts or self.parts[-1].number < number:
            self.forget(number)
            self.parts.append(_Part(number))
        return self.parts[-1]

    def is_hot(self, number: int) -> bool:
        old_s = new_s = 0.0
        old = new = 0
        for part in self.parts:
            if part.number <= number - _PARTS // 2:
                old_s += part.ttft_s
                old += part.answers
            else:
                new_s += part.ttft_s
                new += part.answers
        return old >= _SAMPLES and new >= _SAMPLES and new_s * old >= _HOT * old_s * new


@policy("preble")
@dataclass(slots=True)
class Preble(RoutingPolicy):
    """The least loaded replica that holds most of the prompt; if there is none, the replica with
    the least cost in seconds.
    """

    window_s: float = 180.0  # The length of the window for loads and times, in seconds.
    prefill_rate: float = 10_000.0  # Prompt tokens that one replica prefills in a second.
    tpot_s: float = 0.03  # Seconds per output token of a replica whose own value is unknown.
    # An owner whose load exceeds this many times the least load is not used.
    rebalance: float = 15.0

    _windows: dict[str, _Window] = field(default_factory=dict, init=False, repr=False)
    _output: float = field(default=200.0, init=False, repr=False)  # mean output tokens

    def __post_init__(self) -> None:
        for option in ("window_s", "prefill_rate", "tpot_s"):
            if not 0.0 < getattr(self, option) < float("inf"):
                raise PolicyConfigError(f"{option} must be above 0", option)
        if not 1.0 <= self.rebalance < float("inf"):
            raise PolicyConfigError("rebalance must be a factor, 1 or more", "rebalance")

    def pick(self, view: RequestView, candidates: Sequence[C], ctx: Context) -> Pick[C]:
        number = self._number(ctx)
        loads, sent = self._loads(candidates, number)
        tokens = prompt_tokens(view)
        held = ctx.held
        deepest = max([held.get(c, 0) for c in candidates]) if held else 0
        if deepest * view.block_tokens > tokens / 2.0:
            own = tokens / self.prefill_rate + self._output * self.tpot_s
            most = self.rebalance * max(min(loads), own)
            owners = [
                index
                for index, c in enumerate(candidates)
                if held.get(c) == deepest and loads[index] <= most and not self._is_hot(c, number)
            ]
            if owners:
                tied = lowest([candidates[i] for i in owners], [loads[i] for i in owners])
                return Pick(draw(tied, ctx.rng), "exploit")
        missed = [tokens] * len(candidates)
        if deepest:
            missed = [uncached_tokens(view, held.get(c, 0)) for c in candidates]
        costs = []
        for c, load, tokens_sent, miss in zip(candidates, loads, sent, missed, strict=True):
            evicts = 0.0  # share of the evicted tokens that were used within the window
            if c.kv_tokens and tokens_sent:
                evicts = min(tokens_sent / c.kv_tokens, 1.0)
            costs.append(load + miss * (1.0 + evicts) / self.prefill_rate)
        return Pick(draw(lowest(candidates, costs), ctx.rng), "explore")

    def _number(self, ctx: Context) -> int:
        return int(ctx.now * _PARTS / self.window_s)

    def _loads(self, candidates: Sequence[Candidate], number: int) -> tuple[list[float], list[int]]:
        """Return, for each candidate, the load L in seconds and the uncached tokens that were sent
        to it in the window."""
        windows, output, usual_s = self._windows, self._output, self.tpot_s
        rate = self.prefill_rate
        loads, sent = [], []
        for c in candidates:
            tokens = 0
            window = windows.get(c.id)
            if window is not None:
                window.forget(number)
                tokens = window.tokens
            sent.append(tokens)
            tpot_s = usual_s if c.tpot_s is None else c.tpot_s
            loads.append((tokens / rate + c.load * output * tpot_s) / c.weight)
        return loads, sent

    def _is_hot(self, candidate: Candidate, number: int) -> bool:
        window = self._windows.get(candidate.id)
        return window is not None and window.is_hot(number)

    def on_dispatch(self, view: RequestView, candidate: Candidate, ctx: Context) -> None:
        tokens = round(uncached_tokens(view, ctx.held.get(candidate, 0)))
        window = self._windows.setdefault(candidate.id, _Window())
        window.part(self._number(ctx)).tokens += tokens
        window.tokens += tokens

    def on_first_token(
        self, view: RequestView, candidate: Candidate, ttft_s: float, ctx: Context
    ) -> None:
        window = self._windows.get(candidate.id)
        if window is not None:  # None: the replica was removed
            part = window.part(self._number(ctx))
            part.ttft_s += ttft_s
            part.answers += 1

    def on_finish(
        self, view: RequestView, candidate: Candidate, output_tokens: int | None, ctx: Context
    ) -> None:
        if output_tokens is not None:
            self._output += _SHARE * (output_tokens - self._output)

    def on_fleet_change(self, replica_ids: frozenset[str]) -> None:
        self._windows = {id: w for id, w in self._windows.items() if id in replica_ids}
