"""Two minutes of hostile crowds with new seeds in every run; `make soak` runs longer.

Half of the time the router has the settings of odd seeds (`victim.settings_of`). A failure names
the seed: `python -m tests.abuse.soak FOLDER --seed SEED` repeats its round.
"""

import asyncio
import random
import time
from pathlib import Path

import pytest
import uvloop

from tests.abuse.rounds import run_round
from tests.abuse.victim import settings_of, under_attack

FOR_S = 55.0
CROWDS = 10  # crowds per round
# Requests of the crowds must have been served on several of these kinds of routes; otherwise most
# requests were refused.
SERVED = ("chat", "completions", "responses", "messages", "embeddings", "generate", "other")


@pytest.mark.parametrize("parity", [0, 1])
def test_a_minute_of_hostile_crowds(parity: int, tmp_path: Path) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        house = under_attack(tmp_path, settings_of(parity, tmp_path))
        victim = runner.run(house.__aenter__())
        try:
            end = time.monotonic() + FOR_S
            rounds = 0
            while time.monotonic() < end:
                seed = 2 * random.SystemRandom().getrandbits(31) + parity
                try:
                    run_round(runner, victim, seed, CROWDS)
                except AssertionError as err:
                    raise AssertionError(f"seed {seed}: {err}") from err
                rounds += 1
            assert victim.served >= rounds * CROWDS, "the bystander asked in each attack"
            assert victim.met > victim.scripted // 2 > 0, "most answers were met"
            ends = runner.run(victim.ends())
            served = [kind for kind in SERVED if ends[kind, "200"]]
            assert len(served) >= 3, ends
        finally:
            runner.run(house.__aexit__(None, None, None))
