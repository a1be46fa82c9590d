"""Two minutes of hostile crowds, other ones in every run; `make soak` goes on for as long as asked.

A failure names the seed: `python -m tests.abuse.soak FOLDER --seed SEED` repeats its round.
"""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import uvloop

from tests.abuse.rounds import run_round
from tests.abuse.victim import under_attack

FOR_S = 110.0
CROWDS = 10  # of a round


def test_two_minutes_of_hostile_crowds(tmp_path: Path) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        house = under_attack(tmp_path)
        victim = runner.run(house.__aenter__())
        try:
            end = time.monotonic() + FOR_S
            rounds = 0
            while time.monotonic() < end:
                seed = random.SystemRandom().getrandbits(32)
                try:
                    run_round(runner, victim, seed, CROWDS)
                except AssertionError as err:
                    raise AssertionError(f"seed {seed}: {err}") from err
                rounds += 1
            assert victim.served >= rounds * CROWDS, "the bystander asked in each attack"
        finally:
            runner.run(house.__aexit__(None, None, None))
