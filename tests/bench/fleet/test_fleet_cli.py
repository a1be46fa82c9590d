"""The command line of the fleet bench: unknown names, the default runs, and rounds of a file."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from bench.fleet import cli, contestants, run
from bench.fleet.kept import Kept


def parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    return parser.parse_args(words)


@pytest.mark.parametrize(
    "words", [("--policy", "nosuch"), ("--peers", "nosuch"), ("--workload", "chat,nosuch")]
)
def test_an_unknown_name_is_refused(
    words: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(parse(*words)) == 2
    assert "'nosuch'" in capsys.readouterr().err


class Plan:
    """What `measure` plays, without playing it."""

    kinds: ClassVar[list[str]] = []

    @staticmethod
    def play(
        stage: object,
        kinds: Sequence[type[contestants.Ready]],
        prepare: Callable[[int], Sequence[run.Workload]],
        count: int,
        kept: Kept,
        say: object,
    ) -> None:
        Plan.kinds = [kind.name for kind in kinds]
        for number in range(count):
            kept.add(number, [run.Row(kinds[0].name, prepare(number)[0].name, number)])


def test_a_run_plays_the_default_twice_and_the_oracle(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli.rounds, "play", Plan.play)
    words = ("--quick", "--no-scenarios", "--peers", "haproxy", "--workload", "unique")
    words += ("--resume", str(tmp_path / "rounds"))
    assert cli.main(parse(*words, "--rounds", "2")) == 0
    assert Plan.kinds == ["hedgerow kv_aware", "hedgerow kv_aware (again)", "haproxy", "oracle"]
    assert "commit" in capsys.readouterr().out
    assert cli.main(parse(*words, "--rounds", "3")) == 0
    assert cli.main(parse(*words, "--seed", "2")) == 2
    assert "with seed 1 instead of 2" in capsys.readouterr().err
    assert cli.main(parse(*words, "--no-oracle")) == 2
