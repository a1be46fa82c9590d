"""The README is short, and its commands, links and settings exist."""

import re
import shlex

import msgspec
import pytest

from router.cli import _parser
from router.config.model import Config, Drain, Keys, Tls, Upstream
from tests.places import ROOT

README = (ROOT / "README.md").read_text()
TARGETS = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)


def commands() -> list[str]:
    """Every `hedgerow …` in a code block or between backquotes."""
    blocks = re.findall(r"^```\w*\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    quoted = re.findall(r"`(hedgerow [^`]+)`", README.replace("\n", " "))
    return [line.partition("  #")[0] for line in lines if line.startswith("hedgerow ")] + quoted


def test_it_has_150_lines_at_most() -> None:
    assert len(README.splitlines()) <= 150


def test_it_names_no_release_that_does_not_exist() -> None:
    files = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *(ROOT / "deploy").rglob("*")]
    files += [*(ROOT / "router").rglob("*.py"), *(ROOT / "bench").rglob("*.py")]
    for file in files:
        if file.is_file():
            assert not re.search(r"(pip|pipx) install '?hedgerow\b", file.read_text()), file


def test_it_has_commands() -> None:
    assert {"serve", "check", "replay"} <= {command.split()[1] for command in commands()}


@pytest.mark.parametrize("command", commands())
def test_each_command_is_accepted(command: str) -> None:
    words = shlex.split(command)[1:]
    try:
        _parser(words).parse_args(words)
    except SystemExit as leaving:
        assert leaving.code == 0, command  # `--version` exits with 0


def test_each_make_target_exists() -> None:
    wanted = set(re.findall(r"\bmake ([a-z-]+)", re.sub(r"(?m)^(?!.*[`#]).*$", "", README)))
    assert {"run", "test"} <= wanted
    assert wanted - set(TARGETS) == set()


def test_each_link_leads_somewhere() -> None:
    for link in re.findall(r"\]\(([^)#]+)", README):
        assert (ROOT / link).exists(), link


def test_each_setting_exists() -> None:
    rows = re.findall(r"^\| (`.*?) \|", README, flags=re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`([a-z_.]+)`", row)]
    sections = {"upstream": Upstream, "keys": Keys, "tls": Tls, "drain": Drain}
    assert named
    for name in named:
        section, _, field = name.partition(".")
        assert section in Config.__struct_fields__, name
        names = (
            [each.encode_name for each in msgspec.structs.fields(sections[section])]
            if field
            else []
        )
        assert not field or field in names, name
