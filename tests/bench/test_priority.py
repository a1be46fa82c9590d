"""`hedgerow bench priority`: traffic, counted requests, verdicts, and one run end to end."""

import json
from pathlib import Path

import pytest

from bench.priority import cli, rows
from bench.priority.http import stage, stage as texts
from bench.priority.rows import Row, times
from bench.priority.simulated import deadlines, world
from policies.queueing.contract import order_names
from router.lab.overhead.processes import Placement
from tests.commands import command_of

run = command_of(cli)


def row(order: str, tokens_s: float, hits: float | None) -> Row:
    return Row(order, {"high": times([0.5, 1.0])}, tokens_s, hits)


# -- traffic --------------------------------------------------------------------------------------


def test_every_order_has_its_row() -> None:
    assert set(rows.ALL) == {rows.NONE, *order_names()}
    assert not rows.rules(rows.NONE).enabled
    assert rows.rules("drr").enabled and rows.rules("drr").policy == "drr"


def test_what_comes_by_itself_does_not_depend_on_the_answers() -> None:
    def listed(crowd: world.Crowd) -> list[tuple[float, str, int, tuple[int, ...]]]:
        return [(one.at, one.tenant, one.prompt_tokens, one.blocks) for one in crowd]

    plain, other = world.Crowd(1, 20.0), world.Crowd(1, 20.0)
    first = next(iter(plain))
    assert listed(world.Crowd(1, 20.0)) == listed(other)
    (following,) = plain.follow(first, 3.0)
    assert (following.at, following.priority, following.tenant) == (
        3.0,
        first.priority,
        first.tenant,
    )
    assert following.number != first.number and not plain.follow(first, 20.0)


# -- figures and goals ----------------------------------------------------------------------------


def test_the_worst_order_stands_for_all() -> None:
    measured = [
        row(rows.NONE, 900.0, 0.8),
        row("fifo", 1000.0, 0.72),
        row("fair", 980.0, 0.6),
        row("strict", 900.0, 0.4),
    ]
    loss, hits, fair_loss, fair_hits = rows.judge(measured, "fair")
    assert (loss.here, loss.met, loss.note) == ("-10.0%", False, "worst: strict")
    assert (hits.here, hits.met, hits.note) == ("50%", False, "worst: strict")
    assert (fair_loss.here, fair_loss.met) == ("-2.0%", True)
    assert (fair_hits.here, fair_hits.met) == ("75%", True)


# -- the whole way --------------------------------------------------------------------------------


def test_what_is_urgent_comes_sooner_with_a_queue() -> None:
    length = world.Length(warm_s=10.0, measured_s=20.0, seeds=1)
    none, fair = world.run([rows.NONE, "fair"], 1, 1, length)
    before, after = none.of("high").p50, fair.of("high").p50
    assert before is not None and after is not None and after < before
    assert none.of("high").requests == fair.of("high").requests
    assert fair.tokens_s > 0.8 * none.tokens_s


def test_the_command_prints_a_table_and_writes_its_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = tmp_path / "out.json"
    words = ["--part", "simulated", "--quick", "--orders", "fifo,no queue", "--jobs", "1"]
    assert run(*words, "--json", str(figures)) == 0
    out, _ = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines() if line[:2] in ("no", "fi")] == [
        "no",
        "fifo",
    ]
    assert "every order: prefix hits against no queue" in out
    (content,) = json.loads(figures.read_text())
    assert [one["order"] for one in content["rows_by_order"]] == ["no queue", "fifo"]


@pytest.mark.parametrize("words", [["--part", "x"], ["--orders", "lifo"]])
def test_unknown_names_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*words) == 2
    assert "unknown" in capsys.readouterr().err


def test_a_second_of_traffic_over_http() -> None:
    size = texts.Size(warm=0.5, measured=1.5)
    (seen,) = stage.run(["fair"], 1, size, Placement())
    assert not seen.errors and seen.of("batch").requests > 0
    assert seen.tokens_s > 0.0 and seen.router_cpu is not None and seen.router_cpu > 0.0
    assert seen.hit_rate is not None and seen.hit_rate > 0.0


# -- deadlines ------------------------------------------------------------------------------------


def in_time(order: str, high: float) -> float:
    """Percent of the requests with the shortest deadline that were answered in time."""
    length = world.Length(warm_s=0.0, measured_s=deadlines.WAVE_S, seeds=1)
    found = deadlines.Task(order, world.scenario(order, 1), high, length).run()
    assert set(found.came) == {kind.name for kind in deadlines.KINDS}
    share = found.share("chat")
    assert share is not None
    return share


def test_an_order_by_deadline_is_not_the_order_of_arrival_where_clients_state_deadlines() -> None:
    assert in_time("edf", 1.8) > in_time("fifo", 1.8) + 2.0


def test_slide_is_not_an_order_by_deadline_where_not_all_can_be_in_time() -> None:
    assert in_time("slide", 2.2) > in_time("edf", 2.2) + 2.0
