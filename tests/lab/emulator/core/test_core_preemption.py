"""When KV blocks run out: the preempted request, the blocks it keeps, and the end of all
requests.
"""

import pytest

from router.lab.emulator.core.engine_core import (
    FINISHED,
    FIRST_TOKEN,
    CoreConfig,
    EngineCore,
    Request,
)
from tests.lab.emulator.core.engine_on_paper import STEP, times, turn


def make(**config: int | bool | None) -> EngineCore[Request]:
    return EngineCore(CoreConfig(**config), STEP)  # type: ignore[arg-type]


def test_the_latest_goes_when_a_block_is_wanted_and_comes_back_with_what_it_had() -> None:
    core = make(num_blocks=4, block_size=4)
    a, b = Request("a", 4, 9), Request("b", 4, 9)  # each needs 3 blocks at its end
    core.submit(a, now=0.0)
    core.submit(b, now=0.0)
    log = turn(core, until=4.5)
    assert (core.preemptions, b.preemptions, core.kv.used, core.waiting) == (0, 0, 4, 0)
    # The ninth token of context begins a third block for each, in the step that begins at 5.
    log += turn(core, until=5.5)
    assert (core.preemptions, b.preemptions, a.preemptions) == (1, 1, 0)
    assert (core.kv.used, core.waiting, core.generated(b)) == (3, 1, 5)
    log += turn(core)
    assert times(log, FINISHED) == {"a": 9.0, "b": 13.0}
    # a ends at 9; b's 4 + 5 tokens are computed in the next step, which produces the sixth.
    made = [at for at, kind, id in log if id == "b" and kind != FINISHED]
    assert made[-4:] == [10.0, 11.0, 12.0, 13.0]
    assert core.kv.used == 0


def test_without_preemption_output_is_promised_and_the_queue_waits() -> None:
    core = make(num_blocks=4, block_size=4, reserve_output=True)
    a, b = Request("a", 4, 9), Request("b", 4, 9)
    core.submit(a, now=0.0)
    core.submit(b, now=0.0)
    core.advance(0.0)
    assert (core.waiting, core.kv.used, core.kv_reserved) == (1, 1, 3)
    assert times(turn(core), FINISHED) == {"a": 9.0, "b": 18.0}
    assert core.preemptions == 0


@pytest.mark.parametrize(("advantage", "preempted"), [(None, 0), (10, 1), (19, 1), (20, 0)])
def test_an_urgent_request_displaces_ones_that_are_worse_by_the_threshold(
    advantage: int | None, preempted: int
) -> None:
    core = make(max_num_seqs=2, priority_scheduling=True, preempt_advantage=advantage)
    worse, worst = Request("worse", 4, 20, priority=5), Request("worst", 4, 20, priority=10)
    core.submit(worse, now=0.0)
    core.submit(worst, now=0.0)
    turn(core, until=2.5)
    core.submit(Request("urgent", 4, 2, priority=-10), now=2.5)
    first = times(turn(core), FIRST_TOKEN)["urgent"]
    assert (core.preemptions, worst.preemptions, worse.preemptions) == (preempted, preempted, 0)
    assert first == (4.0 if preempted else 21.0)


@pytest.mark.parametrize(("prompt", "preempted"), [(12, 1), (16, 0)])
def test_a_request_displaces_no_other_if_that_is_not_enough(prompt: int, preempted: int) -> None:
    core = make(num_blocks=8, block_size=4, priority_scheduling=True, preempt_advantage=0)
    core.submit(Request("urgent", 16, 4, priority=-5), now=0.0)
    core.submit(Request("worse", 4, 4, priority=5), now=0.0)
    turn(core, until=0.5)
    core.submit(Request("big", prompt, 1, priority=0), now=0.5)
    turn(core)
    assert core.preemptions == preempted


def test_waiting_tokens_count_what_is_cached() -> None:
    core = make(block_size=4, max_num_seqs=1)
    core.submit(Request("a", 9, 1, [1, 2]), now=0.0)
    turn(core)
    core.submit(Request("b", 4, 50), now=5.0)
    turn(core, until=5.0)
    core.submit(Request("c", 9, 1, [1, 2]), now=5.5)
    assert core.uncached_waiting() == 1


def test_every_computed_token_of_a_prefill_is_counted() -> None:
    """The preempted request has 8 prompt tokens and its output so far to compute again."""
    core = make(num_blocks=5, block_size=4, priority_scheduling=True, max_num_batched_tokens=300)
    core.submit(Request("a", 8, 9), now=0.0)
    b = Request("b", 8, 9, priority=1)
    core.submit(b, now=0.0)
    turn(core, until=0.9)
    assert core.prefilled_tokens == 16
    turn(core, until=1.0)
    assert b.preemptions == 1
    again = 8 + core.generated(b)
    turn(core)
    assert core.prefilled_tokens == 16 + again


def test_what_is_computed_again_hits_its_own_blocks_and_is_counted_nowhere() -> None:
    core = make(num_blocks=8, block_size=4)
    a = Request("a", 8, 17, list(range(10, 16)))
    b = Request("b", 8, 17, list(range(20, 26)))
    core.submit(a, now=0.0)
    core.submit(b, now=0.0)
    turn(core)
    assert b.preemptions > 0
    assert (core.prefix_queries, core.prefix_hits, core.prompt_tokens) == (16, 0, 16)
    assert b.cached_tokens == 0
