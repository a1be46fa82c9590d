"""The integer program: small ones equal brute force, and a large one is solved within its gap."""

import ctypes
import sys
from itertools import product
from math import inf
from random import Random
from typing import Any

import pytest
import scipy.optimize

from router.lab.extras import MissingExtra
from router.lab.plan.decision import program
from router.lab.plan.decision.problem import Pool, PoolId, Problem, Segment
from router.lab.plan.decision.program import Columns, minimise
from router.lab.plan.decision.solve import solve
from router.lab.plan.observed import Place
from tests.lab.plan.decision.problems import pool, problem, segment


def knapsack(least: float) -> Columns:
    """Two integers from 0 to 3 with costs 3 and 2, of which 2 x + y is at least `least`."""
    columns = Columns()
    x, y = (columns.add(cost, 0.0, 3.0, whole=True) for cost in (3.0, 2.0))
    columns.rows.append(({x: 2.0, y: 1.0}, least, inf))
    return columns


def test_the_cheapest_integers() -> None:
    columns = knapsack(4.5)
    found = minimise(columns, columns.costs, columns.highs)
    assert found is not None
    assert found.values == pytest.approx([2.0, 1.0])
    assert found.gap == pytest.approx(0.0, abs=1e-6)


def test_nothing_is_feasible() -> None:
    columns = knapsack(10.0)
    assert minimise(columns, columns.costs, columns.highs) is None


def test_lines_of_the_solver_are_discarded(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    milp = scipy.optimize.milp

    def noisy(*args: Any, **more: Any) -> Any:
        found = milp(*args, **more)
        ctypes.CDLL(None).puts(b"a line of C code")
        return found

    monkeypatch.setattr(scipy.optimize, "milp", noisy)
    print("before")
    columns = knapsack(1.0)
    minimise(columns, columns.costs, columns.highs)
    print("after", flush=True)
    ctypes.CDLL(None).fflush(None)
    assert capfd.readouterr().out == "before\nafter\n"


def cost_of(one: Problem, counts: dict[PoolId, int]) -> float:
    return sum(
        each.cost * counts[each.id] + each.start * max(0, counts[each.id] - each.now)
        for each in one.pools
    )


def is_served(one: Problem, counts: dict[PoolId, int], part: Segment) -> bool:
    """Whether the demand of a segment fits: a linear program, by the solver without integers."""
    from scipy.optimize import linprog

    flows = [
        (place, each, part.loads[place, each.id.type], share)
        for place in dict.fromkeys(place for place, _ in part.loads)
        for each in one.pools
        for share in [
            1.0
            if each.id.place.region == place.region
            else one.shifts.get((place.region, each.id.place.region), 0.0)
        ]
        if each.id.place.model == place.model and (place, each.id.type) in part.loads and share
    ]
    places = list(dict.fromkeys(place for place, _ in part.loads))
    rows, limits = [], []
    for each in one.pools:
        count = counts[each.id]
        serving = count if each.id.type in part.starting else min(count, each.now)
        rows.append([load if to.id == each.id else 0.0 for _, to, load, _ in flows])
        limits.append(one.utilisation * serving + 1e-7)
    for source, target in one.shifts:
        for place in places:
            if place.region == source:
                rows.append(
                    [float(at == place and to.id.place.region == target) for at, to, _, _ in flows]
                )
                limits.append(one.shifts[source, target])
    whole = [[float(at == place) for at, _, _, _ in flows] for place in places]
    if not flows:
        return not places
    found = linprog(
        [0.0] * len(flows), A_ub=rows, b_ub=limits, A_eq=whole, b_eq=[1.0] * len(places)
    )
    return bool(found.status == 0)


def brute_force(one: Problem) -> float | None:
    """The smallest cost of all numbers of replicas; None: none serves all demand."""
    best = None
    for numbers in product(*(range(each.low, each.high + 1) for each in one.pools)):
        counts = {each.id: number for each, number in zip(one.pools, numbers, strict=True)}
        if any(
            sum(n for key, n in counts.items() if (key.type, key.place.region) == at) > total
            for at, total in one.totals.items()
        ):
            continue
        cost = cost_of(one, counts)
        if (best is None or cost < best) and all(is_served(one, counts, s) for s in one.segments):
            best = cost
    return best


def drawn(rng: Random) -> Problem:
    """Two regions, two types and one or two models, with lead times, shifts and totals."""
    models = ["m", "n"][: rng.randint(1, 2)]
    kinds = {"fast": 2.5, "slow": 1.0}
    pools = []
    for model, region, kind in product(models, ["eu", "us"], kinds):
        if rng.random() < 0.75:
            low = rng.randint(0, 1)
            pools.append(
                pool(
                    model,
                    region,
                    kind,
                    now=rng.randint(0, 2),
                    low=low,
                    high=low + rng.randint(0, 2),
                    cost=rng.choice([1.0, 2.0, 3.0]) * kinds[kind],
                    start=rng.choice([0.0, 0.5, 4.0]),
                )
            )
    segments = []
    for number, starting in enumerate([{"slow"}, {"slow", "fast"}]):
        loads = {
            (Place(model, region), kind): load / speed
            for model, region in product(models, ["eu", "us"])
            for load in [rng.uniform(0.0, 3.0)]
            for kind, speed in kinds.items()
        }
        segments.append(Segment(number, number + 1, frozenset(starting), loads))
    return Problem(
        tuple(pools),
        tuple(segments),
        rng.choice([0.8, 1.0]),
        {("eu", "us"): 0.5, ("us", "eu"): 1.0} if rng.random() < 0.7 else {},
        {("slow", "eu"): 3} if rng.random() < 0.4 else {},
    )


def test_small_programs_equal_brute_force() -> None:
    served = 0
    for seed in range(60):
        one = drawn(Random(seed))
        if len(one.pools) > 6:
            continue
        best = brute_force(one)
        found = solve(one)
        is_short = any(found.short)
        assert is_short is (best is None), seed
        if best is not None:
            served += 1
            slack = 1.2e-2 * max(1.0, best)  # the gap, and what moving demand counts
            assert cost_of(one, found.replicas) <= best + slack, seed
            assert all(is_served(one, found.replicas, part) for part in one.segments), seed
    assert served >= 15


def test_shortage_is_as_small_as_possible() -> None:
    one = problem(
        pool("m", "eu", now=1, high=2),
        pool("m", "us", now=1, high=1),
        segments=(segment({("m", "eu", "gpu"): 5.0}),),
        shifts={("eu", "us"): 1.0},
    )
    found = program.solve(one)
    assert found.short[0][Place("m", "eu")] == pytest.approx(2.0 / 5.0, abs=1e-4)
    assert found.shifted[Place("m", "eu"), "us"] == pytest.approx(1.0 / 5.0, abs=1e-4)
    assert sum(found.replicas.values()) == 3


def test_demand_moves_only_as_allowed() -> None:
    def replicas(shifts: dict[tuple[str, str], float]) -> dict[str, int]:
        one = problem(
            pool("m", "eu", cost=10.0),
            pool("m", "us", cost=1.0),
            segments=(segment({("m", "eu", "gpu"): 4.0, ("m", "us", "gpu"): 1.0}),),
            shifts=shifts,
        )
        return {pool.place.region: count for pool, count in program.solve(one).replicas.items()}

    assert replicas({}) == {"eu": 4, "us": 1}
    assert replicas({("eu", "us"): 0.5}) == {"eu": 2, "us": 3}
    assert replicas({("eu", "us"): 1.0}) == {"eu": 0, "us": 5}
    assert replicas({("us", "eu"): 1.0}) == {"eu": 4, "us": 1}


def test_a_start_must_be_worth_its_cost() -> None:
    def kinds(start: float) -> dict[str, int]:
        one = problem(
            pool(kind="old", now=3, cost=1.2),
            pool(kind="new", cost=1.0, start=start),
            segments=(segment({("m", "", "old"): 3.0, ("m", "", "new"): 3.0}, "old", "new"),),
        )
        return {pool.type: count for pool, count in program.solve(one).replicas.items()}

    assert kinds(0.1) == {"old": 0, "new": 3}
    assert kinds(0.3) == {"old": 3, "new": 0}


def test_a_total_is_shared_by_all_models() -> None:
    loads = {("m", "", "gpu"): 2.0, ("n", "", "gpu"): 2.0}
    loads |= {("m", "", "dear"): 2.0, ("n", "", "dear"): 1.0}
    pools = [pool("m"), pool("n"), pool("m", kind="dear", cost=3.0), pool("n", kind="dear", cost=3)]
    one = problem(*pools, segments=(segment(loads, "gpu", "dear"),), totals={("gpu", ""): 2})
    found = {(key.place.model, key.type): n for key, n in solve(one).replicas.items()}
    assert found == {("m", "gpu"): 2, ("n", "gpu"): 0, ("m", "dear"): 0, ("n", "dear"): 1}


def large() -> Problem:
    """20 models in five regions on three types, each type with a total that all models share."""
    rng = Random(7)
    models = [f"model-{n}" for n in range(20)]
    regions = [f"region-{n}" for n in range(5)]
    kinds = {"small": (1.0, 1.0), "medium": (2.2, 2.0), "large": (5.5, 4.8)}  # speed and cost
    pools: list[Pool] = []
    loads: dict[tuple[Place, str], float] = {}
    speeds = {
        (model, kind): speed * rng.uniform(0.8, 1.2)
        for model, (kind, (speed, _)) in product(models, kinds.items())
    }
    for model, region in product(models, regions):
        load = rng.uniform(0.5, 30.0)
        for kind, (_, cost) in kinds.items():
            now = rng.randint(0, 3)
            pools.append(pool(model, region, kind, now=now, high=40, cost=cost, start=0.1 * cost))
            loads[Place(model, region), kind] = load / speeds[model, kind]
    early = {key: 0.3 * load for key, load in loads.items()}
    return Problem(
        tuple(pools),
        (Segment(0, 1, frozenset({"small"}), early), Segment(1, 5, frozenset(kinds), loads)),
        0.8,
        {(a, b): 0.3 for a, b in product(regions, regions) if a != b},
        dict.fromkeys(product(kinds, regions), 120),
    )


def test_a_missing_solver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(MissingExtra, match=r"scipy.*\[lab\]"):
        program.solve(problem(pool(), segments=()))
