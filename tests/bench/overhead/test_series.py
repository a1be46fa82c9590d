"""The whole series runs on the upstream itself; a missing program gives the reason."""

import argparse
from pathlib import Path

import pytest

from bench.overhead import cli, plan, roster, wrk
from router.lab.overhead import processes, routers

BRIEF = plan.Plan(
    rounds=1,
    paced_seconds=0.1,
    paced_lead=0.02,
    paced_streams=8,
    idle_streams=4,
    idle_tls_streams=4,
    cadence_seconds=0.1,
    large_bytes=2_000_000,
    bulk_bytes=2_000_000,
)
BY_WRK = {"rps_c4", "rps_c32", "rps_16k", "rps_128k", "flat_tps", "latency_p50_us"}


@pytest.mark.skipif(wrk.find() is None, reason=wrk.MISSING)
def test_the_series_measures_the_upstream_without_a_complaint() -> None:
    rows = cli.run(["direct"], BRIEF, processes.Placement())
    assert [row.absent for row in rows] == [""]
    row = rows[0]
    row.problems.pop("token_paced", None)  # whether the pace is kept depends on the machine
    assert row.problems == {}
    assert all(row.figures[figure] > 0 for figure in BY_WRK)
    assert "json_c4_us" not in row.figures  # without a router there is no router CPU


def site(folder: Path) -> routers.Site:
    return routers.Site(folder, (1, 2), processes.Placement())


@pytest.mark.parametrize("name", ["envoy", "vllm-router", "sglang-router", "litellm"])
def test_a_peer_that_is_not_installed_says_how_to_get_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(routers.PeerError, match="--install-peers"):
        roster.PEERS[name](site(tmp_path)).version()


def test_a_router_that_ends_at_its_start_is_reported_with_its_output(tmp_path: Path) -> None:
    class Broken(routers.Peer):
        name = "broken"
        settings = ""

        def command(self) -> list[str]:
            return ["sh", "-c", "echo no such option; exit 3"]

    peer = Broken(site(tmp_path))
    try:
        with pytest.raises(routers.PeerError, match=r"ended with 3 .*no such option"):
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
