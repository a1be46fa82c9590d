"""The command line of the fleet bench: unknown names, the default runs, and rounds of a file."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from bench.fleet import cli, contestants, run
from bench.fleet.contestants import again, hedgerow
from bench.fleet.kept import Kept
from router.lab.overhead.processes import Placement
from router.lab.overhead.routers import Site


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


def test_policies_default_to_those_that_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "policy_names", lambda: ["kv_aware", "random", "round_robin"])
    assert cli._policies(parse()) == ["kv_aware", "round_robin"]
    assert cli._policies(parse("--quick")) == ["kv_aware"]
    assert cli._policies(parse("--policy", "random")) == ["random"]
    monkeypatch.setattr(cli, "policy_names", lambda: ["random"])
    assert cli._policies(parse()) == ["random"]


def test_no_peers_is_a_choice() -> None:
    assert cli._listed("", contestants.PEERS) == []
    assert cli._listed(None, contestants.PEERS) == list(contestants.PEERS)


@pytest.mark.parametrize("words", [("--load", "0"), ("--rounds", "0")])
def test_a_number_must_be_above_nothing(words: tuple[str, str]) -> None:
    with pytest.raises(SystemExit):
        parse(*words)


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


def test_hedgerow_is_configured_with_the_policy(tmp_path: Path) -> None:
    kind = hedgerow("round_robin")
    assert kind.name == "hedgerow round_robin"
    config = kind(Site(tmp_path, (1, 2), Placement())).config()
    assert config["routing"] == {"policy": "round_robin"}
    assert len(config["replicas"]) == 2  # type: ignore[arg-type]


def test_the_second_run_of_a_contestant_differs_in_its_name_only(tmp_path: Path) -> None:
    kind = hedgerow("round_robin")
    twice = again(kind)
    assert twice.name == "hedgerow round_robin (again)"
    site = Site(tmp_path, (1, 2), Placement())
    one, two = (each(site).config() for each in (kind, twice))
    assert one["routing"] == two["routing"] and one["replicas"] == two["replicas"]
