"""Run every fuzz target: `python -m tests.fuzz.rounds FOLDER [SECONDS]`.

SECONDS is the time per target. FOLDER keeps the corpus of each target, its output and its failing
inputs, so a later run continues where this one ended. FOLDER/report.txt lists the executions of
each target, under the fuzzed commit. The exit status is 1 if a target failed.
"""

import re
import subprocess
import sys
from datetime import datetime
from pathlib import Path

from tests.fuzz.targets import TARGETS

SECONDS = 120
# The end of libFuzzer's output: "Done 4096 runs in 121 second(s)".
DONE = re.compile(r"^Done (\d+) runs? in (\d+) second", re.MULTILINE)
GRACE_S = 120  # extra time for a target to start and to read its corpus


def main() -> int:
    folder = Path(sys.argv[1]).resolve()
    seconds = int(sys.argv[2]) if len(sys.argv) > 2 else SECONDS
    folder.mkdir(parents=True, exist_ok=True)
    describe = ["git", "-C", str(folder), "describe", "--always", "--dirty"]
    commit = subprocess.check_output(describe, text=True).strip()
    lines = [f"Fuzzing with atheris, {commit}, {datetime.now():%Y-%m-%d}"]
    failed = 0
    for name in TARGETS:
        is_well, line = fuzz(name, folder, seconds)
        failed += not is_well
        lines.append(line)
        print(line, flush=True)
    lines.append(f"targets that failed: {failed}")
    (folder / "report.txt").write_text("\n".join(lines) + "\n")
    print(lines[-1])
    return 1 if failed else 0


def fuzz(name: str, folder: Path, seconds: int) -> tuple[bool, str]:
    """Run one target in its own process. Returns whether it found no failure, and a line about it.

    A target that does not report how many inputs it executed has failed.
    """
    corpus, log = folder / name, folder / f"{name}.log"
    options = [f"-max_total_time={seconds}", f"-artifact_prefix={folder}/{name}-"]
    command = [sys.executable, "-m", "tests.fuzz", name, str(corpus), *options]
    status = -1
    with log.open("wb") as out:
        try:
            run = subprocess.run(
                command, stdout=out, stderr=subprocess.STDOUT, timeout=2 * seconds + GRACE_S
            )
            status = run.returncode
        except subprocess.TimeoutExpired:
            pass
    output = log.read_text(errors="replace")
    done = DONE.search(output)
    inputs, took = (int(done[1]), int(done[2])) if done else (0, 0)
    size = sum(1 for _ in corpus.iterdir())
    line = f"{name:<10} {inputs:>10,} inputs in {took:>5} s, corpus {size:>6,}: "
    if done and not status:
        return True, line + "no failure"
    last = (output.strip().splitlines() or ["no output"])[-1]
    return False, f"{line}failed: status {status}: {last}"


if __name__ == "__main__":
    sys.exit(main())
