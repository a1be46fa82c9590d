"""`hedgerow plan` end to end on small logs, and its errors."""

import argparse
import json
from collections.abc import Callable, Iterator
from math import pi, sin
from pathlib import Path
from typing import Any

import pytest

from router.lab.plan.command import add_arguments, main
from tests.lab.plan.logs import EPOCH, lines, write

WINDOWS = 5 * 24
TYPES = "types: [{name: gpu, cost: 2.5, models: {m: {throughput: 20, min: 1}}}]\n"


def requests(window: int) -> int:
    """A daily curve by hours."""
    return round(60.0 + 40.0 * sin(2.0 * pi * window / 24))


def run(*words: str, sleep: Callable[[float], None] | None = None) -> int:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    args = parser.parse_args(words)
    return main(args) if sleep is None else main(args, sleep=sleep)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("log")
    return write(folder / "access.log", lines(WINDOWS, requests, window_s=3600.0))


@pytest.fixture
def types(tmp_path: Path) -> str:
    file = tmp_path / "plan.yaml"
    file.write_text(TYPES)
    return str(file)


def test_a_log_alone(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(log, "--window", "1h", "--method", "seasonal") == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "measured in the log" in out
    assert "tokens/s per replica, from" in out
    assert "Cost: plan " in out
    assert "reactive rule" in out
    assert "seasonal naive (day): error" in out


def growing(window: int) -> int:
    """Five times as many requests at the end as at the begin."""
    return 40 + 160 * window // WINDOWS


def test_a_fleet_that_was_never_full_is_not_enlarged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The throughput of an idle fleet is not its capacity."""
    path = write(tmp_path / "access.log", lines(WINDOWS, growing, window_s=3600.0))
    prom = tmp_path / "plan.prom"
    words = [path, "--window", "1h", "--prometheus-file", str(prom)]
    assert run(*words) == 0
    for gauge in ("desired", "reactive", "current"):
        (number,) = numbers(prom, f"hedgerow_plan_{gauge}_replicas")
        assert number <= 2.0
    assert numbers(prom, "hedgerow_plan_unserved_ratio") == [0.0]
    out = capsys.readouterr().out
    assert "at least " in out and "no replica was full" in out and "--types" in out
    assert "above the utilisation limit" not in out
    assert run(*words, "--json") == 0
    (place,) = json.loads(capsys.readouterr().out)["places"]
    assert place["capacity_at_least"] is True and place["utilisation"] is None


def test_a_fleet_that_was_full_is_enlarged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In each tenth hour the demand is higher, and requests wait for room."""

    def busy() -> Iterator[dict[str, Any]]:
        for number, line in enumerate(lines(WINDOWS, growing, window_s=3600.0)):
            hour = int((line["ts"] - EPOCH) // 3600.0)
            is_late = hour % 10 == 9 and number % 5 == 0
            yield {**line, "ttft_ms": 9000.0, "queue_ms": 8800.0} if is_late else line

    path = write(tmp_path / "access.log", busy())
    prom = tmp_path / "plan.prom"
    assert run(path, "--window", "1h", "--prometheus-file", str(prom)) == 0
    out = capsys.readouterr().out
    assert "at least " not in out and "no replica was full" not in out
    (number,) = numbers(prom, "hedgerow_plan_desired_replicas")
    assert number > 2.0


def numbers(prom: Path, gauge: str) -> list[float]:
    return [
        float(line.rpartition(" ")[2])
        for line in prom.read_text().splitlines()
        if line.startswith(gauge)
    ]


def test_all_outputs(
    log: str, types: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    html, prom = tmp_path / "plan.html", tmp_path / "plan.prom"
    words = ["--types", types, "--window", "1h", "--json", "--html", str(html)]
    assert run(log, *words, "--prometheus-file", str(prom)) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert err == ""
    (pool,) = found["pools"]
    assert (pool["model"], pool["type"], pool["now"]) == ("m", "gpu", 2)
    (place,) = found["places"]
    tested = {one["method"] for one in place["forecast"]["tested"]}
    assert tested >= {"seasonal naive (day)", "day profile", "ARIMA(3,1,2)"}
    assert place["forecast"]["method"] in tested
    assert place["forecast"]["error"] < 0.1
    # The present hour has 50 requests, the next two 50 and 60.
    assert place["peak_tokens_per_s"] > 55 * 1000 / 3600
    assert 'hedgerow_plan_desired_replicas{model="m",region="",type="gpu"}' in prom.read_text()
    assert "<img" in html.read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "plan.html",
        "plan.prom",
        "plan.yaml",
    ]


def test_it_plans_again_and_again(log: str, types: str, capsys: pytest.CaptureFixture[str]) -> None:
    slept: list[float] = []

    def sleep(time_s: float) -> None:
        slept.append(time_s)
        if len(slept) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(
            log,
            "--types",
            types,
            "--window",
            "1h",
            "--method",
            "seasonal",
            "--every",
            "10m",
            sleep=sleep,
        )
    assert slept == [600.0, 600.0]
    assert capsys.readouterr().out.count("Cost: plan") == 2


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "name either logs or --prometheus"),
        (["a.log", "--prometheus", "http://p"], "name either logs or --prometheus"),
        (["--prometheus", "http://p"], "--prometheus needs --types"),
        (["/nowhere/a.log"], "/nowhere/a.log: No such file or directory"),
        (
            ["a.log", "--html", "/nowhere/a.html"],
            "/nowhere/a.html: the directory ",
        ),
    ],
)
def test_a_mistake(words: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"hedgerow plan: {problem}")


@pytest.mark.parametrize("words", [["--window", "soon"], ["--serve", "99999"], ["--ttft-slo", "0"]])
def test_invalid_flags_are_refused(words: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run("a.log", *words)
    assert caught.value.code == 2


def test_a_bad_types_file_is_explained(
    log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text("types: []\nperoid: 1h\n")
    assert run(log, "--types", str(file)) == 2
    err = capsys.readouterr().err
    assert f"hedgerow plan: {file}: the configuration has 2 problems:" in err
    assert "peroid: unknown key; did you mean period?" in err


def test_a_file_of_another_format_is_a_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.log"
    file.write_text("hello\n")
    assert run(str(file)) == 2
    assert f"hedgerow plan: {file}:1: not an access log" in capsys.readouterr().err
