"""`python -m bench.routing`: measure the CPU time of a routing decision.

It is measured for every policy and several fleet sizes. A decision is match + pick + insert for a
prompt of 16 KB, without the hashing of the prompt. The fleet has running requests and a full prefix
index. As in the proxy, a policy in a fleet of more than 64 replicas sees 64 of them and the
replicas that hold a prefix of the prompt. A policy can request all replicas.
"""

from __future__ import annotations

import platform
import sys
from random import Random
from typing import Any

from bench import micro
from bench.routing import measure
from bench.routing.traffic import KINDS, MIX, Fleet
from policies.contract import policy_names
from router.lab.overhead import cpu

SIZES = (2, 8, 64, 1024)
DEFAULT = "kv_aware"
# Goals: µs of a decision by number of replicas, µs of hashing a prompt, bytes of an index entry.
DECISION_US = {64: 15.0, 1024: 60.0}
HASHING_US = 6.0
ENTRY_BYTES = 200.0


def main() -> int:
    args = micro.arguments("python -m bench.routing", __doc__)
    blocks = 5 if args.quick else 15
    known = policy_names()
    policies = args.policies.split(",") if args.policies else known
    if unknown := sorted(set(policies) - set(known)):
        print(f"no such policy: {', '.join(unknown)} (known: {', '.join(known)})", file=sys.stderr)
        return 2
    decisions: dict[str, dict[int, float]] = {}
    parts: dict[int, dict[str, float]] = {}
    for size in SIZES:
        print(f"{size} replicas …", file=sys.stderr)
        fleet = Fleet(size, Random(1))
        for policy in policies:
            decisions.setdefault(policy, {})[size] = measure.decision_us(fleet, policy, MIX, blocks)
        if DEFAULT in policies:
            for kind in KINDS:
                line = decisions.setdefault(f"{DEFAULT}, {kind}", {})
                line[size] = measure.decision_us(fleet, DEFAULT, kind, blocks)
        parts[size] = measure.parts_us(fleet, blocks)
    print("memory …", file=sys.stderr)
    results = {
        "cpu": cpu.model(),
        "python": platform.python_version(),
        "decision_us": decisions,
        "parts_us": {part: {size: parts[size][part] for size in SIZES} for part in parts[SIZES[0]]},
        "hashing_us": measure.hashing_us(blocks),
        "entry_bytes": measure.bytes_per_entry(),
    }
    results["goals"] = _goals(results)
    return micro.tell(results, _table, args.json)


def _goals(results: dict[str, Any]) -> list[dict[str, Any]]:
    """Return each goal with its measured value. The goal of a decision applies to the default
    policy with its most expensive kind of prompt.
    """
    goals = []
    lines = [line for name, line in results["decision_us"].items() if name.startswith(DEFAULT)]
    for size, most in DECISION_US.items():
        if lines:
            reached = max(line[size] for line in lines)
            goals.append((f"decision, {DEFAULT}, {size} replicas, µs", most, reached))
    goals.append(("hashing 16 KB, µs", HASHING_US, results["hashing_us"]))
    goals.append(("index, bytes per (block, holder)", ENTRY_BYTES, results["entry_bytes"]))
    return [{"goal": name, "most": most, "reached": reached} for name, most, reached in goals]


def _table(results: dict[str, Any]) -> str:
    rows = [["µs per decision, replicas:", *map(str, SIZES)]]
    rows += [
        [name, *(f"{line[size]:.1f}" for size in SIZES)]
        for name, line in results["decision_us"].items()
    ]
    rows += [
        [f"of it the index: {part}" if part != "confirm" else "later, at the first token: confirm"]
        + [f"{line[size]:.1f}" for size in SIZES]
        for part, line in results["parts_us"].items()
    ]
    for goal in results["goals"]:
        short = goal["reached"] / goal["most"]
        verdict = "met" if short <= 1 else f"short by {short:.2f}x"
        rows.append([goal["goal"], f"≤ {goal['most']:g}", f"{goal['reached']:.1f}", verdict])
    # A long verdict may be wider than its column, so that the columns of figures stay narrow.
    widths = [max(len(row[n]) for row in rows if len(row) > n) for n in range(len(SIZES))]
    widths.append(8)
    lines = [f"CPU {results['cpu']}, Python {results['python']}; 16 KB prompts; medians"]
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=False)]
        lines.append("  ".join([row[0].ljust(widths[0]), *cells[1:]]))
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
