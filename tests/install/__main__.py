"""`make check-install`: every way to install the program, each in a fresh environment.

For each CPython found: `pip install .`, compiled. For the one that runs this check, also:

- the wheel and the sdist in dist/ (`make wheel` builds them): their members, then the wheel;
- `pip install .` with a PATH without C compiler: the pure Python version;
- `pipx install .`, which runs `pip install .` in an environment that pipx creates, without
  compiling: the first way has compiled the same sources with the same commands.

Arguments: the folder of the tools (pipx), and `this` to skip the other CPythons. Exit status 1 if a
step failed; the others still run.
"""

import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from time import monotonic

from router.core.build import VERSION
from tests.install import members, session
from tests.install.environments import FOLDER, Environment, Failed, clean_environ, run
from tests.install.pythons import Python, other_pythons, this_python
from tests.places import ROOT

COMPILED, PURE = "compiled", "pure Python"


def from_source(python: Python) -> None:
    """`pip install .` with a C compiler."""
    environment = Environment("source", python)
    environment.install(".")
    _use(environment, COMPILED)


def from_wheel(python: Python) -> None:
    """`pip install dist/*.whl`, after the members of wheel and sdist were compared."""
    (sdist,), (wheel,) = ROOT.glob("dist/*.tar.gz"), ROOT.glob("dist/*.whl")
    if "manylinux" not in wheel.name:
        raise Failed(f"not a manylinux wheel: {wheel.name}")
    suffix = str(sysconfig.get_config_var("EXT_SUFFIX"))
    for archive, expected in (
        (sdist, members.expected_sdist(ROOT, VERSION)),
        (wheel, members.expected_wheel(ROOT, VERSION, suffix)),
    ):
        wrong = members.differences(members.members(archive), expected)
        if wrong:
            raise Failed("\n".join([archive.name, *wrong]))
    environment = Environment("wheel", python)
    environment.install(wheel)
    _use(environment, COMPILED)


def without_compiler(python: Python) -> None:
    """`pip install .` with a PATH without C compiler."""
    environment = Environment("pure", python)
    environment.install(".", PATH=str(environment.bin))
    _use(environment, PURE)


def from_pipx(python: Python, tools: Path) -> None:
    """`pipx install .` with folders of its own."""
    home = FOLDER / f"pipx-{python.minor}"
    environ = clean_environ(
        PIPX_HOME=str(home), PIPX_BIN_DIR=str(home / "bin"), HEDGEROW_COMPILE="0"
    )
    run([tools / "pipx", "install", "--force", "--python", python.path, "."], environ)
    session.ask(home / "bin" / "hedgerow", VERSION, PURE)


def _use(environment: Environment, build: str) -> None:
    run([environment.python, "-I", ROOT / "tests" / "install" / "names.py"])
    session.ask(environment.command, VERSION, build)


def main(tools: Path, *, only_this: bool) -> int:
    this = this_python()
    others = [] if only_this else other_pythons(this)
    versions = ", ".join(python.version for python in (this, *others))
    print(f"CPython versions tested: {versions}", flush=True)
    steps: list[tuple[str, Python, Callable[[], None]]] = [
        ("pip install .", this, lambda: from_source(this)),
        ("pip install dist/*.whl", this, lambda: from_wheel(this)),
        ("pip install . (no C compiler)", this, lambda: without_compiler(this)),
        ("pipx install . (pure Python)", this, lambda: from_pipx(this, tools)),
        *(("pip install .", python, lambda p=python: from_source(p)) for python in others),
    ]
    failed = 0
    for name, python, step in steps:
        began = monotonic()
        try:
            step()
            verdict = "ok"
        except Failed as err:
            failed += 1
            verdict = f"failed\n{err}"
        print(
            f"CPython {python.version}: {name}: {verdict} ({monotonic() - began:.0f} s)", flush=True
        )
    print(f"{len(steps) - failed} passed, {failed} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), only_this=sys.argv[2:] == ["this"]))
