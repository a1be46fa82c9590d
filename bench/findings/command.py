"""The last step of several bench commands: print the results and return the exit code."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from bench.findings import found
from bench.findings.found import Found
from bench.overhead.goals import missed
from router.lab.replay.workers import Broken, Refused


def measured(
    run: Callable[[], Sequence[Found]],
    args: argparse.Namespace,
    content: Callable[[Sequence[Found]], Any] = found.plain,
) -> int:
    """Run a bench, print its results and judge its goals. `args` has the options of
    `found.add_arguments` and the option `quick`. `content`: what the JSON file holds.

    Returns the exit code. 0: measured; 1: a run failed, or a goal was missed in a run without
    `--quick`; 2: an argument or an input file is invalid.
    """
    try:
        founds = run()
        found.write(founds, content(founds), args)
    except (Refused, ValueError) as err:
        return mistake(str(err))
    except OSError as err:
        return mistake(f"{err.filename}: {err.strerror}")
    except Broken as err:
        print(err, file=sys.stderr)
        return 1
    verdicts = [verdict for found in founds for verdict in found.verdicts]
    return 1 if missed(verdicts, is_quick=args.quick) else 0


def listed(kind: str, words: str | None, known: Sequence[str]) -> list[str]:
    """Return the requested names in the order of `known`. Raises Refused for an unknown name."""
    names = list(known) if words is None else [word for word in words.split(",") if word]
    if unknown := [name for name in names if name not in known]:
        raise Refused(f"unknown {kind} {unknown[0]!r}; known: {', '.join(known)}")
    return [name for name in known if name in names]


def usable_cpus() -> int:
    """The CPUs that this process may use."""
    usable: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable is not None else os.cpu_count() or 1


def mistake(problem: str) -> int:
    """Print a mistake in the arguments or the input. Returns the exit code, 2."""
    print(problem, file=sys.stderr)
    return 2
