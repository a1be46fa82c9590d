"""A replay of a log reports its own accuracy: logs of known engines."""

import json
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from router.cli import main
from router.config.varied import varied
from router.lab.simulator.scenario import Group, Scenario, equal
from router.lab.simulator.workloads import Mix
from tests.lab.replay.logs import CORE, TIMING, coefficients, logged, traffic, write

FIXED = "fixed:delay_s=0.02"
SCENARIO = Scenario(groups=equal(3, CORE, TIMING), sample_s=0.0)


@pytest.fixture(scope="module")
def lines() -> list[dict[str, Any]]:
    return logged(SCENARIO)


@pytest.fixture
def log(lines: list[dict[str, Any]], tmp_path: Path) -> Path:
    return write(tmp_path / "access.log", lines)


def replayed(log: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """The exit status, and the JSON document."""
    figures = log.with_suffix(".json")
    status = main(["replay", str(log), "--jobs", "1", "--json", str(figures), *words])
    return status, json.loads(figures.read_text())


def errors(content: dict[str, Any], part: str = "all") -> dict[str, float | None]:
    rows = content["truth"]["rows"]
    return {row["figure"]: row["error"] for row in rows if row["part"] == part}


def test_a_calibrated_replay_is_trusted(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, content = replayed(log, "--calibrate")
    assert status == 0
    assert content["truth"]["trusted"] is True
    found = errors(content)
    for figure in ("TTFT p50", "TTFT p90", "TPOT p50", "TPOT p90"):
        error = found[figure]
        assert error is not None and abs(error) < 10.0, (figure, found)
    assert {"TTFT p99", "wait p50", "hit rate"} <= set(found)
    assert {row["part"] for row in content["truth"]["rows"]} == {
        *("all", "class (none)", "class high")
    }
    assert [run["replicas"] for run in content["runs"]] == [3]  # the fleet of the log
    out = capsys.readouterr().out
    assert "The simulation matches the second half of the log" in out
    assert "fleet:        3 replicas\n" in out and "at most 32 sequences" in out
    assert "logged" in out and "simulated" in out


def test_a_few_wrong_slots_do_not_spoil_a_replay(tmp_path: Path) -> None:
    """The router did not learn the slots, except for a wrong number for a short time."""
    busy = logged(SCENARIO, traffic(rate=7.0, duration_s=100.0))
    path = tmp_path / "access.log"
    for wrong in (range(0), range(18), range(300, 318)):
        changed = []
        for number, line in enumerate(busy):
            line = {key: value for key, value in line.items() if key != "slots"}
            changed.append({**line, "slots": 4} if number in wrong else line)
        status, content = replayed(write(path, changed), "--timing", coefficients(TIMING))
        assert (status, content["truth"]["trusted"]) == (0, True), (wrong, errors(content))
        assert [run["replicas"] for run in content["runs"]] == [3]


def test_another_hit_rate_than_the_logged_one_is_refused(
    lines: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The hashes of half of the requests are missing, so the simulation has fewer hits."""
    changed = [
        {key: value for key, value in line.items() if key != "blocks" or number % 2}
        for number, line in enumerate(lines)
    ]
    path = write(tmp_path / "access.log", changed)
    words = ("--timing", coefficients(TIMING.scaled(1.0)), "--policy", "p2c")
    status, content = replayed(path, *words)
    error = errors(content)["hit rate"]
    assert error is not None and error < -15.0
    assert status == 3
    assert f"all: the error of hit rate is −{-error:.1f} pt" in capsys.readouterr().out


def test_engines_that_are_taken_to_be_three_times_too_slow_are_refused(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = ("--timing", coefficients(TIMING.scaled(3.0)))
    html = log.with_suffix(".html")
    status, content = replayed(log, *wrong, "--policy", "p2c", "--html", str(html))
    assert status == 3
    assert content["truth"]["trusted"] is False
    assert len(content["runs"]) == 1  # only the log itself; no candidate is simulated
    out, err = capsys.readouterr()
    assert "all: the error of TPOT p50 is +" in out
    assert "This engine model is not accurate enough to rank candidates." in out
    assert "in SLO" not in out
    assert err.startswith(
        f"{html} written\nhedgerow replay: the simulation differs too much from the log"
    )
    assert "Log and simulation" in html.read_text()
    assert "all: the error of TPOT p50 is +" in unescape(html.read_text())

    status, content = replayed(log, *wrong, "--policy", "p2c", "--anyway")
    assert status == 0
    assert [run["policy"] for run in content["runs"]] == ["p2c"]
    assert "not accurate enough to rank candidates" in capsys.readouterr().out


def test_the_right_coefficients_are_trusted_without_a_fit(log: Path) -> None:
    status, content = replayed(log, "--timing", coefficients(TIMING), "--quiet")
    assert (status, content["truth"]["trusted"]) == (0, True)


def test_the_fit_does_not_see_what_it_is_judged_by(
    lines: list[dict[str, Any]], tmp_path: Path
) -> None:
    """From the middle of the log the engines are three times as slow: the fit is refused."""
    slow = {
        line["id"]: line
        for line in logged(replace(SCENARIO, groups=equal(3, CORE, TIMING.scaled(3.0))))
    }
    times = [line["ts"] for line in lines]
    middle = (min(times) + max(times)) / 2.0
    changed = [line if line["ts"] < middle else slow[line["id"]] for line in lines]
    _, one = replayed(write(tmp_path / "one.log", lines), "--calibrate")
    status, other = replayed(write(tmp_path / "other.log", changed), "--calibrate")
    assert other["facts"]["engine model"] == one["facts"]["engine model"]
    assert status == 3
    error = errors(other)["TPOT p50"]
    assert error is not None and error < -50.0


def test_indistinguishable_candidates_are_named(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    near = coefficients(TIMING.scaled(1.1))  # wrong, but within the trusted error
    asked = ("--policy", "kv_aware", "--policy", "kv_aware:miss_cost=1.01", "--policy", "random")
    status, content = replayed(log, "--timing", near, *asked)
    assert status == 0
    said = [line for line in content["findings"] if "cannot be ranked by" in line]
    assert any(line.startswith("kv_aware and kv_aware:miss_cost=1.01 cannot") for line in said)
    assert all(line in capsys.readouterr().out for line in said[:1])


def test_groups_of_two_models_are_fitted_and_judged_apart(tmp_path: Path) -> None:
    """A small model on two replicas; a model twice as slow on one replica with less KV cache."""
    first = Group(replicas=2, core=CORE, timing=TIMING, models=("small",))
    slow = replace(CORE, num_blocks=400)
    second = Group(replicas=1, core=slow, timing=TIMING.scaled(2.0), models=("large",))
    scenario = replace(SCENARIO, groups=(first, second))

    class Named(Mix):
        """Traffic in which each third request is for the large model."""

        def __iter__(self):  # type: ignore[no-untyped-def]
            for arrival in super().__iter__():
                arrival.model = "large" if arrival.number % 3 == 0 else "small"
                yield arrival

    path = write(tmp_path / "access.log", logged(scenario, Named(traffic(3.0, 300.0))))
    status, content = replayed(path, "--calibrate")
    assert status == 0, content["truth"]
    parts = {row["part"] for row in content["truth"]["rows"]}
    assert {"model large", "model small", "group 1: 2 replicas for small"} <= parts or {
        *("model large", "model small", "group 2: 2 replicas for small")
    } <= parts
    facts = content["facts"]
    assert "in 2 groups" in facts["fleet"]
    engines = facts["engine 1"] + facts["engine 2"]
    assert "for large" in engines and "for small" in engines
    models = {facts["engine model 1"], facts["engine model 2"]}
    assert len(models) == 2


@pytest.mark.parametrize("replicas", ["replicas: [http://r0:1]\n", ""], ids=["some", "none"])
def test_the_configuration_is_the_one_that_is_simulated(
    replicas: str, log: Path, tmp_path: Path
) -> None:
    """The simulated fleet is that of the log, even if the router got its replicas by flags."""
    config = tmp_path / "hedgerow.yaml"
    config.write_text(
        f"{replicas}routing: {{policy: p2c}}\nqueue: {{policy: strict}}\n"
        "hedging: {policy: 'off'}\npolling: {interval: 3s}\n"
    )
    timing = ("--timing", coefficients(TIMING))
    status, content = replayed(log, *timing, "--config", str(config), "--anyway")
    assert status == 0
    assert [run["policy"] for run in content["runs"]] == ["p2c"]
    facts = content["facts"]
    assert facts["queue"].startswith("strict;") and facts["hedging"] == "off"
    assert "polled every 3 s" in facts["routers"]


def test_hedging_is_an_axis(log: Path) -> None:
    words = ("--hedging", "off", "--hedging", FIXED, "--queue", "off", "--queue", "fair")
    _, content = replayed(log, "--timing", coefficients(TIMING), *words)
    assert [run["policy"] for run in content["runs"]] == [
        *("kv_aware, queue off, hedging off", f"kv_aware, queue off, hedging {FIXED}"),
        *("kv_aware, queue fair, hedging off", f"kv_aware, queue fair, hedging {FIXED}"),
    ]
    hedged = [run["hedged"] for run in content["runs"]]
    assert hedged[0] == hedged[2] == 0 and min(hedged[1], hedged[3]) > 0


def test_a_configuration_with_mistakes_is_refused_as_check_refuses_it(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "hedgerow.yaml"
    config.write_text("replicas: [http://r0:1]\nrouting: {policy: nope}\nnothing: 1\n")
    assert main(["check", str(config)]) == 2
    problems = capsys.readouterr().err.splitlines()[1:]
    assert len(problems) == 2
    assert main(["replay", str(log), "--config", str(config)]) == 2
    assert capsys.readouterr().err.splitlines()[1:] == problems


def test_a_log_that_shows_no_first_token_is_not_judged(
    lines: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = [{**line, "stream": False} for line in lines]
    status, content = replayed(write(tmp_path / "access.log", whole))
    assert status == 0
    assert content["truth"]["judged"] is False and content["truth"]["trusted"] is False
    assert "Not compared" in capsys.readouterr().out


def test_without_a_queue_the_log_is_simulated_without_one(tmp_path: Path) -> None:
    """The queue setting of the configuration counts, not the default."""
    scenario = replace(SCENARIO, config=varied(queue={"enabled": False}))
    path = write(tmp_path / "access.log", logged(scenario, traffic(5.0, 60.0)))
    config = tmp_path / "hedgerow.yaml"
    config.write_text("replicas: [http://r0:1]\nqueue: {enabled: false}\n")
    _, content = replayed(path, "--timing", coefficients(TIMING), "--config", str(config))
    assert "queue" not in content["facts"]


def test_sessions_are_replayed_in_a_closed_loop(
    lines: list[dict[str, Any]], tmp_path: Path
) -> None:
    """Each of four sessions sends its next request after its answer. With engines ten times as slow
    no session has two requests running; with the times of the log, requests pile up.
    """
    path = write(
        tmp_path / "access.log",
        [{**line, "session": f"s{place % 4}"} for place, line in enumerate(one_by_one(lines))],
    )
    slow = ("--timing", coefficients(TIMING.scaled(10.0)), "--anyway", "--queue", "off")
    _, open_loop = replayed(path, *slow)
    _, closed = replayed(path, *slow, "--closed-loop")
    assert "sessions in a closed loop" in closed["facts"]["traffic"]
    assert closed["truth"] == open_loop["truth"]  # judged by the log's own times
    one, other = open_loop["runs"][0], closed["runs"][0]
    assert one["requests"] == other["requests"]
    assert other["span_s"] > 1.5 * one["span_s"]
    assert other["ttft_s"]["p90"] < 0.5 * one["ttft_s"]["p90"]


def one_by_one(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first 200 requests by arrival; each session waits for its answers."""
    found = []
    ends = [0.0] * 4
    for place, line in enumerate(sorted(lines, key=lambda line: line["ts"])[:200]):
        at = max(ends[place % 4] + 0.1, line["ts"])
        found.append({**line, "ts": at})
        ends[place % 4] = at + line["duration_ms"] / 1e3
    return found
