"""Soak test with hostile crowds: `python -m tests.abuse.soak FOLDER [MINUTES] [--seed SEED]`.

Each round is written to FOLDER when it ends, under the commit that it attacked; a later start
continues with the next seed. A failed round is written with its failure, and the next round starts
a new router. Routers with the settings of odd and of even seeds alternate. With `--seed`, only that
round runs. FOLDER/report.txt lists all rounds; the exit status is 1 if any round failed.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path
from time import monotonic
from typing import Any

import uvloop

from tests.abuse.rounds import run_round
from tests.abuse.victim import LOOP_S, MEMORY, settings_of, under_attack

CROWDS = 25  # crowds per round
ROUNDS = 20  # rounds per router: enough to show slow growth of its memory
Row = dict[str, Any]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.abuse.soak")
    parser.add_argument("folder", type=Path)
    parser.add_argument("minutes", type=float, nargs="?", default=60.0)
    parser.add_argument("--seed", type=int)
    asked = parser.parse_args(arguments)
    asked.folder.mkdir(parents=True, exist_ok=True)
    # The commit is read from the checkout that contains the folder, because the program may run
    # from a compiled copy without git history.
    describe = ["git", "-C", str(asked.folder), "describe", "--always", "--dirty"]
    commit = subprocess.check_output(describe, text=True).strip()
    file = asked.folder / f"{commit}.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    if asked.seed is not None:
        return 1 if any(row["failed"] for row in rounds_of_one_router([asked.seed], 1)) else 0
    until = monotonic() + 60.0 * asked.minutes
    while monotonic() < until:
        first = 1 + max((row["seed"] for row in rows), default=0)
        for row in rounds_of_one_router(range(first, first + 2 * ROUNDS, 2), until):
            rows.append(row)
            with file.open("a") as out:
                out.write(json.dumps(row) + "\n")
    text = report(commit, rows)
    (asked.folder / "report.txt").write_text(text + "\n")
    print(text)
    return 1 if any(row["failed"] for row in rows) else 0


def rounds_of_one_router(seeds: Sequence[int], until: float) -> list[Row]:
    """Run the rounds of these seeds on one router until the first failure or the time limit.

    All seeds are even, or all are odd, because they determine the router's settings.
    """
    rows: list[Row] = []
    with (
        tempfile.TemporaryDirectory(prefix="hedgerow-soak-") as folder,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        house = AsyncExitStack()
        extra = settings_of(seeds[0], Path(folder))
        victim = runner.run(house.enter_async_context(under_attack(Path(folder), extra)))
        try:
            for seed in seeds:
                began, served, failed = monotonic(), victim.served, ""
                try:
                    run_round(runner, victim, seed, CROWDS)
                except Exception:
                    failed = traceback.format_exc()
                    print(failed, file=sys.stderr)
                rows.append(
                    {
                        "seed": seed,
                        "crowds": CROWDS,
                        "seconds": round(monotonic() - began, 1),
                        "served": victim.served - served,
                        "longest_s": victim.worst_s,
                        "grown": victim.grown,
                        "failed": failed,
                    }
                )
                print({name: rows[-1][name] for name in rows[-1] if name != "failed"}, flush=True)
                if failed or monotonic() > until:
                    break
        finally:
            runner.run(house.aclose())
    return rows


def report(commit: str, rows: Sequence[Row]) -> str:
    """Report the results of all rounds of this commit."""
    failed = [row for row in rows if row["failed"]]
    longest_s = max((row["longest_s"] for row in rows), default=0.0)
    lines = [
        f"Hostile crowds, {commit}, {datetime.now():%Y-%m-%d}: {len(rows)} rounds, "
        f"{sum(row['crowds'] for row in rows)} crowds, "
        f"{sum(row['seconds'] for row in rows) / 60:.0f} minutes",
        f"requests of a bystander that were answered meanwhile: "
        f"{sum(row['served'] for row in rows)}",
        f"CPU between two ticks of the loop: {longest_s:.3f} s at most (bound {LOOP_S:g})",
        f"memory beyond that at rest, after a round: "
        f"{max((row['grown'] for row in rows), default=0) / 2**20:.0f} MiB at most "
        f"(bound {MEMORY / 2**20:.0f})",
        f"rounds that failed: {len(failed)}",
    ]
    for row in failed:
        lines += [f"  seed {row['seed']}: {row['failed'].strip().splitlines()[-1]}"]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
