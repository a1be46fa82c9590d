"""The fluid queues: what is served in time, and what a replica costs."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from bench.plan.fleet import (
    GPU,
    PEAK,
    SLO_S,
    STEP_S,
    THROUGHPUT,
    Bursts,
    Controller,
    Counts,
    Demand,
    Kind,
    Outcome,
    PoolKey,
    Seen,
    World,
    below,
    bursts,
    curve,
    run,
    with_bursts,
)

FULL = THROUGHPUT * STEP_S  # tokens that one replica serves in a step
KEY = PoolKey("", "gpu")


def played(
    loads: Sequence[float],
    replicas: int,
    controller: Callable[[int, int], int] = lambda step, present: present,
    lead_s: float = STEP_S,
    first: int = 0,
) -> Outcome:
    """One region and one kind. `loads`: in replicas."""
    found = run(one_region(loads, lead_s), first, {KEY: replicas}, of_counts(controller))
    assert found is not None
    return found


def one_region(loads: Sequence[float], lead_s: float = STEP_S) -> World:
    tokens = tuple(load * FULL for load in loads)
    return World("x", {"": Demand("x", tokens, 0.5)}, lead_s)


def of_counts(controller: Callable[[int, int], int]) -> Controller:
    return lambda step, seen: {KEY: controller(step, seen.present[KEY])}


def test_a_start_serves_after_the_lead_time_and_costs_before() -> None:
    found = played([1.0, 2.0], 1, lambda step, present: 2)
    assert found.attainment == 1.0
    assert found.gpu_hours == pytest.approx(2 * 2 * STEP_S / 3600.0)
    assert played([2.0, 2.0], 1, lambda step, present: 2).attainment < 0.1


def test_a_controller_sees_the_replicas_and_the_queue() -> None:
    states: list[Seen] = []

    def controller(step: int, seen: Seen) -> Counts:
        states.append(seen)
        return {KEY: 3}

    run(one_region([2.0, 2.0, 0.0], 2.0 * STEP_S), 0, {KEY: 1}, controller)
    assert [seen.present[KEY] for seen in states] == [1, 3, 3]
    assert [seen.serving[KEY] for seen in states] == [1, 1, 3]
    assert [seen.waiting[""] / FULL for seen in states] == pytest.approx([0.0, 1.0, 2.0])


def test_a_run_stops_when_its_attainment_is_out_of_reach() -> None:
    asked: list[int] = []

    def controller(step: int, seen: Seen) -> Counts:
        asked.append(step)
        return seen.present

    world = one_region([2.0, 1.0, 1.0, 1.0])
    whole = run(world, 0, {KEY: 1}, controller)
    assert whole is not None
    assert asked == [0, 1, 2, 3]
    assert run(world, 0, {KEY: 1}, unchanged, whole.attainment) == whole
    asked.clear()
    assert run(world, 0, {KEY: 1}, controller, 0.9) is None
    assert asked == [0]


def test_the_share_of_a_step_below_a_limit() -> None:
    assert below(0.0, 10.0, 5.0) == 0.5
    assert below(10.0, 0.0, 5.0) == 0.5
    assert below(6.0, 10.0, 5.0) == 0.0
    assert below(7.0, 7.0, 5.0) == 0.0
    assert below(0.0, 4.0, 5.0) == 1.0


def regions(
    eu: Sequence[float], us: Sequence[float], kinds: tuple[Kind, ...] = (GPU,), spill: float = 0.0
) -> World:
    demands = {
        name: Demand(name, tuple(load * FULL for load in loads), 0.5)
        for name, loads in (("eu", eu), ("us", us))
    }
    return World("x", demands, STEP_S, kinds, spill)


def unchanged(step: int, seen: Seen) -> Counts:
    return seen.present


FLEET = {PoolKey("eu", "gpu"): 2, PoolKey("us", "gpu"): 6}


@pytest.mark.parametrize(("spill", "moved"), [(0.0, 0.0), (0.25, 1.0), (0.5, 2.0), (1.0, 2.0)])
def test_another_region_serves_a_share_if_it_has_free_replicas(spill: float, moved: float) -> None:
    """The region eu needs 4 replicas and has 2; the region us has 3 free ones."""
    own = 4.0 - moved
    own_in_time = own if own <= 2.0 else own * SLO_S * 2.0 / (own - 2.0) / STEP_S
    found = run(regions([4.0], [3.0], spill=spill), 0, FLEET, unchanged)
    assert found is not None
    assert found.attainment == pytest.approx((3.0 + moved + own_in_time) / 7.0)


def test_replicas_are_reclaimed_at_random() -> None:
    kinds = (Kind("a"), Kind("spot", reclaims_per_h=1.0))
    world = regions([1.0] * 12, [1.0] * 12, kinds)
    left: list[Counts] = []

    def watch(step: int, seen: Seen) -> Counts:
        left.append(seen.present)
        return seen.present

    run(world, 0, {PoolKey("eu", "a"): 100, PoolKey("us", "spot"): 100}, watch)
    assert {one[PoolKey("eu", "a")] for one in left} == {100}
    assert 20 < left[-1][PoolKey("us", "spot")] < 55  # (1 - 1/12) ** 12 is 0.35


def test_a_trace_gives_the_changes() -> None:
    demand = with_bursts(Bursts("x", (0.5, 1.5), 0.9), 1)
    ratios = [demand.tokens[step] / (PEAK * STEP_S * curve(step)) for step in range(4)]
    assert sorted(ratios[:2]) == pytest.approx([0.5, 1.5])
    assert ratios[2:] == pytest.approx(ratios[:2])


def test_the_minutes_of_a_trace(tmp_path: Path) -> None:
    file = tmp_path / "azure.csv"
    rows = [
        f"2026-03-01 00:{n // 3:02}:{10 * (n % 3):02}.0,{90 if n < 3 else 30},10" for n in range(9)
    ]
    file.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "\n".join(rows) + "\n")
    found = bursts("azure", str(file))
    # The last minute is incomplete.
    assert found.factors == pytest.approx((300 / 210, 120 / 210))
    assert found.prompt_share == pytest.approx((3 * 90 + 6 * 30) / (3 * 90 + 6 * 30 + 90))
