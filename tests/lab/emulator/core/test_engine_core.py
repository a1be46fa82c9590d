"""The engine core on a virtual clock: batching, chunks, order, KV, abort, stalls."""

import pytest

from router.lab.emulator.core.engine_core import (
    FINISHED,
    FIRST_TOKEN,
    TOKEN,
    CoreConfig,
    EngineCore,
    Request,
)
from router.lab.emulator.core.timing import PROFILES, Timing
from tests.lab.emulator.core.engine_on_paper import STEP, times, turn


def make(timing: Timing = STEP, **config: int | bool) -> EngineCore[Request]:
    return EngineCore(CoreConfig(**config), timing)  # type: ignore[arg-type]


def test_one_request_gets_its_tokens_one_step_apart() -> None:
    core = make()
    core.submit(Request("a", 10, 3), now=5.0)
    assert core.next_event(5.0) == 5.0
    assert turn(core) == [
        (6.0, FIRST_TOKEN, "a"),
        (7.0, TOKEN, "a"),
        (8.0, TOKEN, "a"),
        (8.0, FINISHED, "a"),
    ]
    assert core.next_event(9.0) is None
    assert (core.running, core.waiting, core.kv.used, core.finished) == (0, 0, 0, 1)


def test_the_first_token_comes_after_the_modelled_prefill_and_the_rest_after_decode_steps() -> None:
    timing = PROFILES["llama2-70b-a100x8"]
    core = make(timing)
    core.submit(Request("a", 2000, 3), now=1.0)
    log = turn(core)
    first = 1.0 + timing.prefill_alone_s(2000)
    second = first + timing.step_s(0, 0, 1, 2001)
    third = second + timing.step_s(0, 0, 1, 2002)
    assert [at for at, kind, _ in log if kind != FINISHED] == pytest.approx([first, second, third])


def test_how_long_a_prompt_takes_alone_depends_on_the_cache_and_the_slowdown() -> None:
    timing = PROFILES["realistic"]
    core = make(timing)
    first = Request("a", 100, 1, range(6))
    assert core.alone_s(first) == timing.prefill_alone_s(100)
    core.submit(first, now=0.0)
    assert times(turn(core), FIRST_TOKEN)["a"] == core.clock == timing.prefill_alone_s(100)
    core.slow(3.0, core.clock)
    again = Request("b", 100, 1, [0, 1, 2, 77])
    assert core.alone_s(again) == 3.0 * timing.prefill_alone_s(100, 48)


def test_a_long_prompt_is_computed_in_chunks_beside_the_decoding() -> None:
    core = make(max_num_seqs=4, max_num_batched_tokens=100)
    core.submit(Request("short", 10, 10), now=0.0)
    turn(core, until=1.0)
    core.submit(Request("long", 250, 1), now=1.0)
    log = turn(core)
    # 99 tokens per step beside one decoding request, from the step that begins at 2.
    assert times(log, FIRST_TOKEN) == {"long": 5.0}
    assert times(log, FINISHED)["short"] == 10.0


@pytest.mark.parametrize("priority_scheduling", [True, False])
def test_order_of_the_queue(priority_scheduling: bool) -> None:
    core = make(max_num_seqs=1, priority_scheduling=priority_scheduling)
    core.submit(Request("running", 10, 2), now=0.0)
    turn(core, until=0.0)
    core.submit(Request("late", 10, 1, priority=5), now=0.1)
    core.submit(Request("normal", 10, 1), now=0.2)
    core.submit(Request("urgent", 10, 1, priority=-5), now=0.3)
    core.submit(Request("normal2", 10, 1), now=0.4)
    served = [id for _, kind, id in turn(core) if kind == FIRST_TOKEN][1:]
    by_priority = ["urgent", "normal", "normal2", "late"]
    by_arrival = ["late", "normal", "urgent", "normal2"]
    assert served == (by_priority if priority_scheduling else by_arrival)


def test_the_first_request_waits_for_kv_blocks_and_is_not_overtaken() -> None:
    core = make(num_blocks=10, block_size=10, max_num_batched_tokens=1000)
    core.submit(Request("a", 50, 11), now=0.0)  # needs 6 blocks at its end
    core.submit(Request("big", 60, 1), now=0.0)  # needs 6 blocks
    core.submit(Request("small", 10, 1), now=0.0)  # needs 1 block
    core.advance(0.0)
    assert (core.running, core.waiting) == (1, 2)
    assert times(turn(core), FIRST_TOKEN) == {"a": 1.0, "big": 12.0, "small": 12.0}


def test_a_prefix_is_hit_in_whole_blocks_and_never_to_the_last_token() -> None:
    core = make(block_size=10)
    core.submit(Request("a", 30, 1, [1, 2, 3]), now=0.0)
    turn(core)
    again, longer = Request("again", 30, 1, [1, 2, 3]), Request("longer", 35, 1, [1, 2, 3])
    core.submit(again, now=5.0)
    core.submit(longer, now=5.0)
    turn(core)
    assert (again.cached_tokens, longer.cached_tokens) == (20, 30)
    assert (core.prefix_queries, core.prefix_hits) == (95, 50)


def test_equal_prompts_in_one_step_share_their_blocks() -> None:
    core = make(block_size=10)
    a, b = Request("a", 30, 1, [1, 2, 3]), Request("b", 30, 1, [1, 2, 3])
    core.submit(a, now=0.0)
    core.submit(b, now=0.0)
    core.advance(0.0)
    assert (a.cached_tokens, b.cached_tokens, core.kv.used) == (0, 20, 4)


@pytest.mark.parametrize(
    ("until", "generated"),
    [(None, 0), (0.0, 0), (0.5, 0), (1.0, 1), (2.5, 2)],
    ids=["waiting", "prefilling", "in its first step", "at its first token", "decoding"],
)
def test_an_abort_frees_everything_at_once(until: float | None, generated: int) -> None:
    core = make(block_size=4)
    request = Request("a", 10, 9)
    core.submit(request, now=0.0)
    if until is not None:
        turn(core, until=until)
    assert core.generated(request) == generated
    assert core.abort("a", now=until or 0.0)
    assert (core.running, core.waiting, core.kv.used, core.aborted) == (0, 0, 0, 1)
    assert request.generated == generated
    assert not core.abort("a", now=until or 0.0)
    assert turn(core) == []
    core.submit(Request("b", 10, 1), now=50.0)
    assert times(turn(core), FINISHED) == {"b": 51.0}


def test_many_aborted_while_waiting_leave_nothing_in_the_queue() -> None:
    core = make(max_num_seqs=1)
    core.submit(Request("running", 10, 1000), now=0.0)
    core.advance(0.0)
    for index in range(1000):
        core.submit(Request(f"r{index}", 10, 1), now=0.5)
        core.abort(f"r{index}", now=0.5)
    assert core.waiting == 0
    assert len(core._scheduler.queue._heap) < 200


def test_a_stalled_engine_queues_requests_and_then_continues() -> None:
    core = make()
    core.submit(Request("a", 10, 2), now=0.0)
    core.advance(0.0)
    core.stall(0.5)
    core.submit(Request("b", 10, 1), now=0.7)
    assert core.next_event(100.0) is None
    assert core.advance(100.0) == []
    core.resume(100.5)
    assert times(turn(core), FIRST_TOKEN) == {"a": 101.0, "b": 102.0}


def test_quiet_cores_report_only_first_tokens_and_ends_at_the_same_times() -> None:
    loud, quiet = make(), make(token_events=False)
    for core in (loud, quiet):
        for index in range(5):
            core.submit(Request(str(index), 10 * index + 1, index), now=index * 1.5)
    heard = [entry for entry in turn(loud) if entry[1] != TOKEN]
    assert turn(quiet) == heard


@pytest.mark.parametrize(
    "request_",
    [Request("a", 0, 1), Request("a", 1, -1), Request("a", 400, 1), Request("a", 1, 400)],
    ids=["no prompt", "less than no output", "prompt too long", "output too long"],
)
def test_what_could_never_run_is_refused(request_: Request) -> None:
    core = make(num_blocks=2, block_size=16)
    with pytest.raises(ValueError, match=r"request"):
        core.submit(request_, now=0.0)
    assert core.waiting == 0


def test_an_id_in_use_is_refused_and_a_used_one_is_not() -> None:
    core = make()
    core.submit(Request("a", 1, 1), now=0.0)
    with pytest.raises(ValueError, match="before"):
        core.submit(Request("a", 1, 1), now=0.0)
    turn(core)
    core.submit(Request("a", 1, 1), now=5.0)
    assert len(turn(core)) == 2


@pytest.mark.parametrize(
    "sizes",
    [
        {"max_num_seqs": 0},
        {"max_num_seqs": 10, "max_num_batched_tokens": 9},
        {"num_blocks": 0},
        {"block_size": 0},
    ],
)
def test_sizes_that_cannot_work_are_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least"):
        make(**sizes)


def test_without_prefix_caching_nothing_is_hit_or_counted() -> None:
    core = make(block_size=10, prefix_caching=False)
    for id in "ab":
        core.submit(Request(id, 30, 1, [1, 2, 3]), now=0.0)
        turn(core)
    assert (core.prefix_queries, core.prefix_hits, core.kv.cached) == (0, 0, 0)


def test_computed_prefill_tokens_include_aborted_ones_and_no_cached_ones() -> None:
    core = make(block_size=4, max_num_batched_tokens=300)
    core.submit(Request("a", 400, 1, list(range(100))), now=0.0)
    turn(core, until=0.5)
    assert core.prefilled_tokens == 300
    core.abort("a", now=0.5)
    turn(core)
    assert core.prefilled_tokens == 300
    core.submit(Request("same", 400, 1, list(range(100))), now=5.0)
    turn(core)
    assert core.prefilled_tokens == 400
