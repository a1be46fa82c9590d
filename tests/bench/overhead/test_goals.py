"""The goals' arithmetic: ratios within one run, and no verdict without a figure."""

import argparse
import json
import socket
from pathlib import Path
from types import ModuleType

import pytest
import uvloop

from bench.findings.found import Found
from bench.hedging import cli as hedging
from bench.overhead import goals, internal, measure, report, works
from bench.overhead.parts import PARTS
from bench.overhead.plan import Plan
from bench.overhead.row import Row
from bench.overhead.works import Marks
from bench.priority import cli as priority
from router.core.text.table import Column, Table
from router.lab.overhead import shapes
from router.lab.overhead.processes import Orderly


def row(name: str, **figures: float) -> Row:
    made = Row(name)
    for figure, value in figures.items():
        made.add(figure, value)
    return made


def rows(**figures: float) -> dict[str, Row]:
    return {
        "hedgerow": row("hedgerow", **{"json_c4_us": 30.0, "rss_mb": 50.0, **figures}),
        "haproxy": row("haproxy", json_c4_us=20.0),
    }


def test_a_ratio_is_taken_within_each_round() -> None:
    """In the second round the machine is three times as slow for both routers."""
    table = {"hedgerow": Row("hedgerow"), "haproxy": Row("haproxy")}
    for number, (own, other) in enumerate(((30.0, 20.0), (96.0, 60.0), (28.0, 20.0))):
        table["hedgerow"].add("json_c4_us", own, number)
        table["haproxy"].add("json_c4_us", other, number)
    verdict = goals.ratio(table, "JSON", "json_c4_us", "haproxy", 1.55)
    assert verdict.value == pytest.approx(1.5)
    assert verdict.here == "1.50 (1.40 to 1.60)"


@pytest.mark.parametrize(
    ("value", "here", "words"),
    [
        (3.2, "3.20", "missed by 100 %"),
        (1.7, "1.70", "missed by 6.2 %"),
        (1.605, "1.605", "missed by 0.31 %"),
        (1.600001, "1.600001", "missed by 6.2e-05 %"),
        (1.6, "1.60", "met"),
    ],
)
def test_no_rounding_hides_a_miss(value: float, here: str, words: str) -> None:
    verdict = goals.Verdict("a", "", 1.6, value)
    assert (verdict.here, verdict.words()) == (here, words)


@pytest.mark.parametrize(
    ("value", "words", "met"),
    [
        (1.2, "met, target met", True),
        (1.8, "met, target missed by 20 %", True),
        (2.2, "missed by 10 %, target missed by 47 %", False),
    ],
)
def test_a_target_is_judged_beside_the_limit(value: float, words: str, met: bool) -> None:
    verdict = goals.Verdict("a", "", 2.0, value, target=1.5)
    assert (verdict.words(), verdict.met) == (words, met)


def test_nothing_is_met_without_a_figure() -> None:
    table = rows()
    table["sglang-router"] = Row("sglang-router", absent="not installed")
    absent = goals.ratio(table, "JSON", "json_c4_us", "sglang-router", 1 / 3)
    assert (absent.value, absent.met) == (None, False)
    assert absent.words() == "not measured: sglang-router is absent"
    missing = goals.ratio(table, "JSON", "json_c4_us", "nginx", 1.0)
    assert missing.words() == "not measured: nginx not in this run"
    table["haproxy"].add("added_us", -0.5)  # noise larger than the measured value
    table["hedgerow"].add("added_us", 10.0)
    assert goals.ratio(table, "latency", "added_us", "haproxy", 3.0).value is None


def test_a_goal_that_is_missed_is_an_exit_status() -> None:
    met, short = (goals.Verdict("a", "", 1.0, value) for value in (1.0, 1.1))
    unknown = goals.Verdict("a", "", 1.0, None, "nobody to compare with")
    assert not goals.missed([], is_quick=False)
    assert not goals.missed([met, unknown], is_quick=False)
    assert goals.missed([met, short, unknown], is_quick=False)
    assert not goals.missed([short], is_quick=True)


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("cli", [hedging, priority])
def test_the_commands_say_so(
    cli: ModuleType,
    quick: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each part is replaced by one that misses its goal."""
    short = goals.Verdict("a", "at most 1", 1.0, 2.0)
    missed = Found("A bench", "a method", Table([Column("n", "n")], []), verdicts=[short])
    found = [missed] if cli is hedging else missed
    monkeypatch.setattr(f"{cli.PARTS['http']}.run", lambda *_: found)
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    words = ["--part", "http", *(["--quick"] if quick else [])]
    assert cli.main(parser.parse_args(words)) == (0 if quick else 1)
    assert "missed by 100 %" in capsys.readouterr().out


def test_every_goal_is_judged_even_of_an_empty_run() -> None:
    verdicts = goals.judge({}, {}, "no figure")
    assert len(verdicts) == 17
    assert all(v.value is None and not v.met and v.note for v in verdicts)
    [decision] = [v for v in goals.judge({}, {"decision_64": 12.0}, "") if v.value is not None]
    assert decision.met and decision.goal == "≤ 15 µs"


def a_report() -> report.Report:
    own = Row("hedgerow", "0.1", "as shipped")
    own.add("json_c32_us", 30.04)
    own.add("rss_mb", 44.0)
    other = Row("haproxy", "2.6", "logging")
    other.add("json_c32_us", 20.0)
    other.add("others_cpu", 1.4)
    other.problem("json_c32", "status errors: 2")
    gone = Row("envoy", absent="not installed")
    rows = [own, other, gone]
    parts = {"internal": 9.5}
    verdicts = goals.judge({row.name: row for row in rows}, parts, "no figure")
    return report.Report({"CPUs": 2}, rows, verdicts, "Load: wrk.", parts)


def test_the_text_table() -> None:
    lines = report.text(a_report()).splitlines()
    head = next(line for line in lines if "hedgerow" in line)
    assert head.split() == ["hedgerow", "haproxy"]
    row = next(line for line in lines if "JSON request, c=32" in line)
    assert row.split()[-2:] == ["30.0", "20.0!"]
    # the table has no line for a figure that no router has
    assert not any("requests/s, c=4 " in line for line in lines)
    assert "! haproxy, json_c32: status errors: 2" in lines
    assert "envoy: absent: not installed" in lines
    assert any(line.startswith("! 1.4 CPUs were busy") for line in lines)
    assert any(line.startswith("internal overhead: request parsed") for line in lines)
    assert "Load: wrk." in lines
    goal = next(line for line in lines if "≤ 2 × haproxy, target 1.7" in line)
    assert " ".join(goal.split()).startswith(
        "JSON request, c=32 ≤ 2 × haproxy, target 1.7 1.50 met, target met (haproxy: status"
    )


def test_the_json_says_all_of_it() -> None:
    found = json.loads(json.dumps(a_report().as_json()))
    assert [row["name"] for row in found["peers"]] == ["hedgerow", "haproxy", "envoy"]
    assert found["peers"][0]["figures"]["json_c32_us"] == 30.04
    assert found["goals"][0]["met"] is True
    assert found["goals"][0]["verdict"] == (
        "met, target met (haproxy: status errors: 2; the machine was busy with other work)"
    )
    assert found["parts_us"] == {"internal": 9.5}


class Pairs(Marks):
    """Counts its own use: every work marks each of its operations."""

    def __init__(self) -> None:
        self.open = 0
        self.pairs = 0

    def begin(self) -> None:
        assert not self.open
        self.open = 1

    def end(self) -> None:
        assert self.open
        self.open = 0
        self.pairs += 1

    def take(self) -> float:
        pairs, self.pairs = self.pairs, 0
        return float(pairs)


@pytest.mark.parametrize("name", works.WORKS)
def test_each_operation_of_a_work_is_marked(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(works, "DEEP", 200)
    differences = ("queue_10", "queue_deeper", "hedging_never", "hedging_armed")

    async def run() -> float:
        work = await works.WORKS[name](tmp_path)
        return await work(Pairs(), 30)

    assert uvloop.run(run()) == (0.0 if name in differences else 1.0)


def test_every_part_is_measured() -> None:
    found, note = internal.measure(blocks=1)
    assert note == ""
    assert found.keys() == {part.name for part in PARTS}
    assert found["internal"] > 0 and found["json_request"] > 0


def test_streams_whose_client_does_not_read_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "SETTLE_S", 1.0)
    with Orderly("bench.overhead.upstream", "2") as upstream:
        ports = upstream.read()
        # No load generator: nothing is measured here.
        meter = measure.Meter(Plan(), ports, upstream, None)
        quiet = Row("quiet")
        assert meter.settled(quiet) and quiet.problems == {}
        prompt = shapes.Prompt("127.0.0.1", ask=shapes.Ask(100_000, 50.0))
        with socket.create_connection(("127.0.0.1", ports[1])) as reader:
            reader.sendall(prompt.next())
            assert reader.recv(1)
            busy = Row("busy")
            assert not meter.settled(busy)
            assert "clients had left" in busy.problems["token_paced"][0]
        monkeypatch.setattr(measure, "SETTLE_S", 30.0)
        assert meter.settled(Row("gone"))
