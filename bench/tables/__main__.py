"""`python -m bench.tables`: measure the tables that are not current, one after the other.

A table is current if nothing in `router`, `policies`, `bench` and the build files has changed since
its commit. So an interrupted run can be continued. The working tree must have no changes, because a
table names the commit that it was measured on.

Exit code 0: all tables are current; 1: a bench could not run; 2: an argument is invalid, or the
working tree has changes.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from bench.tables.parts import PARTS, TRACES, Part, commit_of, page

_ROOT = Path(__file__).parents[2]
_SOURCES = ("router", "policies", "bench", "setup.py", "pyproject.toml")
_NOT_SOURCES = (":!bench/tables/*.md", ":!bench/RESULTS.md")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.tables", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help="only these (default: all)")
    parser.add_argument("--traces", metavar="FOLDER", help="the folder with the recorded traces")
    parser.add_argument(
        "--tree", metavar="FOLDER", default=str(_ROOT), help="the tree to run, such as a built copy"
    )
    args = parser.parse_args(argv)
    known = [part.name for part in PARTS]
    unknown = [name for name in args.parts if name not in known]
    if unknown:
        return _mistake(f"unknown part {unknown[0]!r}; known: {', '.join(known)}")
    if _git("status", "--porcelain", "--", *_SOURCES, *_NOT_SOURCES):
        return _mistake("the working tree has changes; commit them first")
    commit = _git("rev-parse", "--short=10", "HEAD")
    failed = False
    for part in PARTS:
        if args.parts and part.name not in args.parts:
            continue
        missing = [name for name in part.traces if args.traces is None]
        if missing:
            _say(f"{part.name}: left out, because it needs --traces ({', '.join(missing)})")
        elif _is_current(part):
            _say(f"{part.name}: current")
        else:
            failed |= not _measure(part, commit, args.traces or "", args.tree)
    return int(failed)


def _measure(part: Part, commit: str, traces: str, tree: str) -> bool:
    paths = {name: os.path.join(traces, file) for name, file in TRACES.items()}
    words = [sys.executable, "-m", "router", "bench", *part.command(paths), "--markdown"]
    _say(f"{part.name}: measuring")
    done = subprocess.run(words, cwd=tree, stdout=subprocess.PIPE, text=True, check=False)
    # Status 1 with a table means that a goal was missed.
    if done.returncode not in (0, 1) or not done.stdout.strip():
        _say(f"{part.name}: failed with status {done.returncode}")
        return False
    command = " ".join(["hedgerow", "bench", *part.words])
    text = page(part.name, command, commit, date.today().isoformat(), _machine(), done.stdout)
    _file(part).write_text(text, encoding="utf-8")
    return True


def _is_current(part: Part) -> bool:
    try:
        commit = commit_of(_file(part).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return False
    if commit is None:
        return False
    words = ["git", "diff", "--quiet", commit, "HEAD", "--", *_SOURCES, *_NOT_SOURCES]
    return subprocess.run(words, cwd=_ROOT, check=False).returncode == 0


def _file(part: Part) -> Path:
    return Path(__file__).with_name(f"{part.name}.md")


def _machine() -> str:
    name = platform.machine()
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            name = line.partition(":")[2].strip()
            break
    return f"{len(os.sched_getaffinity(0))} CPUs ({name}), Python {platform.python_version()}"


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=_ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _mistake(text: str) -> int:
    _say(text)
    return 2


if __name__ == "__main__":
    sys.exit(main())
