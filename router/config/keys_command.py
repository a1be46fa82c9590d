"""The command `hedgerow key`: prints a new API key to stderr, and its line of the keys file to
stdout.

Must never: write the key into a file, or take it from the command line, which other users can see.
"""

from __future__ import annotations

import argparse
import sys
from math import isnan, nan

from router.config.keys import (
    LONGEST,
    SHORTEST,
    KeyLine,
    KeysProblem,
    checked,
    hash_of,
    line_of,
    new_key,
    parse_keys,
)

_OK, _MISTAKE = 0, 2
# The fields of a line that have a flag of the same name.
_FLAGS = [name for name in KeyLine.__struct_fields__ if name not in ("hash", "model_budgets")]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Create an API key. The key is printed to stderr, its line for the keys file to stdout: "
        "hedgerow key --name acme --tier pro >> keys.jsonl"
    )
    add = parser.add_argument
    add("--name", required=True, help="the tenant; keys with the same name share its limits")
    add("--tier", default="", help="enterprise, pro, free, or one of priority.tiers")
    add("--ceiling", help="the most urgent class: critical, high, normal, low or batch")
    add(
        "--model",
        action="append",
        dest="models",
        metavar="NAME",
        help="a model or adapter that the key may use; repeat for each (default: all)",
    )
    add("--concurrency", type=int, metavar="N", help="most requests at replicas at once")
    add("--requests-per-minute", type=float, metavar="N")
    add("--tokens-per-minute", type=float, metavar="N", help="prompt and output tokens together")
    add(
        "--tokens-per-day",
        type=float,
        metavar="N",
        help="budget of tokens; days of usage.time_zone",
    )
    add("--tokens-per-week", type=float, metavar="N", help="weeks begin on Monday")
    add("--tokens-per-month", type=float, metavar="N")
    add("--cost-per-day", type=float, metavar="N", help="budget of money, by usage.prices")
    add("--cost-per-week", type=float, metavar="N")
    add("--cost-per-month", type=float, metavar="N")
    add(
        "--model-budget",
        action="append",
        default=[],
        metavar="MODEL:BUDGET=N",
        help="a budget for one model, such as llama:tokens_per_day=1000000; repeat for each",
    )
    add("--expires", default="", metavar="DATE", help="2026-12-31, or 2026-12-31T18:00:00Z (UTC)")
    add("--weight", type=float, default=1.0, help="share relative to other tenants (default: 1)")
    add("--ttft-slo-ms", type=float, metavar="N", help="SLO for the time to first token")
    add("--tpot-slo-ms", type=float, metavar="N", help="SLO for the time per output token")
    add("--region", default="", help="the region that its clients prefer")
    add(
        "--allowed-region",
        action="append",
        dest="allowed_regions",
        metavar="NAME",
        help="a region to which its requests may be sent; repeat for each (default: all)",
    )
    add("--names-users", action="store_true", help="requests with this key may name their user")
    add("--may-hedge", action="store_true", help="requests with this key may ask for hedging")
    add("--stdin", action="store_true", help="read the key from standard input, do not create one")


def main(args: argparse.Namespace) -> int:
    if args.stdin:
        key = sys.stdin.readline(2 * LONGEST).strip()
        if not SHORTEST <= len(key) <= LONGEST or not key.isascii():
            return _refuse(f"a key is {SHORTEST} to {LONGEST} ASCII characters long")
    else:
        key = new_key()
    given = {name: getattr(args, name) for name in _FLAGS}
    given["hash"] = hash_of(key.encode())
    try:
        given["model_budgets"] = _model_budgets(args.model_budget)
    except ValueError as err:
        return _refuse(str(err))
    line, problem = checked(given)
    if problem:
        return _refuse(problem)
    text = line_of(line)
    try:
        parse_keys(text.encode())
    except KeysProblem as err:
        return _refuse(str(err).removeprefix("line 1: "))
    print(text)
    if not args.stdin:
        print(f"the key, which is not shown again: {key}", file=sys.stderr)
    return _OK


def _model_budgets(texts: list[str]) -> dict[str, dict[str, float]]:
    """Return the budgets by model. Raises ValueError."""
    found: dict[str, dict[str, float]] = {}
    for text in texts:
        model, _, budget = text.rpartition(":")
        name, _, number = budget.partition("=")
        try:
            amount = float(number)
        except ValueError:
            amount = nan
        if not model or isnan(amount):
            raise ValueError(f"--model-budget: {text!r} is not MODEL:BUDGET=N")
        found.setdefault(model, {})[name.strip().replace("-", "_")] = amount
    return found


def _refuse(why: str) -> int:
    print(f"hedgerow: {why}", file=sys.stderr)
    return _MISTAKE
