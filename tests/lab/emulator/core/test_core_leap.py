"""Leaping over decode steps: the number of events, the reasons to end a leap, the visible state."""

from __future__ import annotations

import pytest

from router.lab.emulator.core.engine_core import (
    FINISHED,
    FIRST_TOKEN,
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


@pytest.mark.parametrize(("now", "joined"), [(3.5, 4.0), (3.0, 3.0), (1.0, 2.0), (8.0, 8.0)])
def test_a_request_that_arrives_in_a_leap_joins_at_the_next_step_boundary(
    now: float, joined: float
) -> None:
    core = make()
    core.submit(Request("a", 10, 8), now=0.0)
    turn(core, until=1.0)
    assert core.next_event(1.0) == 8.0
    b = Request("b", 10, 2)
    core.submit(b, now=now)
    assert core.next_event(now) == joined
    assert times(turn(core), FIRST_TOKEN) == {"b": joined + 1}
    assert b.started_at == joined


def test_a_request_that_cannot_start_does_not_end_a_leap() -> None:
    core = make(max_num_seqs=1)
    core.submit(Request("a", 10, 8), now=0.0)
    turn(core, until=1.0)
    core.submit(Request("no slot", 10, 1), now=2.5)
    assert core.next_event(2.5) == 8.0
    core = make(num_blocks=4, block_size=4)
    core.submit(Request("a", 8, 8), now=0.0)
    core.submit(Request("no room", 12, 1), now=0.0)
    turn(core, until=1.0)
    core.submit(Request("behind it", 1, 1), now=2.5)
    assert core.next_event(2.5) == 8.0


def test_when_the_head_of_the_queue_leaves_the_next_one_gets_its_chance() -> None:
    core = make(num_blocks=4, block_size=4)
    core.submit(Request("a", 8, 8), now=0.0)
    core.submit(Request("no room", 12, 1), now=0.0)
    core.submit(Request("behind it", 1, 1), now=0.0)
    turn(core, until=1.0)
    core.abort("behind it", now=1.5)
    assert core.next_event(1.5) == 8.0
    core.submit(Request("small", 1, 1), now=1.5)
    core.abort("no room", now=2.5)
    assert times(turn(core), FIRST_TOKEN) == {"small": 4.0}


def test_a_leap_ends_before_the_step_that_lacks_a_block() -> None:
    core = make(num_blocks=5, block_size=4)
    core.submit(Request("a", 4, 13), now=0.0)
    core.submit(Request("b", 4, 13), now=0.0)
    turn(core, until=1.0)
    # Two more blocks each from the steps that begin at 1 and at 5: the second lacks the last one.
    assert core.next_event(1.0) == 5.0
    log = turn(core)
    assert core.preemptions == 1
    assert times(log, FINISHED)["a"] == 13.0


def test_a_block_named_in_a_leap_may_let_the_head_in() -> None:
    core = make(num_blocks=6, block_size=4, reserve_output=True)
    core.submit(Request("a", 4, 13, [1, 2, 3, 4]), now=0.0)  # needs 4 blocks, all reserved
    core.submit(Request("b", 13, 1, [1, 2, 3]), now=0.0)  # 4 blocks; it could share two of them
    log = turn(core)
    # The second block of a is full and named with the step that begins at 5.
    assert times(log, FIRST_TOKEN) == {"a": 1.0, "b": 6.0}


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


def test_an_abort_in_a_leap_leaves_it_what_it_had_and_the_rest_faster() -> None:
    core = make(Timing(1.0, 0.0, 0.0, 0.0, 1.0, 0.0))  # a step takes a second for each sequence
    a, b = Request("a", 10, 20), Request("b", 10, 20)
    core.submit(a, now=0.0)
    core.submit(b, now=0.0)
    turn(core, until=1.0)
    core.abort("b", now=6.0)  # in the third step of two seconds
    assert (b.generated, core.generated(a), core.next_event(6.0)) == (3, 3, 7.0)
    assert times(turn(core), FINISHED) == {"a": 7.0 + 16}


def test_a_straggler_slows_down_from_the_next_step_on() -> None:
    core = make()
    core.submit(Request("a", 10, 10), now=0.0)
    turn(core, until=1.0)
    core.slow(10.0, now=4.5)
    assert core.next_event(4.5) == 5.0
    core.advance(5.0)
    assert core.next_event(5.0) == 55.0
    core.slow(1.0, now=20.0)
    assert times(turn(core), FINISHED) == {"a": 28.0}


def test_a_stall_in_a_leap_stops_the_step_under_way_and_all_after_it() -> None:
    core = make()
    a = Request("a", 10, 10)
    core.submit(a, now=0.0)
    turn(core, until=1.0)
    core.stall(4.5)
    core.submit(Request("b", 10, 1), now=50.0)
    core.settle(60.0)
    assert (core.generated(a), core.next_event(60.0), core.advance(60.0)) == (4, None, [])
    core.resume(100.5)
    log = turn(core)
    assert times(log, FIRST_TOKEN) == {"b": 102.0}
    assert times(log, FINISHED)["a"] == 106.0


def test_leaps_and_token_events_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="token_events"):
        CoreConfig(leap=True)
