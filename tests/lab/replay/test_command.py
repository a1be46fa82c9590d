"""`hedgerow replay` from its command line to its output files, on a small log."""

import json
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterable
from html import unescape
from pathlib import Path
from random import Random
from typing import Any

import pytest

from router.cli import main

# Engines so slow that twenty requests per second on two engines must wait.
ENGINES = ["--timing", "5,0.05,0,10,0.1,0", "--kv-tokens", "40000"]


def log_of(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    """An access log of streams that no replica answered, so its fleet is unknown."""
    usual = {"id": "x", "kind": "chat", "status": 200, "stream": True, "output_tokens": 10}
    path.write_text("".join(json.dumps({**usual, **row}) + "\n" for row in rows))
    return path


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Conversations of 256-token blocks: ten prefixes of seven blocks, each asked repeatedly."""
    rng = Random(1)
    found = []
    for number in range(120):
        prefix = rng.randrange(10)
        blocks = [prefix * 100 + place for place in range(7)] + [10_000 + number]
        found.append(
            {
                "ts": 1000.0 + (number * 47 + rng.randrange(40)) / 1000.0,
                "prompt_tokens": 2300,
                "output_tokens": rng.randrange(2, 20),
                "blocks": b64encode(b"".join(one.to_bytes(6, "big") for one in blocks)).decode(),
            }
        )
    return log_of(tmp_path / "access.log", found)


def status_of(argv: list[str]) -> object:
    """The exit status, also if argparse raises SystemExit."""
    try:
        return main(["replay", *argv])
    except SystemExit as leaving:
        return leaving.code


def rows(out: str) -> list[list[str]]:
    """The cells of the table's rows, and the words of the text below the table."""
    lines = out.splitlines()
    rule = next(n for n, line in enumerate(lines) if line.startswith("---"))
    return [line.split() for line in lines[rule + 1 :] if line]


def test_a_table_a_page_and_figures(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    html, figures = tmp_path / "out.html", tmp_path / "out.json"
    argv = [str(trace), "--replicas", "2..3", "--policy", "kv_aware", "--policy", "random"]
    assert (
        main(
            ["replay", *argv, *ENGINES, "--jobs", "1", "--html", str(html), "--json", str(figures)]
        )
        == 0
    )
    out, err = capsys.readouterr()
    for line in (
        "traffic:      access.log: 120 requests in 6 s, ",
        "fleet:        2, 3 replicas\n",
        "engine model: given: prefill 5 + 0.05 L ms, decode step 10 + 0.1 B ms\n",
        "seed:         1\n",
        "Replicas for 99 % of requests within the SLO",
    ):
        assert line in out
    table = [row[:2] for row in rows(out)[:4]]
    assert table == [["kv_aware", "2"], ["random", "2"], ["kv_aware", "3"], ["random", "3"]]
    assert err == f"{html} written\n"

    text = html.read_text()
    assert text.count("<img") == 3 and "Replay of access.log" in text
    content = json.loads(figures.read_text())
    assert [run["requests"] for run in content["runs"]] == [120] * 4
    assert content["runs"][0]["prefix_hit_rate"] > content["runs"][1]["prefix_hit_rate"] > 0.0
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("access.log", "out.html", "out.json"),
    ]


def test_the_same_arguments_give_the_same_output_in_any_number_of_processes(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["replay", str(trace), "--replicas", "2,3", "--policy", "p2c", *ENGINES]
    seen = []
    for jobs in ("1", "2"):
        assert main([*argv, "--json", "-", "--jobs", jobs]) == 0
        out, err = capsys.readouterr()
        content = json.loads(out)
        del content["run"]
        seen.append((err, json.dumps(content)))
    assert seen[0] == seen[1]
    assert main([*argv, "--json", "-", "--jobs", "1", "--seed", "2"]) == 0
    assert capsys.readouterr()[1] != seen[0][0]


def test_several_routers_are_compared_with_one_that_knows_all(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = [str(trace), "--replicas", "3", "--policy", "kv_aware", "--routers", "3", *ENGINES]
    assert main(["replay", *argv, "--jobs", "1"]) == 0
    out = capsys.readouterr().out
    assert "3 separate" in out and "3 shared" in out
    assert "cost of separate router state: TTFT mean " in out and "TTFT p99 " in out
    assert main(["replay", *argv, "--jobs", "1", "--shared"]) == 0
    out = capsys.readouterr().out
    assert "3 separate" not in out and "3 shared" in out and "cost of separate" not in out


def test_the_engine_model_is_fitted_to_an_access_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A log of engines that need 30 ms plus 0.2 ms per token, one request at a time."""
    log = tmp_path / "access.log"
    found = []
    for number in range(100):
        prompt, output = 500 + 37 * number, 50
        ttft_ms = 30.0 + 0.2 * prompt
        duration_ms = ttft_ms + 20.0 * (output - 1)
        found.append(
            {
                "ts": 1.7e9 + 10.0 * number,
                "model": "m",
                "reason": "ok",
                "replica": "gpu-1",
                "attempts": [["gpu-1", "primary", "ok", duration_ms]],
                "ttft_ms": ttft_ms,
                "duration_ms": duration_ms,
                "prompt_tokens": prompt,
                "output_tokens": output,
                "cached_tokens": 0,
            }
        )
    log_of(log, found)
    html = tmp_path / "out.html"
    argv = [str(log), "--calibrate", "--replicas", "1", "--policy", "random", "--jobs", "1"]
    assert main(["replay", *argv, "--html", str(html)]) == 0
    out_text = capsys.readouterr().out
    assert "engine model: fitted to the log: prefill " in out_text
    assert " + 0.2 L" in out_text
    calibration = [line for line in out_text.splitlines() if line.startswith("calibration: ")]
    assert calibration
    page = unescape(html.read_text())
    assert all(line.removeprefix("calibration:").strip() in page for line in calibration)


def test_policies_have_defaults_that_are_said(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["replay", str(trace), *ENGINES, "--jobs", "1", "--replicas", "2", "--limit", "40"]
    assert main(argv) == 0
    out = capsys.readouterr().out
    assert "40 requests" in out
    assert [row[0] for row in rows(out)] == ["kv_aware"]  # the default configuration
    assert "queue:        fair" in out
    assert "hedging:      adaptive" in out


def test_quiet_is_the_table_and_it_can_be_sorted(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["replay", str(trace), "--replicas", "3", *ENGINES, "--jobs", "1", "--quiet"]
    argv += ["--policy", "random", "--policy", "kv_aware"]
    assert main([*argv, "--sort", "hits"]) == 0
    out, err = capsys.readouterr()
    assert [row[0] for row in rows(out)] == ["kv_aware", "random"]
    assert (out.split()[0], err) == ("policy", "")
    assert main([*argv, "--sort", "policy"]) == 0
    assert [row[0] for row in rows(capsys.readouterr().out)] == ["kv_aware", "random"]
    assert main(argv) == 0
    assert [row[0] for row in rows(capsys.readouterr().out)] == ["random", "kv_aware"]


def test_faults_and_lost_polls_reach_the_simulation(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["replay", str(trace), "--replicas", "2", "--policy", "round_robin", *ENGINES]
    argv += ["--jobs", "1", "--json", "-"]
    found = []
    for more in ([], ["--fault", "slow:0:0:9:20"], ["--fault", "kill:0:1:3", "--poll-loss", "1"]):
        assert main([*argv, *more]) == 0
        found.append(json.loads(capsys.readouterr().out))
    plain, slow, killed = (content["runs"][0] for content in found)
    assert slow["ttft_s"]["mean"] > 2 * plain["ttft_s"]["mean"]
    assert sum(count for n, count in killed["attempts"].items() if n != "1") > 0
    assert "100.0% of polls lost" in found[2]["facts"]["routers"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--policy", "nope"], "argument --policy: unknown policy 'nope'"),
        (["--replicas", "3..2"], "argument --replicas: '3..2': 2 is less than 3"),
        (
            ["--fault", "slow:3:1:2", "--replicas", "3..4"],
            "replica 3 does not exist in a fleet of 3",
        ),
        (["--policy", "p2c", "--policy", "p2c"], "--policy p2c is given twice"),
        (["--kv-tokens", "100"], "--kv-tokens must be at least one block, 256 tokens"),
        (["--max-num-seqs", "9999"], "max_num_batched_tokens must be at least max_num_seqs"),
        (
            ["--profile", "fast", "--timing", "1,1,1,1,1,1"],
            "--profile and --timing exclude each other",
        ),
        (["--calibrate", "--timing", "1,1,1,1,1,1"], "not allowed with argument"),
        (["--calibrate"], "access.log:1: "),
        ([], "no request of the log names a replica; state --replicas"),
        (["--html", "/nowhere/out.html"], "the directory /nowhere does not exist"),
        (["--json", "/"], "/: is a directory"),
        (["--tpot-slo", "0"], "argument --tpot-slo: '0' is not above 0"),
        (["--model", "nobody"], "no request in the selected time"),
    ],
)
def test_a_mistake_exits_2_and_writes_nothing(
    trace: Path, words: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    html = trace.parent / "out.html"
    assert status_of([str(trace), "--html", str(html), *words]) == 2
    out, err = capsys.readouterr()
    assert problem in err
    assert out == ""
    assert [path.name for path in trace.parent.iterdir()] == ["access.log"]


def test_a_bad_line_is_named_and_nothing_is_simulated(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = trace.read_text().splitlines()
    lines[70] = lines[70].replace('"prompt_tokens": 2300', '"prompt_tokens": -1')
    trace.write_text("\n".join(lines))
    assert status_of([str(trace), "--replicas", "2"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"hedgerow replay: {trace}:71: ")


def test_a_missing_file_and_a_pipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of([str(tmp_path / "none")]) == 2
    assert "No such file or directory" in capsys.readouterr().err
    assert status_of(["/dev/null"]) == 2
    assert "not a regular file" in capsys.readouterr().err


def test_a_page_that_cannot_be_written_leaves_the_old_one(
    trace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    html = trace.parent / "out.html"
    html.write_text("old")

    def full(self: Path, *_: object, **__: object) -> int:
        self.touch()
        raise OSError(28, "No space left on device", str(self))

    monkeypatch.setattr(Path, "write_text", full)
    argv = [str(trace), "--replicas", "2", "--policy", "random", *ENGINES, "--html", str(html)]
    assert status_of([*argv, "--limit", "5", "--jobs", "1"]) == 1
    assert "cannot be written: No space left on device" in capsys.readouterr().err
    assert html.read_text() == "old"
    assert sorted(path.name for path in trace.parent.iterdir()) == ["access.log", "out.html"]


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    script = (
        "import sys; from router.cli import main\n"
        "try: main(['replay', '--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'matplotlib', 'numpy', 'scipy'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert "--replicas" in done.stdout
    assert done.stderr == "[]\n"


def test_orders_of_the_queue_are_compared_class_by_class(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    classes = ("high", "batch", "batch", "batch")
    path = log_of(
        tmp_path / "access.log",
        (
            {
                "ts": 1000.0 + number / 100.0,
                "class": classes[number % 4],
                "tenant": f"t{number % 3}",
                "prompt_tokens": 2000,
            }
            for number in range(400)
        ),
    )
    argv = [str(path), "--replicas", "1", "--policy", "p2c", *ENGINES, "--jobs", "1"]
    orders = ["--queue", "off", "--queue", "fifo", "--queue", "strict:width=0.5"]
    figures = tmp_path / "out.json"
    assert status_of([*argv, *orders, "--json", str(figures)]) == 0
    out, _ = capsys.readouterr()
    assert "queue:        none, fifo, strict; gates" in out
    assert "queued p99" in out and "p2c, queue strict:width=0.5" in out
    off, fifo, strict = json.loads(figures.read_text())["runs"]
    assert off["classes"]["high"]["queued_s"]["p99"] is None
    high = [run["classes"]["high"]["ttft_s"]["p99"] for run in (off, fifo, strict)]
    assert high[2] <= high[1] < 0.5 * high[0]
    assert status_of([*argv, "--queue", "lifo"]) == 2
    assert "unknown" in capsys.readouterr().err
    assert status_of([*argv, "--queue", "fifo", "--queue", "fifo"]) == 2
    assert "--queue fifo is given twice" in capsys.readouterr().err
