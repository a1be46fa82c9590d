"""The number that reports a request's urgency to an engine.

vLLM and SGLang compare the numbers of requests that were sent at different times. A number that
says only the class lets every later request of a higher class go first, without end. So these
engines get a *virtual deadline*: the wall-clock time of the arrival plus an offset.

    level     half of queue.batch_becomes_normal_after, from 1 s to 1 day: 300 s at the default
    offset    (urgency - 2) levels; critical goes another 3,600 s ahead

The deadline is fixed at the arrival. Retries, requeued requests and second copies get the same
number, and several routers agree as far as their clocks do. It follows that:

- within a class and at equal steps, the request that arrived first is the more urgent one;
- a request of a lower class is overtaken only by requests that arrive within the difference of
  the offsets after it: a normal one by high ones for 300 s at the default.

    dialect           number                                           normal and high, together
    vllm              the deadline in tenths of a second, lower first  differ by 3000
    sglang            the deadline in units of 15 s, higher first      differ by 20
    sglang-low-first  the same, lower first                            differ by 20
    trtllm            0 to 1, higher first; a class is 0.2             0.5 and 0.7

SGLang: a new request displaces a running one that is worse by more than 10 (the default of
--priority-scheduling-preemption-threshold). Requests of one class that arrive within 15 s differ
by 10 at most. Requests of two classes that arrive together differ by more than 10. Equal numbers
are served in the order in which they came to the engine (0.5.23, `_sort_by_priority_and_fcfs`).

SGLang with --enable-metrics makes each number a Prometheus label and keeps all of them (0.5.23;
sglang issue 20814). Numbers that follow the time would fill its memory. Such an engine gets the
offset without the arrival time: at most 45 different numbers. Then the order of arrival within a
class and step is the engine's own, and a lower class waits as long as a higher one fills the
engine. The same holds for TensorRT-LLM, whose number is bounded.

Numbers stay below 2**31 for vLLM until 2032; the engines take 64 bits.

Pure. Must never: read a clock.
"""

from __future__ import annotations

from typing import Final

from router.core.urgency import CRITICAL, NORMAL, class_of

EPOCH: Final = 1_767_225_600.0  # 2026-01-01 00:00 UTC, in seconds since 1970
CRITICAL_AHEAD_S: Final = 3600.0
LEAST_LEVEL_S: Final = 1.0
MOST_LEVEL_S: Final = 86_400.0  # also where waiting requests do not become more urgent

_VLLM_PER_S: Final = 10.0
_SGLANG_UNIT_S: Final = 15.0
_SGLANG_CLASS: Final = 20.0  # units; the ends of two classes stay 12 apart
_SGLANG_WITHIN: Final = 8.0  # units from one end of a class to the other; the threshold is 10
_TRTLLM_CLASS: Final = 0.2


def level_s(aging: float) -> float:
    """Seconds of waiting that make up for one class; `aging` is in classes a second."""
    if aging <= 0.0:
        return MOST_LEVEL_S
    return min(MOST_LEVEL_S, max(LEAST_LEVEL_S, 1.0 / aging))


def deadline_number(urgency: float, arrived: float, level: float) -> int:
    """vLLM's number. `arrived` is in seconds since 1970, `level` comes from `level_s`."""
    due = arrived - EPOCH + (urgency - NORMAL) * level
    if class_of(urgency) == CRITICAL:
        due -= CRITICAL_AHEAD_S
    return round(due * _VLLM_PER_S)


def sglang_number(urgency: float, arrived: float, level: float) -> int:
    """SGLang's number, lower first. With `arrived` at EPOCH it is the offset alone."""
    rank = class_of(urgency)
    gap = max(_SGLANG_CLASS, level / _SGLANG_UNIT_S)
    units = (arrived - EPOCH) / _SGLANG_UNIT_S
    units += (rank - NORMAL) * gap + (urgency - rank) * _SGLANG_WITHIN
    if rank == CRITICAL:
        units -= CRITICAL_AHEAD_S / _SGLANG_UNIT_S
    return round(units)


def trtllm_number(urgency: float) -> float:
    """TensorRT-LLM's number: normal is 0.5."""
    return min(1.0, max(0.0, 0.5 + (NORMAL - urgency) * _TRTLLM_CLASS))


def number_for(
    dialect: str, is_bounded: bool, urgency: float, arrived: float, level: float
) -> bytes:
    """The number as JSON; b"" for a dialect that has none.

    `is_bounded`: an engine that must not get ever new numbers; see above.
    """
    if dialect == "vllm":
        return b"%d" % deadline_number(urgency, arrived, level)
    if dialect == "trtllm":
        return b"%.4f" % trtllm_number(urgency)
    if is_bounded:
        arrived, level = EPOCH, LEAST_LEVEL_S
    if dialect == "sglang":
        return b"%d" % -sglang_number(urgency, arrived, level)
    if dialect == "sglang-low-first":
        return b"%d" % sglang_number(urgency, arrived, level)
    return b""
