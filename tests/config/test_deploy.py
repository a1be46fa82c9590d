"""The files in deploy/ match the program: the example configuration, the unit and the image."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from router.config.addons import NEEDS
from router.config.keys import KeyLine, hash_of, line_of
from router.config.load import load, parse
from router.config.model import Config
from router.config.units import seconds, size_bytes
from tests.addons.needed import needs
from tests.places import ROOT

EXAMPLE = ROOT / "deploy" / "hedgerow.yaml"
UNIT = ROOT / "deploy" / "systemd" / "hedgerow.service"
SOCKET = ROOT / "deploy" / "systemd" / "hedgerow.socket"
DOCKERFILE = ROOT / "deploy" / "docker" / "Dockerfile"


# The example configuration.


def test_the_starter_is_valid_and_changes_no_default() -> None:
    config = load(EXAMPLE)
    assert [replica.id for replica in config.replicas] == ["gpu-1:8000", "gpu-2:8000"]
    assert config == Config(replicas=config.replicas)


def test_hedgerow_check_accepts_the_starter() -> None:
    command = [sys.executable, "-m", "router", "check", str(EXAMPLE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("ok: 2 replicas")


def uncommented(text: str) -> str:
    """The example with all commented settings enabled. After `#`, text has one blank, a setting
    none or two.
    """
    return re.sub(r"^( *)#(?! [^ ])", r"\1", text, flags=re.MULTILINE)


@needs(*NEEDS)
def test_every_commented_setting_of_the_starter_exists(tmp_path: Path) -> None:
    """Only the file paths of the settings are replaced."""
    text = uncommented(EXAMPLE.read_text())
    data = Path(__file__).parent / "data"
    (tmp_path / "token").write_text("sk-1")
    (tmp_path / "one").write_text(line_of(KeyLine(name="acme", hash=hash_of(b"k"), tier="pro")))
    (tmp_path / "keys").mkdir()
    for name, path in (
        ("tls.pem", data / "one.pem"),
        ("tls.key", data / "one.key"),
        ("ca.pem", data / "one.pem"),
        ("token", tmp_path / "token"),
        ("provider-key", tmp_path / "token"),
        ("admin-token", tmp_path / "token"),
        ("keys.jsonl", tmp_path / "one"),
        ("keys", tmp_path / "keys"),
    ):
        text = text.replace(f"/etc/hedgerow/{name}", str(path))
    text = text.replace("/var/lib/hedgerow", str(tmp_path))
    parse(text)


def test_the_starters_values_are_defaults_unless_they_are_called_examples() -> None:
    lines = uncommented(EXAMPLE.read_text()).splitlines()
    shown = yaml.safe_load("\n".join(lines))
    examples = {*re.findall(r"^ *([a-z_]+):.*# .*example", "\n".join(lines), flags=re.MULTILINE)}
    default = msgspec.to_builtins(Config())
    for section in ("routing", "queue", "hedging", "continuation", "timeouts", "limits", "prefix"):
        assert_included(shown[section], default[section], examples)
    for section in ("classes", "drain", "health", "access_log", "keys", "priority"):
        assert_included(shown[section], default[section], examples)


def assert_included(shown: dict[str, Any], default: dict[str, Any], examples: set[str]) -> None:
    for name, value in shown.items():
        if isinstance(value, dict):
            assert_included(value, default[name], examples)
        elif name not in examples:
            is_amount = isinstance(value, str) and not isinstance(default[name], str)
            read = (seconds(value) or size_bytes(value) or 0.0) if is_amount else value
            assert (name, read) == (name, default[name])


# The systemd unit.


def directives(unit: Path = UNIT) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in unit.read_text().splitlines():
        if line and line[0] not in "#[":
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


def test_the_unit_waits_for_a_whole_drain() -> None:
    (stop,) = directives()["TimeoutStopSec"]
    drain = Config().drain
    assert int(stop.removesuffix("s")) > drain.lame_duck_s + drain.grace_s


def test_the_unit_runs_commands_that_the_program_has() -> None:
    from router.cli import _parser

    commands = [
        shlex.split(line)[1:]
        for line in directives()["ExecStart"] + directives()["ExecReload"]
        if "hedgerow/bin/hedgerow" in line
    ]
    assert [words[0] for words in commands] == ["serve", "check"]
    for words in commands:
        _parser(words).parse_args(words)


def test_the_unit_keeps_the_program_in() -> None:
    unit = directives()
    for key in ("DynamicUser", "NoNewPrivileges", "PrivateTmp", "ProtectHome"):
        assert unit[key] == ["yes"]
    assert unit["ProtectSystem"] == ["strict"]
    assert unit["KillSignal"] == ["SIGTERM"]
    assert int(unit["LimitNOFILE"][0]) >= 65536


def test_the_socket_is_the_data_port() -> None:
    socket = directives(SOCKET)
    assert socket["ListenStream"] == [Config().listen]
    assert socket["FileDescriptorName"] == ["listen"]
    assert socket["Service"] == [UNIT.name]
    unit = directives()
    assert unit["Sockets"] == [SOCKET.name]
    # The program sends MAINPID from the process that is the main process at this time.
    assert (unit["Type"], unit["NotifyAccess"]) == (["notify"], ["main"])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_finds_no_fault_with_the_unit(tmp_path: Path) -> None:
    """The binary need not be installed for the check: any program can replace it."""
    copy = tmp_path / "hedgerow.service"
    copy.write_text(UNIT.read_text().replace("/opt/hedgerow/bin/hedgerow", sys.executable))
    shutil.copy(SOCKET, tmp_path)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy), str(tmp_path / SOCKET.name)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    ours = [line for line in done.stderr.splitlines() if "hedgerow" in line]
    assert (done.returncode, ours) == (0, [])


# The image is not built here, but the names that it refers to can be checked.


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(line.split()[0], " ".join(line.split()[1:])) for line in lines if line.strip()]


def test_the_image_copies_what_exists_and_is_let_through() -> None:
    let_through = (ROOT / ".dockerignore").read_text().splitlines()
    for word, rest in instructions():
        if word == "COPY" and not rest.startswith("--from"):
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists(), source
                assert f"!{source}" in let_through


def test_the_image_holds_every_package_of_the_project() -> None:
    copied = " ".join(rest for word, rest in instructions() if word == "COPY")
    pyproject = (ROOT / "pyproject.toml").read_text()
    (include,) = re.findall(r"^include = \[(.*)\]", pyproject, flags=re.MULTILINE)
    for package in re.findall(r'"(\w+)\*"', include):
        assert f"{package} {package}" in copied


def test_the_image_does_not_run_as_root_and_gets_its_signals() -> None:
    found = dict(instructions())  # last instruction of each kind: that of the final stage
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", found["USER"])
    assert found["STOPSIGNAL"] == "SIGTERM"
    # The shell form would make a shell process 1, which does not forward signals.
    assert found["ENTRYPOINT"] == '["hedgerow"]'
    assert found["CMD"].startswith("[")
    assert f"http://{Config().admin.listen}/livez" in found["HEALTHCHECK"]


# The guides.


def test_every_example_of_the_guide_to_models_is_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVIDER_KEY", "sk-1")
    text = (ROOT / "deploy" / "models.md").read_text()
    examples = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert len(examples) == 5
    for example in examples:
        config = parse(example, serves=False)
        assert config.models or config.replicas


@needs("kubernetes")
def test_every_example_of_the_guide_to_discovery_is_valid() -> None:
    text = (ROOT / "deploy" / "discovery.md").read_text()
    examples = re.findall(r"```yaml\n(discovery:.*?)```", text, re.DOTALL)
    assert len(examples) == 3
    for example in examples:
        assert parse(example).discovery.has_sources
