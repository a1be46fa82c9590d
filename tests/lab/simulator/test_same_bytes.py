"""Two runs of one seed write the same bytes in two processes with different `PYTHONHASHSEED`.

The order of a set of strings differs between processes. No decision and no report may depend on it:
the queue, hedges and retries are part of the runs.
"""

import os
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from router.observe.log.record import Record
from tests.addons.needed import needs

SEEDS = ("1", "2")


def said(seed: str, *words: str) -> bytes:
    """Standard output of `python -m WORDS` with this `PYTHONHASHSEED`."""
    done = subprocess.run(
        [sys.executable, "-m", *words],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@needs("preemption")
def test_every_record_is_the_same_to_the_last_bit() -> None:
    first, second = (said(seed, "tests.lab.simulator.every_record") for seed in SEEDS)
    assert first == second
    # The run contains hedges, retries, ejections and preemptions.
    text = first.decode()
    assert text.count("hedge_won=True") >= 3
    assert text.count("reason=<Reason.OK") >= 500
    totals = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    assert int(totals["retries"]) > 0 and int(totals["ejections"]) > 0
    assert totals["policy_errors"] == "0"
    assert "'preempted': (0, 0, 0, 0, 0)" not in totals["queues"]


def access_log(path: Path) -> None:
    """Ten requests a second, three classes, seven tenants. Each session has its own prefix."""
    rng = Random(1)
    lines = []
    for number in range(400):
        session = rng.randrange(40)
        blocks = b"".join(bytes([0, 0, 0, 0, session, place]) for place in range(8))
        fields: dict[str, Any] = {
            "id": f"{number}",
            "kind": "chat",
            "stream": True,
            "model": "m",
            "priority": ("high", "normal", "batch")[number % 3],
            "tenant": f"tenant {session % 7}",
            "session": f"session {session}",
            "status": 200,
            "reason": "ok",
            "attempts": [("r0", "primary", "ok", 1.0)],
            "prompt_tokens": 1100 + rng.randrange(2000),
            "output_tokens": rng.randrange(2, 60),
            "duration_ms": 100.0,
            "blocks": blocks,
        }
        lines.append(msgspec.json.encode(Record(ts=1000.0 + number * 0.1, **fields)))
    path.write_bytes(b"\n".join(lines) + b"\n")


def test_a_replay_says_and_writes_the_same(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    access_log(log)
    told = []
    for seed in SEEDS:
        figures = tmp_path / f"{seed}.json"
        out = said(
            seed,
            *("router", "replay", str(log), "--replicas", "3", "--routers", "2"),
            *("--policy", "kv_aware", "--policy", "p2c", "--queue", "fair", "--queue", "slide"),
            *("--timing", "5,0.05,0,10,0.1,0", "--kv-tokens", "40000", "--block-tokens", "128"),
            *("--fault", "slow:0:10:20:10", "--fault", "kill:1:25:30"),
            *("--json", str(figures), "--jobs", "1"),
        )
        # The last member, `run`, holds the date and the wall time.
        report, _, last = figures.read_bytes().partition(b'\n "run": {')
        assert b'"wall_s"' in last and b'"wall_s"' not in report
        told.append((out, report))
    assert told[0] == told[1]
    out, report = told[0]
    assert b"hedged" in out, out.decode()
    assert b'"queued_s"' in report
