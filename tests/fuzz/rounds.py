"""Run every fuzz target: `python -m tests.fuzz.rounds FOLDER [SECONDS]`.

SECONDS is the time per target. FOLDER keeps the corpus of each target and its failing inputs, so a
later run continues where this one ended. FOLDER/report.txt lists the executions of each target,
under the fuzzed commit. The exit status is 1 if a target failed.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

SECONDS = 120
# The end of libFuzzer's output: "#4096 DONE cov: 512 …", "Done 4096 runs in 121 second(s)".
DONE = re.compile(r"^Done (\d+) runs? in (\d+) second", re.MULTILINE)
GRACE_S = 120  # extra time for a target to start and to read its corpus


@dataclass(frozen=True, slots=True)
class Fuzzed:
    """The result of one target. `why`: the end of a failed target's output, else empty."""

    target: str
    inputs: int
    seconds: int
    corpus: int
    why: str

    def __str__(self) -> str:
        verdict = f"failed: {self.why}" if self.why else "no failure"
        return (
            f"{self.target:<10} {self.inputs:>10,} inputs in {self.seconds:>5} s, "
            f"corpus {self.corpus:>6,}: {verdict}"
        )


def main() -> int:
    from tests.fuzz.targets import TARGETS

    if not 2 <= len(sys.argv) <= 3:
        print("usage: python -m tests.fuzz.rounds FOLDER [SECONDS]", file=sys.stderr)
        return 2
    folder = Path(sys.argv[1]).resolve()
    seconds = int(sys.argv[2]) if len(sys.argv) == 3 else SECONDS
    folder.mkdir(parents=True, exist_ok=True)
    describe = ["git", "-C", str(folder), "describe", "--always", "--dirty"]
    commit = subprocess.check_output(describe, text=True).strip()
    found = []
    for name in TARGETS:
        found.append(fuzz(name, folder, seconds))
        print(found[-1], flush=True)
    failed = [each for each in found if each.why]
    title = f"Fuzzing with atheris, {commit}, {datetime.now():%Y-%m-%d}"
    text = "\n".join([title, *map(str, found), f"targets that failed: {len(failed)}"])
    (folder / "report.txt").write_text(text + "\n")
    print(text.splitlines()[-1])
    return 1 if failed else 0


def fuzz(name: str, folder: Path, seconds: int) -> Fuzzed:
    """Run one target in its own process."""
    corpus = folder / name
    options = [f"-max_total_time={seconds}", f"-artifact_prefix={folder}/{name}-"]
    command = [sys.executable, "-m", "tests.fuzz", name, str(corpus), *options]
    try:
        run = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=2 * seconds + GRACE_S,
        )
        output, status = run.stdout.decode("utf-8", "replace"), run.returncode
    except subprocess.TimeoutExpired as err:
        output, status = (err.stdout or b"").decode("utf-8", "replace"), -1
    (folder / f"{name}.log").write_text(output)
    return judged(name, output, status, sum(1 for _ in corpus.iterdir()))


def judged(name: str, output: str, status: int, corpus: int) -> Fuzzed:
    """A successful target reports how many inputs it executed; without this report it failed."""
    done = DONE.search(output)
    why = ""
    if status or done is None:
        lines = [line for line in output.splitlines() if line.strip()]
        why = f"status {status}: {lines[-1] if lines else 'no output'}"
    inputs, took = (int(done[1]), int(done[2])) if done else (0, 0)
    return Fuzzed(name, inputs, took, corpus, why)


if __name__ == "__main__":
    sys.exit(main())
