"""Rounds rotate the order of the routers, and a router that ends does not stop the others."""

from pathlib import Path

import pytest

from bench.overhead import measure, peers, plan, rounds, row
from router.lab.overhead import routers
from router.lab.overhead.processes import Orderly, Placement


def test_figures_are_medians_and_ratios_are_taken_within_rounds() -> None:
    own, other = row.Row("own"), row.Row("other")
    for number, (mine, theirs) in enumerate(((10.0, 5.0), (40.0, 10.0), (9.0, 3.0))):
        own.add("cpu", mine, number)
        other.add("cpu", theirs, number)
    other.add("cpu", 0.0, 3)
    own.add("cpu", 1.0, 3)
    assert own.figures["cpu"] == 9.5
    assert own.spread("cpu") == (1.0, 40.0)
    assert row.ratios(own.samples["cpu"], other.samples["cpu"]) == [2.0, 4.0, 3.0]


class Quiet(measure.Meter):
    """Records the turns of routers; the router `ends` ends at its second c=32 turn."""

    def __init__(self) -> None:
        self.turns: list[tuple[str, str, int]] = []

    def _note(self, kind: str, turn: measure.Turn) -> None:
        self.turns.append((kind, turn.peer.name, turn.round))

    def warm_up(self, turn: measure.Turn) -> None: ...

    def latency(self, turn: measure.Turn) -> None: ...

    def flat(self, turn: measure.Turn) -> None: ...

    def memory(self, turn: measure.Turn) -> None: ...

    def large(self, turn: measure.Turn) -> None: ...

    def cadence(self, turn: measure.Turn) -> None: ...

    def idle(self, turn: measure.Turn, figure: str, streams: int) -> None: ...

    def requests(self, turn: measure.Turn, tag: str, load: object) -> None:
        self._note(tag, turn)
        if (tag, turn.peer.name, turn.round) == ("c32", "ends", 1):
            raise routers.PeerError("ended with 1 during json_c32")

    def paced(self, turn: measure.Turn) -> bool:
        self._note("paced", turn)
        return turn.round > 0


class Standing(routers.Peer):
    settings = ""
    starts = 0

    def version(self) -> str:
        return "1"

    def start(self) -> None:
        type(self).starts += 1


class Stays(Standing):
    name = "stays"


class Ends(Standing):
    name = "ends"


class Missing(Standing):
    name = "missing"

    def version(self) -> str:
        raise routers.PeerError("not installed")


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> tuple[list[row.Row], Quiet]:
    monkeypatch.setattr(rounds, "others_cpu", lambda: 0.0)
    meter = Quiet()
    run = rounds.Rounds(plan.Plan(rounds=2), Placement(), [1, 2], meter)
    return run.measure([Missing, Ends, Stays]), meter


def test_missing_or_ended_routers_are_reported_and_the_others_continue(
    rows: tuple[list[row.Row], Quiet],
) -> None:
    found, meter = rows
    assert [(each.name, each.absent) for each in found] == [
        ("missing", "not installed"),
        ("ends", "ended with 1 during json_c32"),
        ("stays", ""),
    ]
    turns = [(name, number) for kind, name, number in meter.turns if kind == "c4"]
    assert turns == [("ends", 0), ("stays", 0), ("ends", 1), ("stays", 1)]
    assert {name for kind, name, _ in meter.turns if kind == "16k"} == {"stays"}


def test_a_router_that_reads_on_is_restarted(rows: tuple[list[row.Row], Quiet]) -> None:
    """Started once for idle streams, once for the run, once after its first paced turn."""
    assert rows and Stays.starts % 3 == 0


def test_a_router_that_reads_less_than_wrk_counts_is_a_problem(tmp_path: Path) -> None:
    """An answer that does not come from an upstream, such as a router's own error page."""
    from bench.overhead import wrk

    class Inventing(wrk.Wrk):
        def run(self, port: int, load: wrk.Load, seconds: int) -> wrk.Found:
            return wrk.Found(500, 500 * 60, 1.0, 100.0, 200.0, {"status": 500})

    with Orderly("bench.overhead.upstream", "2") as upstream:
        ports = upstream.read()
        meter = measure.Meter(plan.Plan(), ports, upstream, Inventing("", tmp_path, ()))
        peer = peers.Direct(routers.Site(tmp_path, ports, Placement()))
        peer.start()
        found = row.Row("direct")
        meter.requests(measure.Turn(peer, found, 0), "c32", wrk.Load(connections=32))
    assert found.problems["json_c32"] == [
        "status errors: 500",
        "500 answers to 0 requests at the upstreams",
        "short answers: 30000 bytes in 500",
    ]
