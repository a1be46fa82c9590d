"""`python -m tests.mutation FOLDER --modules FILE… --tests FILE… [--tree DIR] [--count 100]`.

Draws mutants of the modules by a seed and runs the tests on each, in a copy of the tree. A mutant
is killed if a test fails or the tests do not end in time. FOLDER keeps one file for each commit and
seed, which lists every mutant; a later run continues after the last mutant. `--tree` names another
checkout, so that two versions of the code are compared by the same rules.

The exit status is 1 if fewer mutants were killed than `--goal` requires.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random
from time import monotonic

from tests.mutation.sites import mutant, sites

IGNORED = shutil.ignore_patterns(".git", ".venv", "build", "dist", "__pycache__", ".*_cache")
SLOWER = 4.0  # time limit of a mutant, as a multiple of the time with correct code
LEAST_S = 30.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--modules", nargs="+", required=True)
    parser.add_argument("--tests", nargs="+", required=True)
    parser.add_argument("--tree", type=Path, default=Path.cwd())
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--goal", type=int, default=0, help="mutants that must be killed")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    describe = ["git", "-C", str(args.tree), "describe", "--always", "--dirty"]
    commit = subprocess.check_output(describe, text=True).strip()
    report = args.folder / f"{commit}-{args.seed}.jsonl"
    with tempfile.TemporaryDirectory(prefix="hedgerow-mutation-") as name:
        tree = Path(name) / "tree"
        shutil.copytree(args.tree, tree, ignore=IGNORED)
        return run(tree, report, args)


def run(tree: Path, report: Path, args: argparse.Namespace) -> int:
    sources = {module: (tree / module).read_text() for module in args.modules}
    every = [(module, at) for module, text in sources.items() for at in range(sites(text))]
    drawn = Random(args.seed).sample(every, min(args.count, len(every)))
    began = monotonic()
    if not passes(tree, args.tests, None):
        print("the tests fail on the code as it is", file=sys.stderr)
        return 2
    limit_s = max(LEAST_S, SLOWER * (monotonic() - began))
    rows = [json.loads(line) for line in lines(report)]
    for module, at in drawn[len(rows) :]:
        changed = mutant(sources[module], at)
        file = tree / module
        file.write_text(changed.source)
        killed = not passes(tree, args.tests, limit_s)
        file.write_text(sources[module])
        rows.append({"at": f"{module}:{changed.line}", "what": changed.what, "killed": killed})
        with report.open("a") as out:
            out.write(json.dumps(rows[-1]) + "\n")
        print(rows[-1], flush=True)
    killed = sum(row["killed"] for row in rows)
    of = f"{len(rows)} mutants, drawn from {len(every)}"
    print(f"{report.stem}: {killed} killed of {of} (goal {args.goal})")
    for row in rows:
        if not row["killed"]:
            print(f"  survived: {row['at']}: {row['what']}")
    return 0 if killed >= args.goal else 1


def lines(report: Path) -> list[str]:
    return report.read_text().splitlines() if report.exists() else []


def passes(tree: Path, tests: list[str], limit_s: float | None) -> bool:
    """Whether the tests pass in the tree, within the time."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    env = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=tree, env=env, capture_output=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
