"""An addon that is missing is one clear line, and not a traceback."""

import sys
from types import ModuleType

import pytest

from router.core import addons
from router.core.errors import ConfigError


def test_an_addon_that_is_not_installed_is_named_with_the_setting_that_needs_it() -> None:
    with pytest.raises(ConfigError) as caught:
        addons.load("nowhere", "batches.enabled")
    assert caught.value.problems == [
        "batches.enabled: needs the addon nowhere, which is not installed"
    ]


def test_a_package_that_an_addon_imports_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> ModuleType:
        raise ModuleNotFoundError("No module named 'zmq'", name="zmq")

    monkeypatch.setattr(addons, "import_module", missing)
    with pytest.raises(ConfigError) as caught:
        addons.load("kv_events", "prefix.exact")
    assert caught.value.problems == ["prefix.exact: the addon kv_events needs the package zmq"]


def test_another_package_may_register_an_addon(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.metadata

    found = ModuleType("theirs")

    class Entry:
        def load(self) -> ModuleType:
            return found

    asked = []

    def entry_points(**wanted: str) -> list[Entry]:
        asked.append(wanted)
        return [Entry()]

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    assert addons.load("theirs", "x") is found
    assert asked == [{"group": "hedgerow.addons", "name": "theirs"}]
    assert "router.addons.theirs" not in sys.modules
