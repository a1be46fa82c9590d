"""A log of two real engines, recorded as in production, replayed and judged by its second half.

    python -m tests.engine.prove_replay FOLDER

Two vLLM engines, each on a core of its own, behind a router with the shipped configuration (queue
and hedging on). `LOAD` is run once for each block of each half, with other prompts; the second half
of the log has at least `JUDGED` requests. The blocks of the two halves alternate, because the speed
of a shared machine drifts within minutes, which no engine model can know. In the log all blocks of
the first half come first (`loads/blocks.py`). Arrivals are open loop and below saturation: a replay
repeats the logged arrival times, so a queue that grows without bound would make any small error of
the engine model large. Then `hedgerow replay LOG --config FILE` runs twice:

1. with `--calibrate`: it fits the engine model to the first half, prints logged beside simulated of
   the second half, and must trust it (status 0: TTFT and TPOT within 20 % at p50, 30 % at p90);
2. with the fitted coefficients, all three times as large: it must refuse (status 3).

FOLDER keeps the log; a later start with the same commit records only what is missing. The report is
printed and written to FOLDER/report.txt. Exit status: 0 if both replays ended as they must, else 1.

Must never leave a run out of the report.
"""

import asyncio
import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from router.cli import main as hedgerow
from tests.engine.loads.blocks import in_order
from tests.engine.loads.halves import open_load
from tests.engine.loads.rounds import logged_pair, wait_for_lines

LOAD = {1.2: 50, 1.6: 80, 2.0: 80}  # requests of one block, by arrivals per second
BLOCKS = 5  # of each half
JUDGED = 1000
BLOCK_WITHIN_S = 360.0
BLOCK = sum(LOAD.values())
HALF = BLOCKS * BLOCK
WRONG = 3.0  # factor on all coefficients of the deliberately wrong engine model
TRUSTED, REFUSED = 0, 3  # exit statuses of a replay


def main(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    log, config, done = (folder / name for name in ("access.log", "hedgerow.yaml", "commit"))
    commit = subprocess.check_output(["git", "describe", "--always", "--dirty"], text=True).strip()
    if not done.exists() or done.read_text() != commit:
        record(folder, log)
        done.write_text(commit)
    figures = folder / "replay.json"
    words = [str(log), "--config", str(config), "--jobs", "1"]
    right = replayed([*words, "--calibrate", "--json", str(figures)])
    timing = fitted(json.loads(figures.read_text())) if figures.exists() else ""
    wrong = replayed([*words, "--timing", timing])
    wanted = ((right, TRUSTED), (wrong, REFUSED))
    lines = [f"A log of two real engines, {commit}, {datetime.now():%Y-%m-%d}: {2 * HALF:,}"]
    lines[0] += f" requests in two halves of {BLOCKS} blocks, recorded in turns"
    for (status, text), due in wanted:
        lines += ["", text.rstrip(), f"exit status {status}, wanted {due}"]
    report = "\n".join(lines) + "\n"
    (folder / "report.txt").write_text(report)
    print(report)
    return 0 if all(status == due for (status, _), due in wanted) else 1


def record(folder: Path, log: Path) -> None:
    """Run the load through a router with the shipped configuration and an access log."""
    assert HALF >= JUDGED
    with logged_pair(folder, log, blocks=512, salt="proof") as router:
        for block in range(2 * BLOCKS):
            load = open_load(router.url, f"block {block}", LOAD, BLOCK_WITHIN_S)
            failed = [answer.error for answer in asyncio.run(load) if answer.error]
            assert not failed, failed[:5]
            wait_for_lines(log, (block + 1) * BLOCK)
    lines = log.read_bytes().splitlines()
    blocks = [lines[at : at + BLOCK] for at in range(0, len(lines), BLOCK)]
    log.write_bytes(b"".join(line + b"\n" for line in in_order([*blocks[::2], *blocks[1::2]])))


def replayed(words: Sequence[str]) -> tuple[int, str]:
    """The exit status of `hedgerow replay`, and what it printed."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        status = hedgerow(["replay", *words])
    return (
        status,
        f"hedgerow replay {' '.join(Path(word).name for word in words)}\n{out.getvalue()}",
    )


def fitted(content: dict[str, Any]) -> str:
    """The fitted coefficients, made wrong, as `--timing` takes them."""
    (group,) = content["runs"][0]["groups"]
    return ",".join(f"{WRONG * float(one):.6g}" for one in group["timing"].split(","))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
