"""The duration of an engine's step, from coefficients fitted to real engines.

    prefill of L tokens    a + b*L + c*L^2
    decode step            d0 + d1*B + d2*ctx     (B sequences, ctx = their context tokens together)

A step may prefill and decode. Its constant part (a or d0, one pass over the weights) then counts
once, not twice; the other parts are added. A prefill after a cached prefix of P tokens costs
b*(L-P) + c*(L^2-P^2): the prefix is not computed, but the new tokens still attend to it. With this
formula the chunks of one prefill cost the same in total, however the prefill is divided.

All times are in seconds, and all lengths in tokens.

`CoreConfig`: the configuration of one engine core.

This file is not compiled: a frozen dataclass compiled by mypyc cannot be unpickled. Timing and
configuration are pickled when a simulation runs in another process.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

from router.lab.emulator.core.leap import step_s

_MS = 1e-3


@dataclass(frozen=True, slots=True)
class Timing:
    """Coefficients of one model on one machine, for the formulas in the module's docstring."""

    prefill_s: float  # a
    prefill_token_s: float  # b
    prefill_square_s: float  # c
    decode_s: float  # d0
    decode_sequence_s: float  # d1
    decode_context_s: float  # d2

    def step_s(self, tokens: int, squares: int, sequences: int, context: int) -> float:
        """Duration, in seconds, of a step that prefills `tokens` tokens and decodes `sequences`
        sequences.

        `squares` is the sum of end^2 - start^2 over the prefill chunks. `context` is the sum of the
        decoding sequences' lengths in tokens.
        """
        return step_s(
            self.prefill_s,
            self.prefill_token_s,
            self.prefill_square_s,
            self.decode_s,
            self.decode_sequence_s,
            self.decode_context_s,
            tokens,
            squares,
            sequences,
            context,
        )

    def scaled(self, factor: float) -> Timing:
        """The same coefficients with every time multiplied by `factor`."""
        return Timing(
            self.prefill_s * factor,
            self.prefill_token_s * factor,
            self.prefill_square_s * factor,
            self.decode_s * factor,
            self.decode_sequence_s * factor,
            self.decode_context_s * factor,
        )

    def text(self) -> str:
        """`a,b,c,d0,d1,d2` in milliseconds and tokens, as `hedgerow replay --timing` reads them."""
        return ",".join(f"{1e3 * coefficient:.6g}" for coefficient in astuple(self))

    def prefill_alone_s(self, tokens: int, cached: int = 0) -> float:
        """Seconds to the first token on an idle engine that prefills in one step."""
        return self.step_s(tokens - cached, tokens * tokens - cached * cached, 0, 0)


def _fitted(a: float, b: float, c: float, d0: float, d1: float, d2: float) -> Timing:
    return Timing(a * _MS, b * _MS, c * _MS, d0 * _MS, d1 * _MS, d2 * _MS)


_LLAMA2_70B_A100X8 = _fitted(37.5, 0.107, 9.5e-6, 44.1, 0.211, 3.2e-4)
# An eighth of the measured model (69.0e9 parameters on eight cards) is about as large as a model of
# 8.03e9 parameters on one card. The result still includes the communication between eight cards, so
# a real single card decodes faster. Routing depends mainly on the ratio of prefill to decode.
_CARD = 8.03e9 / (69.0e9 / 8)

# The coefficients are fitted by least squares to measured engine timings, in ms and tokens. The
# prefill coefficients use only measurements with batch size 1 and at most 8192 tokens. The mean
# error is 2 to 12 % for prefill and 2 % for decode.
PROFILES: dict[str, Timing] = {
    "llama2-70b-a100x8": _LLAMA2_70B_A100X8,
    "llama2-70b-a100x4": _fitted(39.0, 0.165, 1.4e-5, 43.4, 0.224, 3.4e-4),
    "llama2-70b-h100x8": _fitted(26.3, 0.0573, 5.3e-6, 29.8, 0.208, 1.7e-4),
    "llama2-70b-h100x4": _fitted(14.2, 0.0964, 2.1e-6, 28.8, 0.282, 0.9e-4),
    "bloom-176b-a100x8": _fitted(64.8, 0.189, 3.0e-5, 47.8, 0.465, 4.4e-4),
    "realistic": _LLAMA2_70B_A100X8.scaled(_CARD),  # an 8B model on one A100
    # A small model on a fast card, convenient for demonstrations: about 80 tokens/s per stream.
    "fast": _fitted(20.0, 0.01, 0.0, 12.0, 0.05, 0.0),
    # Steps take no modelled time: the engine runs as fast as the process can.
    "instant": _fitted(0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
}
DEFAULT_PROFILE = "fast"


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreConfig:
    """The configuration of one engine core. The sizes have vLLM's names."""

    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    num_blocks: int = 8192
    block_size: int = 16
    priority_scheduling: bool = False
    prefix_caching: bool = True
    token_events: bool = True  # False: the core reports only first tokens and ends of requests
    # True: all KV blocks of a request are reserved at its admission, and no request is preempted.
    reserve_output: bool = False
    # A new request may preempt running requests whose priority numbers are higher than its own by
    # more than this. None: a new request preempts no other request.
    preempt_advantage: int | None = None
    kv_events: bool = False  # True: `EngineCore.kv_log` records changes of the prefix cache
    # True: consecutive decode steps are one event while they change only counters.
    leap: bool = False

    def __post_init__(self) -> None:
        if self.max_num_seqs < 1:
            raise ValueError("max_num_seqs must be at least 1")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError("max_num_batched_tokens must be at least max_num_seqs")
        if self.num_blocks < 1 or self.block_size < 1:
            raise ValueError("num_blocks and block_size must be at least 1")
        if self.leap and self.token_events:
            raise ValueError("to leap is to report no token: it needs token_events off")
