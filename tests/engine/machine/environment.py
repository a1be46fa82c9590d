"""The cached environment in which the real engines run: built once per machine, then reused.

The environment is in `$XDG_CACHE_HOME/hedgerow/engine-<key>` (`~/.cache` without the variable). The
key names versions and recipe, so another recipe has another folder. A folder under its final name
is always complete: it is built under another name and renamed after a test import. A file lock
prevents two runs from building at once; the second waits and then uses the result.

`python -m tests.engine.machine.environment` builds it before the tests and prints its path.
"""

import fcntl
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.engine.machine import recipe

NIXL_VERSION = "1.5.1"


@dataclass(frozen=True, slots=True)
class EngineEnvironment:
    """Paths of the engine's Python and of the tiny model."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "venv" / "bin" / "python"

    @property
    def model(self) -> Path:
        return self.folder / "model"


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or ""
    # XDG base directory specification: a relative path must be ignored.
    root = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    return root / "hedgerow"


def ensure(say: Callable[[str], None] | None = None) -> EngineEnvironment:
    """The environment, built now if this machine has none. Raises `recipe.BuildFailed`."""
    say = say or tell
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    final = cache / f"engine-{recipe.key()}"
    with locked(final.with_name(final.name + ".lock"), say):
        if not final.exists():
            build_into(final, say)
    return EngineEnvironment(final)


def ensure_nixl(built: EngineEnvironment, say: Callable[[str], None] | None = None) -> Path:
    """A folder with NIXL, which transfers KV caches between engines, for `PYTHONPATH`.

    Its requirements, such as a CUDA build of torch, are not installed. The transport over TCP and
    shared memory needs no GPU.
    """
    say = say or tell
    final = cache_folder() / f"nixl-{NIXL_VERSION}-{recipe.key()}"
    with locked(final.with_name(final.name + ".lock"), say):
        if not final.exists():
            building = final.with_name(final.name + ".building")
            shutil.rmtree(building, ignore_errors=True)
            pip = [str(built.python), "-m", "pip", "--no-input", "--disable-pip-version-check"]
            install = [*pip, "install", "--no-deps", "--no-compile", "--progress-bar", "off"]
            wanted = [f"{name}=={NIXL_VERSION}" for name in ("nixl", "nixl-cu12")]
            log = final.with_name(final.name + ".log")
            recipe.run("nixl", [*install, "--target", str(building), *wanted], log)
            building.rename(final)
    return final


def build_into(final: Path, say: Callable[[str], None]) -> None:
    building = final.with_name(final.name + ".building")
    log = final.with_name(final.name + ".log")
    if building.exists():  # left by a killed build: we hold the lock, so no other build is running
        shutil.rmtree(building)
    building.mkdir()
    log.unlink(missing_ok=True)
    say(f"building {final} (once per machine, several minutes; log: {log})")
    started = time.monotonic()
    try:
        recipe.build(building, log, say)
        building.rename(final)
    except BaseException:  # also Ctrl-C: do not keep gigabytes of an incomplete environment
        shutil.rmtree(building, ignore_errors=True)
        raise
    say(f"built in {time.monotonic() - started:.0f} s")


@contextmanager
def locked(path: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Hold an exclusive lock on `path`; the kernel releases it if this process dies."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another build ({path})")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def tell(line: str) -> None:
    print(f"engine environment: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        print(ensure().folder)
    except recipe.BuildFailed as failure:
        sys.exit(f"engine environment: {failure}")
