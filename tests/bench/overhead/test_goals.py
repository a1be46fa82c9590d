"""The goals' arithmetic: ratios within one run, and no verdict without a figure."""

from __future__ import annotations

import argparse
from types import ModuleType

import pytest

from bench.findings.found import Found
from bench.hedging import cli as hedging
from bench.overhead import goals
from bench.overhead.row import Row
from bench.priority import cli as priority
from router.core.text.table import Column, Table


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
