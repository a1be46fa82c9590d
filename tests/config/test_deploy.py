"""What is shipped in deploy/ fits the program: the example is valid, the unit and image agree."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from router.config.keys import KeyLine, hash_of, line_of
from router.config.load import load, parse
from router.config.model import (
    Aborts,
    Batches,
    ClassTimeouts,
    Config,
    Continuation,
    Hedging,
    Price,
    Retry,
    Usage,
)

TOP = Path(__file__).parent.parent.parent
EXAMPLE = TOP / "deploy" / "hedgerow.yaml"
UNIT = TOP / "deploy" / "systemd" / "hedgerow.service"
DOCKERFILE = TOP / "deploy" / "docker" / "Dockerfile"


# The example configuration.


def test_the_example_is_valid_and_shows_defaults() -> None:
    config = load(EXAMPLE)
    assert [replica.id for replica in config.replicas] == ["gpu-1:8000", "gpu-2:8000"]
    assert config == Config(replicas=config.replicas)


def test_commented_keys_of_the_example_exist_and_show_defaults(tmp_path: Path) -> None:
    """Every `# key: value` line is put to work; only the files it names are made up."""
    lines = EXAMPLE.read_text().splitlines()[3:]
    text = "\n".join(re.sub(r"^( *)# ?((?:  )?[a-z_]+:)", r"\1\2", line) for line in lines)
    data = Path(__file__).parent / "data"
    (tmp_path / "token").write_text("sk-1")
    (tmp_path / "keys").write_text(line_of(KeyLine(name="acme", hash=hash_of(b"k"), tier="pro")))
    for name, path in (
        ("tls.pem", data / "one.pem"),
        ("tls.key", data / "one.key"),
        ("ca.pem", data / "one.pem"),
        ("token", tmp_path / "token"),
        ("keys.jsonl", tmp_path / "keys"),
    ):
        text = text.replace(f"/etc/hedgerow/{name}", str(path))
    text = text.replace("/var/lib/hedgerow", str(tmp_path))
    config = parse(text)
    assert config.tls is not None
    assert config.upstream.ca_file is not None
    assert config.replicas[1].max_inflight == 256
    assert config.allow_paths == ("/metrics",)
    assert config.keys.file is not None
    default = Config()
    assert config.batches == msgspec.structs.replace(
        default.batches, enabled=True, folder=str(tmp_path / "batches")
    )
    sections = ("timeouts", "limits", "retry", "drain", "access_log", "queue")
    for section in (*sections, "hedging", "continuation", "aborts"):
        assert getattr(config, section) == getattr(default, section)
    assert config.classes["critical"].timeouts.first_token_s == 30.0
    assert config.usage == Usage(prices={"my-model": Price(input=0.5, cached=0.05, output=1.5)})
    assert (config.replicas[1].node, config.replicas[1].zone) == ("", "")


def test_every_field_of_these_sections_is_shown() -> None:
    text = EXAMPLE.read_text()
    for section in (Retry, Hedging, Continuation, Aborts, ClassTimeouts, Batches, Usage, Price):
        for field in section.__struct_fields__:
            assert re.search(rf"\b{field}\b", text), f"{section.__name__}.{field}"


# The systemd unit.


def directives() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in UNIT.read_text().splitlines():
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


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_finds_no_fault_with_the_unit(tmp_path: Path) -> None:
    """The binary need not be installed for the check: any program in its place will do."""
    copy = tmp_path / "hedgerow.service"
    copy.write_text(UNIT.read_text().replace("/opt/hedgerow/bin/hedgerow", sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    ours = [line for line in done.stderr.splitlines() if "hedgerow" in line]
    assert (done.returncode, ours) == (0, [])


# The image: nothing builds it here, but what it refers to can be looked up.


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(line.split()[0], " ".join(line.split()[1:])) for line in lines if line.strip()]


def test_the_image_copies_what_exists_and_is_let_through() -> None:
    let_through = (TOP / ".dockerignore").read_text().splitlines()
    for word, rest in instructions():
        if word == "COPY" and not rest.startswith("--from"):
            for source in rest.split()[:-1]:
                assert (TOP / source).exists(), source
                assert f"!{source}" in let_through


def test_the_image_holds_every_package_of_the_project() -> None:
    copied = " ".join(rest for word, rest in instructions() if word == "COPY")
    pyproject = (TOP / "pyproject.toml").read_text()
    (include,) = re.findall(r"^include = \[(.*)\]", pyproject, flags=re.MULTILINE)
    for package in re.findall(r'"(\w+)\*"', include):
        assert f"{package} {package}" in copied


def test_the_image_does_not_run_as_root_and_gets_its_signals() -> None:
    found = dict(instructions())  # the last of each kind: those of the final stage
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", found["USER"])
    assert found["STOPSIGNAL"] == "SIGTERM"
    # The shell form would put a shell at process 1, which does not pass signals on.
    assert found["ENTRYPOINT"] == '["hedgerow"]'
    assert found["CMD"].startswith("[")
    assert f"http://{Config().admin}/livez" in found["HEALTHCHECK"]
