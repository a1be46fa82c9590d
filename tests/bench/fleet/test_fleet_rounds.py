"""The plan of a run: every contestant in every round, in rotated order, and none played twice."""

from bench.fleet import contestants, rounds
from bench.fleet.contestants import Ready
from bench.fleet.kept import Kept, Plan
from bench.fleet.run import Row, Workload
from bench.fleet.script import Script
from tests.bench.fleet.fleet_rows import row

KINDS: list[type[Ready]] = [
    contestants.hedgerow("kv_aware"),
    contestants.HaproxyFleet,
    contestants.NginxFleet,
]
PLAN = Plan("abc1234", "compiled", "two CPUs", ("a", "b"), ("chat",), 0.7, 1, "whole")


class Stage:
    def __init__(self) -> None:
        self.played: list[tuple[str, str, int]] = []

    def measure(self, kind: type[Ready], workload: Workload, round: int) -> Row:
        self.played.append((kind.name, workload.name, round))
        return row(kind.name, 0.1, round, workload.name)


def prepare(number: int) -> list[Workload]:
    script = Script((), 0.0, 20.0 + number)
    return [Workload(name, script, 0.7, 10.0, 14.0, 14.0, 0.1) for name in ("chat", "unique")]


def played(kept: Kept, count: int) -> tuple[list[tuple[str, str, int]], list[str]]:
    stage = Stage()
    said: list[str] = []
    rounds.play(stage, KINDS, prepare, count, kept, said.append)
    return stage.played, said


def test_each_round_begins_with_another_contestant() -> None:
    turns, _ = played(Kept(None, PLAN), 3)
    assert len(set(turns)) == len(turns) == 3 * 3 * 2
    for workload in ("chat", "unique"):
        first = [next(t[0] for t in turns if t[1:] == (workload, n)) for n in range(3)]
        assert first == [kind.name for kind in KINDS]


def test_only_missing_rounds_are_played() -> None:
    kept = Kept(None, PLAN)
    kept.add(1, [row("haproxy", 0.1, 1)])
    turns, _ = played(kept, 3)
    assert {turn[2] for turn in turns} == {0, 2}
    assert played(kept, 3) == ([], [])
