"""The forecast of a first token is what the engine then does, for any state without preemption."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from random import Random

import pytest

from bench.fleet.forecast import first_token_s
from router.lab.emulator.core.engine_core import FIRST_TOKEN, EngineCore
from router.lab.emulator.core.request import Request
from router.lab.emulator.core.timing import PROFILES, CoreConfig

TIMING = PROFILES["realistic"]
CONFIG = CoreConfig(max_num_seqs=6, max_num_batched_tokens=512, num_blocks=600, token_events=False)


def crowded(seed: int, leap: bool, priority: bool = False) -> tuple[EngineCore[Request], float]:
    """An engine after some random requests, and the time."""
    rng = Random(seed)
    core: EngineCore[Request] = EngineCore(
        replace(CONFIG, leap=leap, priority_scheduling=priority), TIMING
    )
    now = 0.0
    for number in range(rng.randint(0, 14)):
        now += rng.expovariate(8.0)
        run(core, now)
        core.submit(request(f"r{number}", rng, priority=rng.randint(0, 3)), now)
    now += rng.expovariate(8.0)
    run(core, now)
    return core, now


def request(name: str, rng: Random, priority: int = 0) -> Request:
    tokens = rng.randint(1, 1500)
    shared = rng.choice([1000, 2000, rng.randrange(10_000, 99_999)])
    hashes = [shared + block for block in range(tokens // CONFIG.block_size)]
    return Request(name, tokens, rng.randint(1, 60), hashes, priority)


def run(core: EngineCore[Request], until: float) -> None:
    while (due := core.next_event(until)) is not None and due <= until:
        core.advance(until)


def first_token_at(core: EngineCore[Request], name: str) -> float:
    while True:
        due = core.next_event(inf)
        assert due is not None
        for what, ended in core.advance(due):
            if what == FIRST_TOKEN and ended.id == name:
                return core.clock


@pytest.mark.parametrize("leap", [False, True])
@pytest.mark.parametrize("seed", range(150))
def test_a_forecast_comes_true(seed: int, leap: bool) -> None:
    core, now = crowded(seed, leap)
    own = request("own", Random(-seed - 1))
    seconds = first_token_s(core, own.prompt_tokens, own.block_hashes, now)
    core.submit(own, now)
    assert first_token_at(core, "own") - now == pytest.approx(seconds, rel=0.1, abs=1e-6)


def test_most_forecasts_are_exact() -> None:
    """The context of decoding requests is taken as it is now; it grows a little meanwhile."""
    exact = 0
    for seed in range(100):
        core, now = crowded(seed, leap=True)
        own = request("own", Random(-seed - 1))
        seconds = first_token_s(core, own.prompt_tokens, own.block_hashes, now)
        core.submit(own, now)
        exact += first_token_at(core, "own") - now == pytest.approx(seconds, rel=0.01, abs=1e-6)
    assert exact >= 90


@pytest.mark.parametrize("seed", range(40))
def test_less_urgent_requests_go_behind(seed: int) -> None:
    core, now = crowded(seed, leap=True, priority=True)
    own = request("own", Random(-seed - 1), priority=1)
    seconds = first_token_s(core, own.prompt_tokens, own.block_hashes, now, priority=1)
    core.submit(own, now)
    assert first_token_at(core, "own") - now == pytest.approx(seconds, rel=0.1, abs=1e-6)


def test_a_stalled_engine_has_no_first_token() -> None:
    core: EngineCore[Request] = EngineCore(CONFIG, TIMING)
    core.stall(1.0)
    assert first_token_s(core, 10, (), 1.0) == inf
