"""The part `moderate`: dealt requests, configurations, order of runs, ratios and verdicts."""

from collections import Counter
from math import inf, isclose
from pathlib import Path

import pytest

from bench.findings.stored import Store
from bench.fleet.capacity import saturation
from bench.sidecar.figures import Figures, Setup
from bench.sidecar.http.stage import Sidecar
from bench.sidecar.moderate import judge
from bench.sidecar.moderate.judge import GOALS, ONE, SETUPS, Row
from bench.sidecar.moderate.load import Dealer, chosen
from bench.sidecar.moderate.part import tasks
from bench.sidecar.moderate.task import Seen, Task
from bench.sidecar.moderate.traffic import RATES, Size, script, spec
from router.lab.overhead.processes import Placement
from router.lab.overhead.routers import Site

MEAN, P99, HITS = GOALS
SIZE = Size(6.0, 10.0)
SHARED = Setup(2, shares=True)


def rows(setup: Setup, mean: list[float], hits: list[float] | None = None) -> tuple[Row, Row]:
    """The row of a setup, and that of one router, which always has 1 s and half of the tokens."""
    ours = [
        Seen(100, one, 2.0 * one, hit)
        for one, hit in zip(mean, hits or [0.5] * len(mean), strict=True)
    ]
    alone = [Seen(100, 1.0, 2.0, 0.5) for _ in mean]
    return Row(setup, "chat", ours), Row(ONE, "chat", alone)


# -- traffic --------------------------------------------------------------------------------------


@pytest.mark.parametrize("workload", RATES)
def test_the_requests_of_a_seed_are_always_the_same(workload: str) -> None:
    made = script(workload, 1, SIZE)
    assert made == script(workload, 1, SIZE) != script(workload, 2, SIZE)
    assert (made.measure_from, made.until) == (SIZE.warm, SIZE.until)
    assert all(one.at < SIZE.until for one in made.conversations)
    requests = sum(len(one.turns) for one in made.conversations)
    assert isclose(requests / SIZE.until, RATES[workload], rel_tol=0.15)


@pytest.mark.parametrize("workload", RATES)
def test_the_load_is_moderate_with_all_cache_hits_only(workload: str) -> None:
    made, fleet = script(workload, 1, SIZE), spec(workload)
    rate = RATES[workload]
    warm = saturation(fleet.engine(), fleet.count, made.sizes(), made.reusable())
    assert 0.5 < rate / warm < 0.75
    assert rate > saturation(fleet.engine(), fleet.count, made.sizes())


def test_each_request_is_dealt_at_random_also_within_a_conversation() -> None:
    conversations = script("chat", 1, SIZE).conversations
    to = {
        (number, turn): chosen(1, one, 2 * turn + 2, 4)
        for number, one in enumerate(conversations)
        for turn in range(len(one.turns))
    }
    counts = Counter(to.values())
    assert set(counts) == set(range(4))
    assert min(counts.values()) > 0.7 * max(counts.values())
    pairs = [(to[number, 0], to[number, 1]) for number, turn in to if turn == 1]
    assert isclose(sum(a == b for a, b in pairs) / len(pairs), 0.25, abs_tol=0.12)


def test_a_player_sends_to_the_port_of_the_chosen_router() -> None:
    made = script("chat", 1, SIZE)

    async def count() -> list[dict[str, float]]:
        return []

    ports = [7001, 7002]
    dealer = Dealer(made, ports, 1, "bench", count)
    for one in made.conversations[:20]:
        assert dealer._port_of(one, 4) == ports[chosen(1, one, 4, 2)]
        assert chosen(1, one, 4, 1) == 0
    others = [chosen(2, one, 4, 2) for one in made.conversations]
    assert others != [chosen(1, one, 4, 2) for one in made.conversations]


# -- setups ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("setup", SETUPS, ids=judge.words)
def test_setups_differ_only_in_what_shares(setup: Setup, tmp_path: Path) -> None:
    class Kind(Sidecar):
        policy = setup.policy

    Kind.setup = setup
    config = Kind(Site(tmp_path, (1, 2), Placement())).config()
    assert config["workers"] == setup.workers
    assert config["share"] == {"url": ""}  # `started` names the server if the routers share
    assert config["routing"] == {"policy": "kv_aware"}
    assert setup.routers == 1 or setup.workers == 1
    assert judge.is_judged(setup) == (setup.shares or setup.workers > 1)


def test_the_setups_are_those_of_the_goals() -> None:
    assert [judge.words(setup) for setup in SETUPS] == [
        "one router",
        "2 routers, separate",
        "4 routers, separate",
        "2 routers, share.url",
        "4 routers, share.url",
        "workers: 2",
        "workers: 4",
    ]


def test_each_seed_begins_with_another_setup() -> None:
    wanted = tasks(5, SIZE, Placement(), "here")
    assert len(set(wanted)) == len(wanted) == 5 * len(SETUPS) * len(RATES)
    for seed in range(5):
        first = wanted[seed * len(SETUPS) * len(RATES) :][: len(RATES)]
        assert [(one.setup, one.seed) for one in first] == [(SETUPS[seed], seed + 1)] * len(RATES)
        assert [one.workload for one in first] == list(RATES)


def test_one_file_keeps_the_runs_of_several_parts(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    task = Task(ONE, "chat", 1, SIZE, Placement(), "here")
    Store(path, Seen)._append("a run of this part", Seen(mean_s=0.5))
    Store(path, Figures)._append("a run of another part", Figures({"high": 0.1}, {"high": 0.2}))
    Store(path, Figures)
    assert Store(path, Seen)._known["a run of this part"] == Seen(mean_s=0.5)
    assert task != Task(ONE, "chat", 1, SIZE, Placement(), "there")


# -- ratios and verdicts --------------------------------------------------------------------------


def test_a_ratio_is_of_runs_with_the_same_seed() -> None:
    row, _ = rows(SHARED, [1.0, 2.0, 3.0])
    one = Row(ONE, "chat", [Seen(100, mean, 1.0, 0.5) for mean in (2.0, 2.0, 2.0)])
    assert judge.ratios(row, one, MEAN) == [0.5, 1.0, 1.5]
    assert judge.text([0.5, 1.5, 1.0]) == "1.00 (0.50 to 1.50)"
    assert judge.text([]) == "-"


@pytest.mark.parametrize(("mean", "met"), [(1.09, True), (1.10, True), (1.12, False)])
def test_the_median_is_judged(mean: float, met: bool) -> None:
    row, one = rows(SHARED, [0.5, mean, mean, mean, 9.0])
    found = judge.verdict(row, one, MEAN)
    assert (found.met, found.missed) == (met, not met)
    assert found.words() == ("met" if met else "missed by 1.8 %")
    assert found.here == f"{mean:.2f} (0.50 to 9.00)"
    assert judge.verdict(row, one, P99).met  # the limit is 1.2


@pytest.mark.parametrize(("hits", "met"), [(0.7, True), (0.486, True), (0.48, False), (0.0, False)])
def test_the_share_of_hits_has_a_lower_limit(hits: float, met: bool) -> None:
    row, one = rows(SHARED, [1.0] * 5, [hits] * 5)
    found = judge.verdict(row, one, HITS)
    assert found.met == met
    assert found.here == f"{hits / 0.5:.2f} ({hits / 0.5:.2f} to {hits / 0.5:.2f})"


def test_few_pairs_are_not_judged() -> None:
    found = judge.verdict(*rows(SHARED, [9.0] * 4), MEAN)
    assert (found.met, found.missed) == (False, False)
    assert "5 are needed" in found.words()


def test_requests_without_answers_miss_the_goal_and_are_said() -> None:
    row, one = rows(SHARED, [inf] * 5)
    row.runs[0].errors = 7
    found = judge.verdict(row, one, MEAN)
    assert found.missed and "7 failed requests" in found.words()
    assert judge.ratios(one, row, MEAN) == []  # there is nothing to compare with


def test_only_routers_that_share_have_goals() -> None:
    runs = [Seen(100, 1.0, 2.0, 0.5, 0.001)] * 5
    all_rows = [Row(setup, workload, runs) for workload in RATES for setup in SETUPS]
    found = judge.found("title", "method", all_rows)
    assert len(found.verdicts) == len(RATES) * 4 * len(GOALS)
    assert all(one.met for one in found.verdicts)
    assert not [one for one in found.verdicts if "separate" in one.name]
    assert len(found.table.rows) == len(RATES) * len(SETUPS)
    shown = [cell.text for cell in found.table.rows[1]]
    assert shown[:6] == ["chat", "2 routers, separate", "1,000", "2,000", "50.0", "1.00"]
    assert shown[-1] == "1.00 (1.00 to 1.00)"
