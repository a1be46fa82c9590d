"""The layering: which layer may import which. Read from the source, so that lazy imports count.

Each row names a layer (a folder or file of `router/`, or `policies`) and the layers it may import
besides itself. A row with a dot moves a folder or file out of its layer: knowledge of engines is
below the configuration and below the readers of requests. Imports go down only. `app` may import
every layer but `lab` and `addons`, and only `cli` may import `app`. The commands of `lab` and the
addons are found by name, so no layer may import them.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.places import ROOT

FLEET = ("fleet.engines", "fleet.signals")
MAY_IMPORT = {
    "policies": set(),
    "core": {"policies"},
    "config.address": set(),
    "fleet.signals": set(),
    "fleet.engines": {"core", "config.address", "fleet.signals"},
    "config": {"core", "policies", "config.address", "fleet.engines"},
    "wire": {"core", "config", "fleet.engines"},
    "intake": {"core", "config", "policies", "config.address", "fleet.engines"},
    "fleet": {"core", "config", "policies", "wire", "config.address", *FLEET},
    "admission": {"core", "config", "policies"},
    "share": {"core", "admission", "fleet"},
    "observe": {"core", "config", "intake", "fleet", "wire", "config.address"},
    "lab": set(),
    "lab.extras": set(),
    "lab.flags": set(),
    "lab.sketch": set(),
    "lab.page": set(),
    "lab.emulator": {"core", "fleet.engines", "lab.flags"},
    "lab.overhead": {"core", "lab.flags"},
    "lab.simulator": {
        *("core", "config", "policies", "intake", "admission", "fleet", "observe", "dispatch"),
        *("share", "lab.emulator", "config.address", *FLEET),
    },
    "dispatch": {
        *("core", "config", "policies", "admission", "wire", "intake", "fleet", "observe"),
        *FLEET,
    },
    "addons": set(),
    "addons.batches": {"core", "config", "intake", "observe", "dispatch"},
    "addons.continuation": {"core", "config", "wire", "fleet.engines", "observe", "dispatch"},
    "addons.kv_events": {
        *("core", "config", "policies", "intake", "wire", "fleet", "observe", "dispatch"),
        *("config.address", *FLEET),
    },
    "addons.preemption": {"core", "policies", "admission"},
    "addons.reservations": {"core", "policies", "admission"},
    "addons.share": {"core", "config", "fleet", "observe", "dispatch", "share"},
    "addons.spot_notices": {"core", "config", "fleet", "observe", "dispatch"},
    "addons.usage": {"core", "config", "admission", "wire", "intake", "observe", "dispatch"},
    "addons.kubernetes": {"core", "config", "fleet", "config.address", "fleet.engines"},
    "app": {
        *("core", "config", "policies", "admission", "wire", "intake", "fleet"),
        *("observe", "dispatch", "config.address", *FLEET),
    },
    "lab.traces": {"core", "intake", "fleet", "lab.simulator"},
    "lab.replay.truth": {"core", "lab.simulator", "lab.sketch"},
    "lab.replay.report": {
        *("core", "policies", "lab.page", "lab.simulator", "lab.sketch", "lab.traces"),
        "lab.replay.truth",
    },
    "lab.audit": {
        *("core", "fleet", "intake", "lab.flags", "lab.sketch"),
        *("lab.simulator", "lab.traces", "lab.replay.report"),
    },
    "lab.plan": {
        *("core", "config", "lab.flags", "lab.page", "lab.simulator", "lab.traces"),
        *("config.address", "fleet.engines", "lab.extras", "lab.replay.report"),
    },
    "lab.replay": {
        *("core", "config", "policies", "lab.emulator", "fleet", "intake", "observe", "lab.flags"),
        *("lab.simulator", "lab.traces", "lab.audit", "lab.replay.report", "lab.replay.truth"),
        *("lab.extras", "lab.sketch"),
    },
    "completion": {"cli"},
    "admin_client": set(),
    "cli": {"core", "config", "app", "config.address", "admin_client"},
    "__main__": {"cli"},
}
# Modules that pure code does not need: sockets, event loops, clocks, processes, HTTP.
NOT_IN_POLICIES = {
    *("asyncio", "socket", "ssl", "selectors", "threading", "multiprocessing", "subprocess"),
    *("time", "datetime", "logging", "os", "aiohttp", "httptools", "uvloop"),
}

FILES = sorted([*(ROOT / "router").rglob("*.py"), *(ROOT / "policies").rglob("*.py")])


def module_of(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer_of(module: str) -> str | None:
    """The layer of a module; None for third-party modules, "" for bare `router`."""
    top, _, rest = module.partition(".")
    if top != "router":
        return top if top in ("policies", "bench", "tests") else None
    parts = rest.split(".")
    inner = (".".join(parts[:length]) for length in (3, 2))
    return next((name for name in inner if name in MAY_IMPORT), parts[0])


def imported(source: str) -> Iterator[tuple[int, str]]:
    """Line and full name of every import in a source."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: write imports in full"
            if node.module == "router":
                yield from ((node.lineno, f"router.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, node.module or ""


def violations(module: str, source: str) -> list[str]:
    layer = layer_of(module)
    if layer == "":  # router/__init__.py is below everything
        allowed: set[str] = set()
    else:
        assert layer in MAY_IMPORT, f"{module} belongs to no layer of the table"
        allowed = {layer, *MAY_IMPORT[layer]}
    found = []
    for line, name in imported(source):
        target = layer_of(name)
        is_upward = target is not None and target not in allowed
        is_impure = layer == "policies" and name.partition(".")[0] in NOT_IN_POLICIES
        if is_upward or is_impure:
            found.append(f"{module}:{line} imports {name}")
    return found


def test_imports_go_down_only() -> None:
    found = [line for file in FILES for line in violations(module_of(file), file.read_text())]
    assert found == []


def test_the_table_has_no_circle() -> None:
    settled: set[str] = set()
    while open_layers := {layer for layer in MAY_IMPORT if layer not in settled}:
        ready = {layer for layer in open_layers if MAY_IMPORT[layer] <= settled}
        assert ready, f"a circle among {sorted(open_layers)}"
        settled |= ready


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("policies.routing.x", "import router.core.errors"),
        ("policies.routing.x", "def f():\n    import time"),
        ("router.core.x", "from router import config"),
        ("router.wire.x", "from policies.contract import Pick"),
        ("router.wire.x", "def f():\n    from router.fleet.table.fleet import Fleet"),
        ("router.fleet.x", "from router.app import App"),
        ("router.lab.emulator.x", "from router.config.model import Config"),
        ("router.observe.x", "from bench.overhead import cpu"),
        ("router.__main__", "from router.app import serve"),
        ("router.app.x", "from router.lab.emulator import settings"),
        ("router.app.x", "def f():\n    from router.addons.batches.server import BatchServer"),
        ("router.addons.batches.x", "import router.addons.kubernetes"),
        ("router.dispatch.x", "from router.addons.continuation.stream import Continuation"),
        ("router.dispatch.x", "def f():\n    from router.lab.simulator.clock import Clock"),
    ],
)
def test_the_walk_sees_a_violation(module: str, source: str) -> None:
    assert len(violations(module, source)) == 1


def test_the_walk_sees_the_project() -> None:
    modules = {module_of(file) for file in FILES}
    assert {"router.cli", "router.config.load", "policies.contract"} <= modules


def test_a_parser_knows_no_connection() -> None:
    """A parser returns what it read. So `wire/http1` imports nothing of its callers."""
    for file in sorted((ROOT / "router/wire/http1").glob("*.py")):
        for line, name in imported(file.read_text()):
            if name.startswith("router.wire.") and not name.startswith("router.wire.http1"):
                assert name == "router.wire.turn", f"{file.name}:{line} imports {name}"
