"""Leaping over decode steps: the number of events, the reasons to end a leap, the visible state."""

from __future__ import annotations

import pytest

from router.lab.emulator.core.engine_core import (
    FINISHED,
    CoreConfig,
    EngineCore,
    Request,
)
from router.lab.emulator.core.timing import Timing
from tests.lab.emulator.core.engine_on_paper import STEP, times, turn


def make(timing: Timing = STEP, **config: int | bool) -> EngineCore[Request]:
    return EngineCore(CoreConfig(token_events=False, leap=True, **config), timing)  # type: ignore[arg-type]


def test_an_answer_is_three_events_however_long() -> None:
    core = make(block_size=16)
    core.submit(Request("a", 10, 5000), now=0.0)
    ends = []
    while (due := core.next_event(0.0)) is not None:
        core.advance(due)
        ends.append(due)
    assert ends == [0.0, 1.0, 5000.0]
    assert (core.steps, core.generation_tokens, core.kv.peak) == (5000, 5000, 314)


def test_each_step_of_a_leap_is_longer_by_the_tokens_of_the_one_before() -> None:
    core = make(Timing(8.0, 0.0, 0.0, 1.0, 0.5, 0.25))
    core.submit(Request("a", 4, 4), now=0.0)
    core.submit(Request("b", 5, 4), now=0.0)
    # Three steps of two sequences: 1 + 2*0.5 + 0.25 * (11, then 13, then 15 tokens of context).
    assert times(turn(core), FINISHED)["b"] == 8.0 + 4.75 + 5.25 + 5.75


def test_looking_in_the_middle_shows_the_figures_of_that_moment_and_changes_nothing() -> None:
    core = make(block_size=4)
    a = Request("a", 4, 20)
    core.submit(a, now=0.0)
    turn(core, until=1.0)
    assert (core.generated(a), core.kv.used) == (1, 2)
    core.settle(7.5)
    assert (core.generated(a), core.kv.used, core.clock) == (7, 3, 7.0)
    assert (core.steps, core.steps_ended, core.generation_tokens) == (8, 7, 7)
    core.settle(7.5)
    assert core.steps == 8
    assert core.next_event(7.5) == 20.0
    assert times(turn(core), FINISHED) == {"a": 20.0}
    assert (core.steps, core.generation_tokens) == (20, 20)


def test_leaps_and_token_events_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="token_events"):
        CoreConfig(leap=True)
