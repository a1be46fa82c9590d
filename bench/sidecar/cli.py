"""`hedgerow bench sidecar`: run the requested parts and print their results.

Exit code 0: measured; 1: a part could not be measured, or a goal was missed in a run without
`--quick`; 2: an argument is invalid.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Final

from bench.findings import found
from bench.findings.command import measured
from bench.findings.found import Found

# The module of each part. It has add_arguments(parser) and run(args) -> Found.
PARTS: Final = {
    "simulated": "bench.sidecar.simulated",
    "http": "bench.sidecar.http.part",
    "moderate": "bench.sidecar.moderate.part",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--part", choices=tuple(PARTS), help="only this part")
    add("--quick", action="store_true", help="seconds or minutes, for figures of no worth")
    found.add_arguments(parser)
    for module in PARTS.values():
        import_module(module).add_arguments(parser)


def main(args: argparse.Namespace) -> int:
    return measured(lambda: run(args), args)


def run(args: argparse.Namespace) -> list[Found]:
    """Return one table per part. Raises the errors of the parts."""
    return [
        import_module(module).run(args)
        for name, module in PARTS.items()
        if args.part in (None, name)
    ]
