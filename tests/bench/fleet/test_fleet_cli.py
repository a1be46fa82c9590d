"""The command line of the fleet bench: unknown names, and the default runs."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from bench.fleet import cli, contestants
from bench.fleet.contestants import hedgerow
from bench.overhead.peers import Site
from bench.overhead.processes import Placement


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
    monkeypatch.setattr(cli, "policy_names", lambda: ["least_load", "random", "round_robin"])
    assert cli._policies(parse()) == ["least_load", "round_robin"]
    assert cli._policies(parse("--quick")) == ["least_load"]
    assert cli._policies(parse("--policy", "random")) == ["random"]
    monkeypatch.setattr(cli, "policy_names", lambda: ["random"])
    assert cli._policies(parse()) == ["random"]


def test_no_peers_is_a_choice() -> None:
    assert cli._listed("", contestants.PEERS) == []
    assert cli._listed(None, contestants.PEERS) == list(contestants.PEERS)


def test_a_load_must_be_above_nothing() -> None:
    with pytest.raises(SystemExit):
        parse("--load", "0")


def test_hedgerow_is_configured_with_the_policy(tmp_path: Path) -> None:
    kind = hedgerow("round_robin")
    assert kind.name == "hedgerow round_robin"
    config = kind(Site(tmp_path, (1, 2), Placement())).config()
    assert config["routing"] == {"policy": "round_robin"}
    assert len(config["replicas"]) == 2  # type: ignore[arg-type]
