"""`python -m bench.queueing`: measure the CPU time of the admission queue.

It is measured for every order of the queue and several depths (numbers of waiting requests). The
fleet has eight replicas of one model. Requests come from a hundred users with ten API keys, in the
classes high, normal and low, with prompts of 100 to 4,000 tokens. A dispatch is the arrival of a
request that must wait, and the grant of a free place at a replica to a waiting request. With
prefixes, one replica holds some of each request's prompt, and a replica with a free place considers
the first 64 waiting requests.
"""

from __future__ import annotations

import platform
import sys
from typing import Any

import router.admission.queue
from bench import micro
from bench.queueing import measure
from policies.queueing.contract import order_names
from router.lab.overhead import cpu

DEPTHS = (10, 1000, 100_000)
DEFAULT = "fair"
PREFIXES = f"{DEFAULT}, prefixes"
# Goals in µs of CPU for the compiled program. The keys are depths.
DISPATCH_US = {10: 4.0, 100_000: 10.0}
OFFER_US = 1.0
PASS_US = 2.0


def main() -> int:
    args = micro.arguments("python -m bench.queueing", __doc__)
    blocks = 5 if args.quick else 15
    known = order_names()
    policies = args.policies.split(",") if args.policies else known
    if unknown := sorted(set(policies) - set(known)):
        print(f"no such policy: {', '.join(unknown)} (known: {', '.join(known)})", file=sys.stderr)
        return 2
    rows: dict[str, dict[int, float]] = {}
    settles: dict[str, dict[int, float]] = {}
    for policy in policies:
        print(f"{policy} …", file=sys.stderr)
        for depth in DEPTHS:
            cost, settle = measure.dispatch_us(policy, depth, blocks)
            rows.setdefault(policy, {})[depth] = cost
            settles.setdefault(policy, {})[depth] = settle
    if DEFAULT in policies:
        for depth in DEPTHS:
            cost, _ = measure.dispatch_us(DEFAULT, depth, blocks, prefixes=True)
            rows.setdefault(PREFIXES, {})[depth] = cost
    held = {
        name: measure.waiting_bytes(DEPTHS[-1], prefixes=prefixes)
        for name, prefixes in ((DEFAULT, False), (PREFIXES, True))
    }
    offers, passes, besides = {}, {}, {}
    for replicas in (8, 64):
        besides[replicas] = measure.beside_us(blocks, replicas=replicas)
        offers[replicas], passes[replicas] = measure.pass_us(blocks, replicas=replicas)
    file = router.admission.queue.__file__ or ""
    results: dict[str, Any] = {
        "cpu": cpu.model(),
        "python": platform.python_version(),
        "compiled": not file.endswith(".py"),
        "dispatch_us": rows,
        "settle_us": settles,
        "waiting_bytes": held,
        "offer_us": offers,
        "offer_beside_us": besides,
        "pass_us": passes,
    }
    results["goals"] = _goals(results)
    return micro.tell(results, _table, args.json)


def _goals(results: dict[str, Any]) -> list[dict[str, Any]]:
    goals = []
    rows = results["dispatch_us"]
    if DEFAULT in rows:
        for depth, most in DISPATCH_US.items():
            reached = rows[DEFAULT][depth]
            goals.append((f"dispatch, {DEFAULT}, depth {depth:,}", most, reached))
            dearest = max(line[depth] for name, line in rows.items() if name != PREFIXES)
            goals.append((f"the dearest dispatch, depth {depth:,}", most, dearest))
        deep = DEPTHS[-1]
        reached = rows[PREFIXES][deep]
        goals.append((f"dispatch, {PREFIXES}, depth {deep:,}", DISPATCH_US[deep], reached))
    goals.append(("offer, nobody waits", OFFER_US, max(results["offer_us"].values())))
    goals.append(("a whole request, nobody waits", PASS_US, max(results["pass_us"].values())))
    return [{"goal": name, "most": most, "reached": reached} for name, most, reached in goals]


def _table(results: dict[str, Any]) -> str:
    rows = [["µs of CPU per dispatch, depth:", *(f"{depth:,}" for depth in DEPTHS)]]
    for name, line in results["dispatch_us"].items():
        rows.append([name, *(f"{line[depth]:.1f}" for depth in DEPTHS)])
    for name, line in results["settle_us"].items():
        rows.append([f"settling, {name}", *(f"{line[depth]:.1f}" for depth in DEPTHS)])
    for name, size in results["waiting_bytes"].items():
        rows.append([f"bytes of one that waits, {name}", "", "", f"{size:.0f}"])
    rows.append(["when nobody waits, replicas:", *(str(n) for n in results["offer_us"])])
    rows.append(["offer", *(f"{cost:.2f}" for cost in results["offer_us"].values())])
    costs = results["offer_beside_us"].values()
    rows.append(["offer, one of them is full", *(f"{cost:.2f}" for cost in costs)])
    rows.append(["offer to end", *(f"{cost:.2f}" for cost in results["pass_us"].values())])
    for goal in results["goals"]:
        ratio = goal["reached"] / goal["most"]
        verdict = "met" if ratio <= 1 else f"short by {ratio:.2f}x"
        rows.append([goal["goal"], f"≤ {goal['most']:g}", f"{goal['reached']:.1f}", verdict])
    widths = [max(len(row[n]) for row in rows if len(row) > n) for n in range(3)]
    widths.append(8)
    kind = "compiled" if results["compiled"] else "interpreted"
    lines = [
        f"CPU {results['cpu']}, Python {results['python']}, {kind}; the least of several blocks"
    ]
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=False)]
        lines.append("  ".join([row[0].ljust(widths[0]), *cells[1:]]))
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
