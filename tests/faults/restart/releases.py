"""Releases of the program beside each other, as an administrator installs them.

The link `current` names the release in use. A release is a folder with the executable script
`bin/hedgerow`. The old release has the sources of an earlier revision from this repository; the new
one has the sources of this tree.
"""

import io
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.places import ROOT

# What a revision needs for the test: restarts by SIGUSR2, and usage that is kept in a file.
NEEDED = ("router/app/restart/messages.py", "router/config/model/usage.py")
# The script says which release it belongs to, because two revisions may have the same version.
SCRIPT = """#!{python}
import sys
sys.path.insert(0, {tree!r})
print('{{"message": "release", "name": "{name}"}}', file=sys.stderr, flush=True)
from router.cli import main
raise SystemExit(main())
"""


class Unavailable(Exception):
    """Raised if there is no old release here. The text says why."""


class Releases:
    """A folder with releases. `command` starts the current one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)
        self.command = [str(folder / "current" / "bin" / "hedgerow")]

    def add(self, name: str, tree: Path) -> None:
        """Install the sources in `tree` as a release."""
        self.add_script(name, SCRIPT.format(python=sys.executable, tree=str(tree), name=name))

    def add_script(self, name: str, script: str) -> None:
        path = self._folder / name / "bin" / "hedgerow"
        path.parent.mkdir(parents=True)
        path.write_text(script)
        path.chmod(0o755)

    def use(self, name: str) -> None:
        """Let the link `current` name a release, or nothing if there is no such release."""
        fresh = self._folder / "current.new"
        fresh.symlink_to(name)
        fresh.rename(self._folder / "current")


def old_revision() -> str:
    """The newest tag before HEAD; without one, the first revision that has everything NEEDED.

    Raises Unavailable.
    """
    for tag in _git("tag", "--merged", "HEAD", "--no-contains", "HEAD", "--sort=-creatordate"):
        if _has_all(tag):
            return tag
    found = ""
    for path in NEEDED:
        history = ("log", "-1", "--first-parent", "-m", "--diff-filter=A", "--format=%H", "HEAD")
        added = _git(*history, "--", path)
        if not added:
            raise Unavailable(f"no revision has added {path}")
        if not found or _git("rev-list", "-1", f"{found}..{added[0]}"):
            found = added[0]
    if not _has_all(found):
        raise Unavailable(f"revision {found} has not all of {', '.join(NEEDED)}")
    return found


def extract(revision: str, folder: Path) -> Path:
    """Write the sources of a revision to `folder`, and return it. Raises Unavailable."""
    (top,) = _git("rev-parse", "--show-toplevel")
    data = _run("-C", top, "archive", "--format=tar", revision, "router", "policies")
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def _has_all(revision: str) -> bool:
    (top,) = _git("rev-parse", "--show-toplevel")
    found = _run("-C", top, "ls-tree", "--name-only", revision, *NEEDED)
    return len(found.splitlines()) == len(NEEDED)


def _git(*args: str) -> list[str]:
    (top,) = _run("-C", str(ROOT), "rev-parse", "--show-toplevel").decode().splitlines()
    return _run("-C", top, *args).decode().splitlines()


def _run(*args: str) -> bytes:
    try:
        return subprocess.run(("git", *args), capture_output=True, check=True, timeout=60).stdout
    except FileNotFoundError:
        raise Unavailable("git is not installed") from None
    except subprocess.CalledProcessError as err:
        raise Unavailable(f"git {args[2]}: {err.stderr.decode().strip()}") from None
