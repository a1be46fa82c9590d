"""The files in deploy/compose: what they name exists, and the programs accept them."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from router.cli import _parser
from router.config.load import load
from router.config.units import seconds
from tests.places import ROOT

FOLDER = ROOT / "deploy" / "compose"


def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]
    return found


def test_every_mounted_file_exists_and_cannot_be_written() -> None:
    for service in services().values():
        for volume in service.get("volumes", []):
            path, _, mode = volume.split(":")
            assert (FOLDER / path).is_file(), path
            assert mode == "ro"


def test_the_image_is_built_from_the_repository() -> None:
    build = services()["hedgerow"]["build"]
    assert (FOLDER / build["context"]).resolve() == ROOT
    assert (ROOT / build["dockerfile"]).is_file()
    built = {name for name, one in services().items() if one["image"] == "hedgerow"}
    assert built == {"hedgerow", "engine-1", "engine-2"}


def test_commands_are_those_of_the_program() -> None:
    for name in ("hedgerow", "engine-1", "engine-2"):
        words = services()[name]["command"]
        _parser(words).parse_args(words)


def test_names_and_ports_are_those_of_the_services() -> None:
    config = load(FOLDER / "hedgerow.yaml")
    port = dict(zip(*[iter(services()["engine-1"]["command"][1:])] * 2, strict=True))["--port"]
    assert [replica.url for replica in config.replicas] == [
        f"http://engine-1:{port}",
        f"http://engine-2:{port}",
    ]
    scraped = yaml.safe_load((FOLDER / "prometheus.yml").read_text())["scrape_configs"]
    targets = [at for job in scraped for one in job["static_configs"] for at in one["targets"]]
    probes = str(config.admin.probes_listen).rpartition(":")[2]
    assert targets == [f"hedgerow:{probes}", f"engine-1:{port}", f"engine-2:{port}"]
    published = {at.rpartition(":")[2] for at in services()["hedgerow"]["ports"]}
    assert published == {config.listen.rpartition(":")[2]}


def test_no_port_is_open_to_other_machines() -> None:
    for service in services().values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


def test_streams_may_finish_when_the_router_stops() -> None:
    drain = load(FOLDER / "hedgerow.yaml").drain
    allowed_s = seconds(services()["hedgerow"]["stop_grace_period"])
    assert allowed_s is not None
    assert allowed_s > drain.lame_duck_s + drain.grace_s


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
def test_promtool_accepts_the_configuration(tmp_path: Path) -> None:
    rules = ROOT / "deploy" / "prometheus" / "hedgerow.rules.yml"
    text = (FOLDER / "prometheus.yml").read_text()
    file = tmp_path / "prometheus.yml"
    file.write_text(text.replace("/etc/prometheus/hedgerow.rules.yml", str(rules)))
    done = subprocess.run(
        ["promtool", "check", "config", str(file)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 rule files found" in done.stdout
