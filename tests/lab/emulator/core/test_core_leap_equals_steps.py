"""An engine core that leaps over steps behaves like a core that does each step, for any traffic."""

from dataclasses import dataclass, replace
from typing import Literal

import pytest
from hypothesis import given, strategies as st

from router.lab.emulator.core.engine_core import CoreConfig, EngineCore, Request
from router.lab.emulator.core.timing import PROFILES, Timing
from tests.examples import examples

BLOCK = 4
# With the exact profiles every time is a multiple of a power of two: sums have no rounding, and
# step boundaries coincide with the times of actions on the engine.
TIMINGS = {
    "exact": Timing(1 / 8, 1 / 64, 0.0, 1 / 16, 1 / 64, 1 / 1024),
    "exact, all steps alike": Timing(1 / 16, 0.0, 0.0, 1 / 16, 0.0, 0.0),
    "exact, none": PROFILES["instant"],
    "real": PROFILES["llama2-70b-a100x8"],
}


@dataclass(frozen=True)
class Arrival:
    at: float
    prompt: int
    output: int
    family: int  # requests of one family share their prefix, including their output
    priority: int
    leaves_after: float | None


@dataclass(frozen=True)
class Trouble:
    at: float
    kind: Literal["slow", "stall", "look"]
    factor: float
    seconds: float


moments = st.integers(0, 48).map(lambda sixteenths: sixteenths / 16)
spans = st.integers(0, 32).map(lambda sixteenths: sixteenths / 16)
arrivals = st.builds(
    Arrival,
    at=moments,
    prompt=st.integers(1, 40),
    output=st.integers(0, 40),
    family=st.integers(0, 2),
    priority=st.integers(-2, 2),
    leaves_after=st.none() | spans,
)
troubles = st.builds(
    Trouble,
    at=moments,
    kind=st.sampled_from(["slow", "stall", "look"]),
    factor=st.sampled_from([0.5, 1.0, 4.0]),
    seconds=spans,
)
configs = st.builds(
    CoreConfig,
    max_num_seqs=st.integers(1, 6),
    max_num_batched_tokens=st.integers(6, 40),
    num_blocks=st.integers(20, 40),
    block_size=st.just(BLOCK),
    priority_scheduling=st.booleans(),
    prefix_caching=st.booleans(),
    token_events=st.just(False),
    reserve_output=st.booleans(),
    preempt_advantage=st.none() | st.integers(0, 3),
    kv_events=st.booleans(),
)


@dataclass(frozen=True)
class Moment:
    """State of an engine after an event or a query."""

    at: float
    clock: float
    events: list[tuple[int, str]]
    figures: dict[str, object]


def figures(core: EngineCore[Request]) -> dict[str, object]:
    kv = core.kv
    return {
        "steps": (core.steps, core.steps_ended),
        "tokens": (core.prompt_tokens, core.generation_tokens),
        "ends": (core.submitted, core.finished, core.aborted, core.preemptions),
        "prefix": (core.prefix_queries, core.prefix_hits),
        "queue": [request.id for request in core.queued()],
        "batch": [(r.id, core.generated(r), [b.number for b in r._blocks]) for r in core.rows()],
        "pool": (kv.used, kv.peak, kv.taken, kv.evictions, core.kv_reserved),
        "cache": kv.state(),
        "log": None if core.kv_log is None else list(core.kv_log),
    }


def live(
    core: EngineCore[Request], traffic: list[Arrival], trouble: list[Trouble]
) -> tuple[list[Moment], int]:
    """Run an engine to its end; returns its states and the number of `advance` calls.

    An action at a moment comes before a step boundary at the same moment.
    """
    plan: list[tuple[float, int, str, Arrival | Trouble]] = []
    for index, arrival in enumerate(traffic):
        plan.append((arrival.at, index, "comes", arrival))
        if arrival.leaves_after is not None:
            plan.append((arrival.at + arrival.leaves_after, index, "leaves", arrival))
    for index, one in enumerate(trouble):
        plan.append((one.at, index, one.kind, one))
        if one.kind == "stall":
            plan.append((one.at + one.seconds, index, "resume", one))
    plan.sort(key=lambda entry: entry[:3])
    life: list[Moment] = []
    calls = 0

    def run(until: float) -> None:
        nonlocal calls
        while (due := core.next_event(until)) is not None and due < until:
            events = core.advance(due)
            calls += 1
            if events:
                told = [(kind, request.id) for kind, request in events]
                life.append(Moment(due, core.clock, told, figures(core)))

    for at, index, what, entry in plan:
        run(at)
        if isinstance(entry, Arrival):
            if what == "comes":
                hashes = [entry.family * 1000 + block for block in range(20)]
                tokens = [*range(entry.prompt + entry.output)]
                core.submit(
                    Request(str(index), entry.prompt, entry.output, hashes, entry.priority, tokens),
                    at,
                )
            else:
                core.abort(str(index), at)
        elif what == "slow":
            core.slow(entry.factor, at)
        elif what == "stall":
            core.stall(at)
        elif what == "resume":
            core.resume(at)
        else:
            stepped_at = core.stepped_at(at)
            core.settle(at)
            assert stepped_at == core.clock
            life.append(Moment(at, core.clock, [], figures(core)))
    core.resume(plan[-1][0] if plan else 0.0)
    run(float("inf"))
    return life, calls


@pytest.mark.parametrize("timing", TIMINGS)
@examples(300)
@given(st.lists(arrivals, max_size=14), st.lists(troubles, max_size=6), configs)
def test_events_times_counters_and_blocks_are_those_of_stepping(
    timing: str, traffic: list[Arrival], trouble: list[Trouble], config: CoreConfig
) -> None:
    stepping, steps = live(EngineCore(config, TIMINGS[timing]), traffic, trouble)
    leaping, leaps = live(EngineCore(replace(config, leap=True), TIMINGS[timing]), traffic, trouble)
    assert [moment.events for moment in leaping] == [moment.events for moment in stepping]
    for leapt, stepped in zip(leaping, stepping, strict=True):
        assert leapt.figures == stepped.figures
        times = (leapt.at, leapt.clock)
        if timing == "real":
            assert times == pytest.approx((stepped.at, stepped.clock), rel=1e-9)
        else:
            assert times == (stepped.at, stepped.clock)
    assert leaps <= steps
