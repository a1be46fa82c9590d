"""`python -m bench.aiperf`: compare routing policies with `aiperf` over emulated engines.

Each run starts fresh engines and a fresh router. The order of the policies alternates: the first
policy of one round is the second of the next. aiperf is installed in its own virtual environment
(`--install` creates it, once per machine). aiperf's tokenizer is trained on this machine, so that
none is downloaded. Each prompt has 550 tokens and is sent several times; requests arrive at random
times. The first pass over the prompts fills the engines' prefix caches and is not measured.

Goals: no request fails, and the p99 time to first token under `kv_aware` is at most that under
`round_robin` (medians over the rounds). The exit status is 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from bench.overhead.packaged import Package, found, install
from router.lab.overhead.processes import free_port, start, stop, wait_for

AIPERF = Package("aiperf", "0.13.0", "aiperf")
TOKENIZER = Path(__file__).parent / "tokenizer.py"
POLICIES = ("kv_aware", "round_robin")
MODEL = "emulated"
START_S = 60.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.aiperf", description=__doc__)
    parser.add_argument("--install", action="store_true", help="install aiperf, once a machine")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=600, help="of one run")
    parser.add_argument("--prompts", type=int, default=100, help="different ones")
    parser.add_argument("--rate", type=float, default=10.0, help="requests a second")
    parser.add_argument("--replicas", type=int, default=3)
    args = parser.parse_args()
    there = install(AIPERF) if args.install else found(AIPERF)
    if there is None:
        print("aiperf is not installed: see --install", file=sys.stderr)
        return 2
    programs = there.folder / "bin"
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="hedgerow-aiperf-") as name:
        folder = Path(name)
        tokenizer = folder / "tokenizer"
        subprocess.run([programs / "python", TOKENIZER, tokenizer], check=True, capture_output=True)
        for number in range(args.rounds):
            for policy in POLICIES if number % 2 == 0 else POLICIES[::-1]:
                out = folder / f"{policy}-{number}"
                out.mkdir()
                with router(out, policy, args.replicas) as url:
                    export = profile(programs / "aiperf", url, tokenizer, out, number, args)
                rows.append(row_of(policy, number, export))
                print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    text, is_met = report(rows)
    print(text)
    return 0 if is_met else 1


@contextmanager
def router(folder: Path, policy: str, replicas: int) -> Iterator[str]:
    """Run the router with this routing policy in front of emulated engines. Yields its URL."""
    port, admin = free_port(), free_port()
    config = folder / "hedgerow.yaml"
    config.write_text(
        f"listen: 127.0.0.1:{port}\nadmin: 127.0.0.1:{admin}\naccess_log: {{path: ''}}\n"
        f"routing: {{policy: {policy}}}\n"
        f"emulate: {{count: {replicas}, model: {MODEL}}}\n"
    )
    serve = [sys.executable, "-m", "router", "serve", "--config", str(config)]
    process = start(serve, log=folder / "hedgerow.log")
    try:
        wait_for(f"http://127.0.0.1:{admin}/readyz", START_S)
        yield f"http://127.0.0.1:{port}"
    finally:
        stop(process)


def profile(
    program: Path, url: str, tokenizer: Path, out: Path, number: int, args: argparse.Namespace
) -> dict[str, Any]:
    """Run aiperf once and return its summary. The round's number seeds the arrival times."""
    command = [
        *(program, "profile", "--model", MODEL, "--endpoint-type", "chat", "--streaming"),
        *("--url", url, "--tokenizer", tokenizer, "--ui-type", "none", "--artifact-dir", out),
        *("--request-rate", args.rate, "--request-count", args.requests),
        *("--random-seed", number + 1, "--num-dataset-entries", args.prompts),
        *("--output-tokens-mean", 64),
        *("--warmup-request-count", args.prompts, "--dataset-sampling-strategy", "sequential"),
    ]
    with (out / "aiperf.log").open("w") as log:
        subprocess.run([str(word) for word in command], stdout=log, stderr=log, check=True)
    export: dict[str, Any] = json.loads(next(out.rglob("profile_export_aiperf.json")).read_text())
    return export


def row_of(policy: str, number: int, export: dict[str, Any]) -> dict[str, Any]:
    ttft = export["time_to_first_token"]
    return {
        "policy": policy,
        "round": number + 1,
        "requests": export["request_count"]["avg"],
        "errors": sum(error["count"] for error in export.get("error_summary") or []),
        **{name: ttft[name] for name in ("p50", "p90", "p99")},
    }


def report(rows: list[dict[str, Any]]) -> tuple[str, bool]:
    """Return a table with a verdict on each goal, and whether all goals are met."""
    lines = [
        f"{row['policy']:12}{row['round']:6}{row['requests']:10.0f}{row['errors']:8}"
        f"{row['p50']:14.1f}{row['p90']:7.1f}{row['p99']:7.1f}"
        for row in sorted(rows, key=lambda row: str(row["policy"]))
    ]
    ours, plain = (
        median(row["p99"] for row in rows if row["policy"] == policy) for policy in POLICIES
    )
    errors = sum(row["errors"] for row in rows)
    lines = [
        "policy       round  requests  errors  TTFT p50, ms    p90    p99",
        *lines,
        f"errors: {errors} (goal 0): {verdict(errors == 0)}",
        f"p99, {POLICIES[0]}: {ours:.1f} ms, {ours / plain:.2f} of {POLICIES[1]}'s"
        f" (goal 1 at most): {verdict(ours <= plain)}",
    ]
    return "\n".join(lines), errors == 0 and ours <= plain


def verdict(is_met: bool) -> str:
    return "met" if is_met else "NOT MET"


if __name__ == "__main__":
    sys.exit(main())
