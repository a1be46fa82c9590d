"""`hedgerow bench predictors`: the sources of the truth, the errors, and one quick run."""

import json
from pathlib import Path

import pytest

from bench.predictors import cli, logged, timings
from bench.predictors.timings import least_squares
from tests.commands import command_of

HEAD = "model,hardware,prompt_size,batch_size,token_size,prompt_time,token_time,tensor_parallel"


run = command_of(cli)


def test_least_squares_finds_the_coefficients() -> None:
    rows = [[1.0, float(n), float(n * n)] for n in (128, 256, 512, 4096, 8192)]
    values = [3.0 + 0.1 * row[1] + 1e-5 * row[2] for row in rows]
    assert least_squares(rows, values) == pytest.approx([3.0, 0.1, 1e-5])
    with pytest.raises(ValueError, match="do not determine"):
        least_squares(rows[:2], values[:2])
    with pytest.raises(ValueError, match="no rows"):
        least_squares([], [])


def timings_file(folder: Path) -> Path:
    """An exact engine: 40 ms + 0.1 ms a token; decode 30 ms + 0.2 ms a sequence."""
    lines = [HEAD]
    for batch in (1, 2, 4, 8, 16, 32):
        for prompt in (128, 512, 2048, 8192):
            for output in (128, 1024):
                prefill, token = 40 + 0.1 * batch * prompt, 30 + 0.2 * batch
                lines.append(f"m,gpu,{prompt},{batch},{output},{prefill},{token},8")
    file = folder / "timings.csv"
    file.write_text("\n".join(lines) + "\n")
    return file


def test_timings_of_an_exact_engine(tmp_path: Path) -> None:
    ((name, rows),) = timings.read(str(timings_file(tmp_path))).items()
    assert (name, len(rows)) == ("m gpu x8", 48)
    machine = timings.judge(name, rows, 1)
    assert machine.rows == 24
    for errors in (machine.prefill, machine.decode):
        assert errors.mape is not None and errors.mape < 15.0
    assert machine.prefill_offline.mape == pytest.approx(0.0, abs=0.1)
    assert machine.decode_offline.mape == pytest.approx(0.0, abs=0.1)


def line(ts: float, tokens: int, **fields: object) -> str:
    """A request of an engine that takes 50 ms + 0.1 ms a token, and then 20 ms a token."""
    ttft_ms = 50 + 0.1 * tokens
    record = {
        "ts": ts,
        "stream": True,
        "status": 200,
        "reason": "ok",
        "replica": "a",
        "ttft_ms": ttft_ms,
        "duration_ms": ttft_ms + 20 * 29,
        "prompt_tokens": tokens,
        "output_tokens": 30,
        "exact": True,
        **fields,
    }
    return json.dumps(record)


def log_file(folder: Path, *more: str) -> Path:
    lines = [line(1000.0 + 2 * n, 200 + 37 * (n % 40)) for n in range(100)]
    file = folder / "access.log"
    file.write_text("\n".join([*lines, *more]) + "\n")
    return file


def test_a_log_is_predicted_as_its_router_would_have(tmp_path: Path) -> None:
    skipped = [line(1.0, 100, status=500), line(1.0, 100, prompt_tokens=None)]
    found = logged.requests(str(log_file(tmp_path, *skipped)))
    assert len(found) == 100
    (row,) = logged.play(found)
    assert row.name == "a"
    for errors in (row.ttft, row.tpot, row.step):
        assert errors.count == 80
        assert errors.mape is not None and errors.mape < 5.0


@pytest.mark.parametrize(
    ("flag", "text", "problem"),
    [
        ("--timings", "a,b\n1,2\n", "line 2: not a row of timings"),
        ("--timings", HEAD + "\n", "no timings"),
        ("--log", "{}\n", "no answered request"),
        ("--log", "no JSON\n", "line 1"),
    ],
)
def test_a_bad_file_is_a_mistake(
    flag: str, text: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad"
    file.write_text(text)
    assert run("--no-simulated", flag, str(file)) == 2
    assert problem in capsys.readouterr().err


def test_all_parts_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = ("--timings", str(timings_file(tmp_path)), "--log", str(log_file(tmp_path)))
    out = tmp_path / "found.json"
    assert run("--quick", "--jobs", "1", "--json", str(out), *files) == 0
    titles = [part["title"] for part in json.loads(out.read_text())]
    assert len(titles) == 3
    shown = capsys.readouterr().out
    assert all(title in shown for title in titles)
    assert "two speeds" in shown
