"""`hedgerow audit`: its output and its errors."""

import json
from pathlib import Path
from random import Random

import pytest

from router.lab.audit import command
from router.lab.emulator.core.timing import PROFILES
from router.observe.log.record import Record
from tests.commands import command_of
from tests.lab.audit.engine_logs import Ask, played, poisson, write

run = command_of(command)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> str:
    rng = Random(1)
    asks = [Ask(t, 400, 40, "c0ffee001122", "high") for t in poisson(rng, 1.5, 0, 120)]
    asks += [Ask(t, 15_000, 10, "3f9a0c61d2b4", "batch") for t in poisson(rng, 0.1, 0, 120)]
    return write(tmp_path_factory.mktemp("log") / "access.log", played(asks, PROFILES["realistic"]))


def test_a_document(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(log, "--json", "--by", "class") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["told_by"], document["files"]) == ("class", [log])
    costs = next(
        one
        for one in document["pairs"]
        if (one["victim"], one["causer"]) == ("class high", "class batch")
    )
    assert costs["p99_share"] > 0.7
    high = next(one for one in document["parties"] if one["label"] == "class high")
    assert set(high["p99"]) >= {"alone_s", "others_s", "itself_s", "router_s", "unexplained_s"}


def test_a_short_list(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(log, "--top", "1") == 0
    table = capsys.readouterr().out.split("By tenant\n")[1].splitlines()
    assert [line.split()[0] for line in table[4:6] if line] == ["3f9a0c61d2b4"]


@pytest.mark.parametrize("words", [["--top", "0"], ["--by", "moon"], []])
def test_invalid_flags_are_refused(words: list[str], log: str) -> None:
    with pytest.raises(SystemExit) as caught:
        run(*([log] if words else []), *words)
    assert caught.value.code == 2


def test_a_missing_file_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("/nowhere/access.log") == 2
    assert capsys.readouterr().err == (
        "hedgerow audit: /nowhere/access.log: No such file or directory\n"
    )


def test_a_file_of_another_format_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("TIMESTAMP,ContextTokens\n1,2\n")
    assert run(str(path)) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"hedgerow audit: {path}:1: ")


def test_a_log_in_which_nothing_was_answered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "a.log", [Record(ts=1.0, reason="no_replica")] * 3)
    assert run(path) == 1
    assert "no answered stream" in capsys.readouterr().err
