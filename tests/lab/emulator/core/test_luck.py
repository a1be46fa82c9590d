"""Equal requests get equal random draws on every engine; a copy gets different draws."""

import pytest

from router.lab.emulator.http.faults import NONE, FaultPlan, Faults, Luck

KEYS = [f"request {n}" for n in range(2000)]
UNLUCKY = Faults(straggle=10.0, probability=0.2)


def test_a_request_has_the_same_draw_at_any_engine() -> None:
    lucks = Luck(), Luck()
    firsts = [[luck.draw(key) for key in KEYS] for luck in lucks]
    assert firsts[0] == firsts[1]
    assert sum(draw < 0.2 for draw in firsts[0]) / len(KEYS) == pytest.approx(0.2, abs=0.03)


def test_engines_of_a_process_share_it() -> None:
    luck = Luck()
    plans = [FaultPlan(f"emulated-{n}", n, luck) for n in range(2)]
    for plan in plans:
        plan.set(UNLUCKY)
    alone = Luck()
    for key in KEYS[:200]:
        drawn = [alone.draw(key), alone.draw(key)]
        met = [plan.roll(None, key) is not NONE for plan in plans]
        assert met == [draw < 0.2 for draw in drawn]


def test_without_a_key_every_engine_draws_separately() -> None:
    plans = [FaultPlan("emulated-0", seed, Luck()) for seed in (1, 2)]
    rolls = []
    for plan in plans:
        plan.set(UNLUCKY)
        rolls.append([plan.roll() is NONE for _ in range(200)])
    assert rolls[0] != rolls[1]


def test_old_keys_are_dropped() -> None:
    luck = Luck(most=10)
    first = luck.draw("first")
    for key in KEYS[:100]:
        luck.draw(key)
    assert len(luck._attempts) == 10
    assert luck.draw("first") == first
