"""The definition of load: an engine is full at the computed rate, and not full below that rate."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from bench.fleet import capacity, engines, run, workloads
from router.lab.emulator.core.engine_core import FINISHED, CoreConfig, EngineCore, Request

PROMPT, OUTPUT = 3000, 32


def engine() -> capacity.Engine:
    return engines.Spec().engine()


def backlog(rate: float, requests: int) -> float:
    """Seconds that the engine needs after the last arrival to become idle.

    Runs the engine's own core on a virtual clock under Poisson arrivals, without a prefix cache.
    """
    one = engine()
    config = CoreConfig(
        max_num_seqs=one.max_num_seqs,
        num_blocks=one.kv_tokens // engines.BLOCK_TOKENS,
        block_size=engines.BLOCK_TOKENS,
        prefix_caching=False,
        token_events=False,
    )
    core: EngineCore[Request] = EngineCore(config, one.timing)
    times = workloads.arrivals(Random(1), rate)
    finished = 0
    now = 0.0
    for number in range(requests):
        now = next(times)
        while (due := core.next_event(now)) is not None and due <= now:
            finished += sum(kind == FINISHED for kind, _ in core.advance(due))
        core.submit(Request(str(number), PROMPT, OUTPUT), now)
    last = now
    while (due := core.next_event(now)) is not None:
        now = max(now, due)
        finished += sum(kind == FINISHED for kind, _ in core.advance(now))
    assert finished == requests
    return now - last


def test_an_engine_saturates_where_the_formula_says() -> None:
    full = capacity.saturation(engine(), 1, [(PROMPT, OUTPUT)])
    seconds = 1500 / full
    assert backlog(0.8 * full, 1500) < 0.03 * seconds
    # Above the computed rate the backlog grows: at 1.25 times, by a fifth of the run's work.
    assert backlog(1.25 * full, 1500) == pytest.approx(seconds * (1 - 1 / 1.25), rel=0.25)


def test_hits_and_memory_raise_what_an_engine_can_carry() -> None:
    cold = capacity.saturation(engine(), 1, [(PROMPT, OUTPUT)])
    assert capacity.saturation(engine(), 1, [(PROMPT, OUTPUT)], [2400.0]) > 2 * cold
    small = replace(engine(), kv_tokens=PROMPT + OUTPUT)
    assert capacity.saturation(small, 1, [(PROMPT, OUTPUT)]) < cold


@pytest.mark.parametrize("name", workloads.WORKLOADS)
def test_a_workload_comes_at_the_load_asked_for(name: str) -> None:
    size = workloads.Size()
    found = run.prepare(name, 0.7, 1, size, engines.Spec())
    assert found.rate == pytest.approx(0.7 * found.cold_rate)
    assert len(found.script.sizes()) / found.script.until == pytest.approx(found.rate, rel=0.15)
    assert found.warm_rate >= found.cold_rate
    assert found.slo_s > run.SLO_FACTOR * engine().timing.prefill_s
