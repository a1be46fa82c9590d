"""The whole series runs, on the upstream itself; what is not there says why."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from bench.overhead import cli, install, measure, peers, processes, roster

BRIEF = measure.Plan(
    repeats=1,
    seconds=0.05,
    paced_seconds=0.1,
    paced_lead=0.02,
    lead=0.0,
    paced_streams=8,
    idle_streams=4,
    idle_tls_streams=4,
    cadence_seconds=0.1,
    large_bytes=2_000_000,
    bulk_bytes=2_000_000,
)


def test_the_series_measures_the_upstream_without_a_complaint() -> None:
    rows = cli.run(["direct"], BRIEF, processes.Placement())
    assert [row.absent for row in rows] == [""]
    row = rows[0]
    row.problems.pop("token_paced", None)  # keeping the pace is the machine's matter
    assert row.problems == {}
    assert row.figures["rps_c4"] > 0 and row.figures["flat_tps"] > 0
    assert row.figures["latency_p50_us"] > 0
    assert "json_c4_us" not in row.figures  # no router, no CPU of one


def site(folder: Path) -> peers.Site:
    return peers.Site(folder, (1, 2), processes.Placement())


@pytest.mark.parametrize("name", ["envoy", "vllm-router", "sglang-router", "litellm"])
def test_a_peer_that_is_not_installed_says_how_to_get_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(peers.PeerError, match="--install-peers"):
        roster.PEERS[name](site(tmp_path)).version()


@pytest.mark.parametrize("name", ["haproxy", "nginx"])
def test_a_system_program_that_is_missing_says_so(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers.shutil, "which", lambda *_, **__: None)
    with pytest.raises(peers.PeerError, match="is not installed"):
        roster.PEERS[name](site(tmp_path)).version()


def test_half_an_environment_is_not_an_installed_peer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = install.cache() / f"{install.ENVOY.name}-{install.ENVOY.version}" / "bin"
    folder.mkdir(parents=True)
    assert install.found(install.ENVOY) is None
    (folder / "envoy").touch()
    found = install.found(install.ENVOY)
    assert found is not None and found.version == install.ENVOY.version


def test_a_router_that_ends_at_its_start_is_told_with_its_last_words(tmp_path: Path) -> None:
    class Broken(peers.Peer):
        name = "broken"
        settings = ""

        def command(self) -> list[str]:
            return ["sh", "-c", "echo no such option; exit 3"]

    peer = Broken(site(tmp_path))
    try:
        with pytest.raises(peers.PeerError, match=r"ended with 3 .*no such option"):
            peer.start()
    finally:
        peer.stop()


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    return parser.parse_args(words)


def test_mistakes_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(parsed("--peers", "nobody")) == 2
    assert "unknown peer 'nobody'" in capsys.readouterr().err
    assert cli.main(parsed("--upstream", "gpu-1:8000")) == 2
    with pytest.raises(SystemExit):
        parsed("--repeats", "0")
    capsys.readouterr()


def test_pinning_takes_two_cpus_or_none() -> None:
    assert processes.Placement.choose(False) == processes.Placement()
    place = processes.Placement.choose(True)
    assert not place.router & place.others
    assert len(place.router) == len(place.others) <= 1
