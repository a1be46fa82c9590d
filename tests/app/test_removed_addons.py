"""Each addon is removable: without its folder, everything else starts, and its setting says so."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from router.config.addons import NEEDS
from tests.places import ROOT

# A configuration that needs each addon.
SETTINGS = {
    "batches": "batches: {enabled: true}",
    "continuation": "continuation: {enabled: true}",
    "kubernetes": "discovery: {kubernetes: [{service: vllm}]}",
    "kv_events": "prefix: {exact: true}",
    "preemption": "queue: {preemption: {enabled: true}}",
    "reservations": "queue: {reservations: {enabled: true}}",
    "share": "share: {url: 'redis://127.0.0.1:9'}",
    "spot_notices": "spot: {notice_file: /no/such/file}",
    "usage": "usage: {file: /no/such/file}",
}
# Checks two files, starts and stops a router, and begins another with the second file.
PROGRAM = """
import asyncio, sys
from router.app import App
from router.cli import main
from router.config.load import load, parse
from router.core.errors import ConfigError

plain, needs = sys.argv[1:]

async def runs(config):
    app = App(config)
    try:
        await app.start()
    except ConfigError as err:
        print(*err.problems)
    else:
        print("runs")
    finally:
        if hasattr(app, "servers"):
            await app.stop()

print(main(["check", plain]), main(["check", needs]))
asyncio.run(runs(load(plain)))
asyncio.run(runs(parse(open(needs).read(), reads_files=False)))
"""


@pytest.mark.parametrize("addon", NEEDS)
def test_without_its_folder_all_else_works(addon: str, tmp_path: Path) -> None:
    for package in ("router", "policies"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=_not_needed(addon))
    plain, needs = tmp_path / "plain.yaml", tmp_path / "needs.yaml"
    base = "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nreplicas: [http://127.0.0.1:9]\n"
    plain.write_text(base)
    needs.write_text(base + SETTINGS[addon])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(plain), str(needs)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    missing = f"{NEEDS[addon].setting}: needs the addon {addon}, which is not installed"
    first, *others = done.stdout.splitlines()
    assert first.startswith("ok: "), done.stderr
    assert others == ["0 2", "runs", missing], done.stderr
    assert missing in done.stderr


def _not_needed(addon: str) -> Callable[[str, list[str]], set[str]]:
    def ignored(folder: str, names: list[str]) -> set[str]:
        is_addons = Path(folder).relative_to(ROOT) == Path("router/addons")
        removed = {"__pycache__", addon} if is_addons else {"__pycache__"}
        # Without compiled files, which need the library beside the packages.
        return {name for name in names if name in removed or name.endswith(".so")}

    return ignored


def test_every_addon_has_a_row_and_every_row_an_addon() -> None:
    folders = {path.parent.name for path in (ROOT / "router" / "addons").glob("*/__init__.py")}
    assert folders <= set(NEEDS) == set(SETTINGS)
