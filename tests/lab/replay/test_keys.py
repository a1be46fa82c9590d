"""Which tenants of a log have which keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from router.config.keys import KeyLine, line_of
from router.config.varied import varied
from router.core.errors import ConfigError
from router.intake.flow import Flows
from router.intake.keys import Key
from router.lab.replay.logged_fleet import keys_of
from router.observe.log.salt import Salter

LINES = [KeyLine(name=name, hash=f"sha256:{number:064x}") for number, name in enumerate("abc")]


def tenant(name: str, salt: str) -> str:
    """The tenant's name as the proxy writes it."""
    (line,) = [line for line in LINES if line.name == name]
    flow = Flows(Salter(salt, 0).name).of(Key(line), None, None, "10.0.0.1", None, b"")
    return flow.tenant


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    path.write_text("".join(line_of(line) + "\n" for line in LINES))
    return path


def test_tenants_are_found_by_the_salt(file: Path) -> None:
    config = varied(keys={"file": str(file)}, access_log={"salt": "s"})
    tenants = {tenant("a", "s"), tenant("c", "s"), "other"}
    keys, said = keys_of(config, tenants)
    assert {name: line.name for name, line in keys.items()} == {
        tenant("a", "s"): "a",
        tenant("c", "s"): "c",
    }
    assert said == "weights and limits of 2 of 3 tenants with keys"


def test_without_the_salt_keys_cannot_be_identified(file: Path) -> None:
    keys, said = keys_of(varied(keys={"file": str(file)}), {tenant("a", "s")})
    assert not keys and said.startswith("not simulated: access_log.salt is not set")


def test_another_salt_is_noticed(file: Path) -> None:
    config = varied(keys={"file": str(file)}, access_log={"salt": "other"})
    keys, said = keys_of(config, {tenant("a", "s")})
    assert not keys and "another access_log.salt" in said


def test_a_file_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"keys\.file: .* cannot be read"):
        keys_of(varied(keys={"file": str(tmp_path / "none")}), set())
