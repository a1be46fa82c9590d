"""Code that the microbenchmarks share: their command line, the CPU model, the output of results.

Must never measure anything.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def arguments(prog: str, description: str | None) -> argparse.Namespace:
    """Parse the command line: `policies`, `quick`, `json`."""
    parser = argparse.ArgumentParser(
        prog=prog, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--policies", metavar="A,B", help="only these (default: all registered)")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument(
        "--json", metavar="FILE", help="also write the results as JSON; - for standard output alone"
    )
    return parser.parse_args()


def tell(results: dict[str, Any], table: Callable[[dict[str, Any]], str], json_file: str) -> int:
    """Print the table, and write the results as JSON if `json_file` is given.

    Returns the exit status: 1 if one of `results["goals"]` is missed.
    """
    if json_file != "-":
        print(table(results))
    if json_file == "-":
        print(json.dumps(results, indent=2))
    elif json_file:
        Path(json_file).write_text(json.dumps(results, indent=2) + "\n")
    return 1 if any(goal["reached"] > goal["most"] for goal in results["goals"]) else 0
