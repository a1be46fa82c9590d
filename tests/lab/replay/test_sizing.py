"""The estimated size of a fleet, compared with capacities that are computed by hand."""

from __future__ import annotations

import pytest

from router.lab.emulator.core.timing import PROFILES, Timing
from router.lab.replay.sizing import REPLICAS_MAX, UTILISATION, replicas_for
from router.lab.simulator.traffic import Arrival

PREFILL_ONLY = Timing(0.0, 1e-3, 0.0, 0.0, 0.0, 0.0)  # a millisecond per prompt token
DECODE_ONLY = Timing(0.0, 0.0, 0.0, 0.01, 0.0, 0.0)  # ten milliseconds a step


def size(timing: Timing, prompt: int, output: int, rate: float, **more: float) -> int:
    traffic = [Arrival(n, n / rate, prompt, output) for n in range(10)]
    limits = {"kv_tokens": 10**9, "max_num_seqs": 10, "tpot_s": 0.1} | more
    return replicas_for(traffic, timing, rate=rate, **limits)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "seconds_of_work"),
    [
        (size(PREFILL_ONLY, 1000, 0, 7.0), 7.0),  # seven requests/s that take a second each
        (size(DECODE_ONLY, 1, 100, 70.0), 7.0),  # a second each, ten at a time
        (size(DECODE_ONLY, 500, 100, 70.0, kv_tokens=3000), 14.0),  # KV cache for five requests
    ],
)
def test_work_over_capacity(found: int, seconds_of_work: float) -> None:
    assert found == pytest.approx(seconds_of_work / UTILISATION, abs=1.0)
    assert found * UTILISATION >= seconds_of_work


def test_batches_are_as_small_as_the_time_per_token_demands() -> None:
    timing = Timing(0.0, 0.0, 0.0, 0.01, 0.001, 0.0)  # a step: 11 ms alone, 20 ms with ten
    relaxed, strict = (
        size(timing, 1, 100, 100.0, tpot_s=limit, max_num_seqs=1000) for limit in (1.0, 0.015)
    )
    # 100 requests x 100 tokens x (10/990 + 1) ms, and (10/5 + 1) ms.
    assert (relaxed, strict) == (15, 43)


def test_long_prompts_count_square() -> None:
    square = Timing(0.0, 0.0, 1e-6, 0.0, 0.0, 0.0)
    even = [Arrival(n, 0.0, 1000, 0) for n in range(2)]
    uneven = [Arrival(0, 0.0, 1, 0), Arrival(1, 0.0, 1999, 0)]
    limits = {"rate": 7.0, "kv_tokens": 10**9, "max_num_seqs": 1, "tpot_s": 1.0}
    assert replicas_for(even, square, **limits) == 10  # type: ignore[arg-type]
    assert replicas_for(uneven, square, **limits) == 20  # type: ignore[arg-type]


def test_there_is_always_a_fleet_and_never_an_endless_one() -> None:
    assert size(PROFILES["instant"], 1000, 100, 1000.0) == 1
    assert size(PREFILL_ONLY, 1000, 0, 1e6) == REPLICAS_MAX
    assert replicas_for([], PREFILL_ONLY, rate=0.0, kv_tokens=1, max_num_seqs=1, tpot_s=1.0) == 1
