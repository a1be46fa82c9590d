"""The reference of all settings: complete, correct, and printed by a command."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from policies.contract import ROUTING
from policies.hedging.contract import HEDGING
from policies.queueing.contract import QUEUEING
from policies.registry import Registry
from router.cli import main
from router.config import model
from router.config.annotations import hints, is_struct, without_none
from router.config.model import Config
from router.config.model.setting_types import Frozen
from router.config.reference import Setting, page, sections

MODEL = model.__name__
SETTINGS = {setting.path: setting for section in sections() for setting in section.settings}


def declared(cls: type[msgspec.Struct]) -> Iterator[str]:
    """Names of all settings that are not sections, from the declarations alone."""
    for field in msgspec.structs.fields(cls):
        kind: Any = without_none(hints(cls)[field.name])[0]
        if is_struct(kind):
            yield from declared(kind)
        else:
            yield field.encode_name


def test_every_declared_setting_is_there() -> None:
    last = [path.rsplit(".", 1)[-1] for path in SETTINGS]
    for name in declared(Config):
        assert name in last
    # Other files, such as that of the GPU types, are decoded by the same classes.
    for cls in (cls for cls in Frozen.__subclasses__() if cls.__module__.startswith(MODEL)):
        for field in msgspec.structs.fields(cls):
            assert field.encode_name in " ".join(SETTINGS), (cls, field.name)


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=lambda setting: setting.path)
def test_each_has_a_text_in_sentences(setting: Setting) -> None:
    assert setting.text, f"{setting.path} has no comment in {MODEL}"
    assert setting.text.endswith(".")
    assert not setting.text[0].islower()


def test_the_facts_about_a_setting() -> None:
    head = SETTINGS["timeouts.head"]
    assert (head.type, head.default, head.restart) == ("duration", "`10s`", False)
    assert head.range == "above 0s and at most 10000000s"
    assert head.text == "From a request's first byte to the end of its head."
    assert SETTINGS["limits.body"].default == "`64MiB`"
    assert SETTINGS["classes.high.depth"].default == "`5000`"
    assert SETTINGS["classes.high.depth"].text == SETTINGS["classes.low.depth"].text
    assert SETTINGS["prefix.blocks"].restart
    assert SETTINGS["queue.enabled"].restart
    assert SETTINGS["listen"].restart
    assert not SETTINGS["queue.policy"].restart
    assert "one of `vllm`" in SETTINGS["replicas[].engine"].type


def test_every_policy_is_there_with_its_options() -> None:
    text = page()
    for registry in (ROUTING, QUEUEING, HEDGING):
        for name in registry.names():
            assert f"- `{name}`: " in text
    assert "  - `delay_s` (number, default `0.5`): " in text
    assert "  - `input` (number, default `1`): The charge for an uncached prompt token." in text


@pytest.mark.parametrize("registry", [ROUTING, QUEUEING, HEDGING])
def test_a_compiled_class_has_its_text(
    registry: Registry[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiled class has no docstring of its own, and every class inherits that of `object`."""
    for name, cls in registry.classes.items():
        for base in cls.__mro__[:-1]:
            if base.__module__.startswith("policies.") and base.__doc__:
                monkeypatch.setattr(base, "__doc__", None)
        lines = [line for line in page().splitlines() if line.startswith(f"- `{name}`: ")]
        assert lines and all(len(line.split()) > 5 for line in lines), name
    assert "class hierarchy" not in page()


@pytest.mark.parametrize(
    ("wanted", "first", "has", "lacks"),
    [
        ("cors", "## cors\n", "`cors.max_age`", "`timeouts"),
        ("queue.limits", "## queue.limits\n", "`queue.limits.flow`", "`queue.policy`"),
        ("queue", "## queue\n", "`queue.limits.flow`", "`cors"),
        ("replicas", "## replicas[]\n", "`replicas[].url`", "`cors"),
        ("listen", "## Top level\n", "`listen`", "`admin"),
        ("cors.origins", "## cors\n", "`cors.origins`", "`cors.headers`"),
        ("classes.high", "## classes.high\n", "`classes.high.depth`", "`classes.low"),
    ],
)
def test_the_command_for_a_section(
    wanted: str, first: str, has: str, lacks: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", "reference", wanted]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(first)
    assert f"- {has} (" in printed
    assert f"- {lacks}" not in printed


@pytest.mark.parametrize("wanted", ["cor", "cors.x", "replicas[]x", ".."])
def test_an_unknown_section_is_an_error(wanted: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "reference", wanted]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert f"no section or setting {wanted!r}; sections: " in err and " cors, " in err


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "reference"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("# Configuration reference\n")
    for path in SETTINGS:
        assert f"- `{path}` (" in printed
