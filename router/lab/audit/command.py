"""Defines the options of `hedgerow audit`, and runs the audit. This module is fast to import,
because `main` imports the modules that it needs.

The report goes to standard output; the progress goes to standard error if it is a terminal.
"""

from __future__ import annotations

import argparse
import sys

from router.lab.flags import count
from router.lab.replay.report.words import StatusLine

_CANNOT_RUN, _MISTAKE = 1, 2
_TOP = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "logs",
        nargs="+",
        metavar="LOG",
        help="an access log, plain or gzip; with several routers, the log of each",
    )
    add(
        "--by",
        choices=("tenant", "class", "model"),
        default="tenant",
        help="the parties to compare (default: %(default)s, each by class)",
    )
    add(
        "--top",
        type=count,
        default=_TOP,
        metavar="N",
        help="entries per list (default: %(default)s)",
    )
    add("--json", action="store_true", help="print all findings as one JSON document")


def main(args: argparse.Namespace) -> int:
    """Read the logs and print the report. Returns the exit status.

    The status is 1 for a file that is not an access log, and 2 for a file that cannot be read.
    """
    import msgspec

    from router.lab.audit.examine import examine
    from router.lab.audit.report_section import report_text
    from router.lab.simulator.traffic import TraceError

    progress = _Progress() if sys.stderr.isatty() else None
    try:
        findings = examine(args.logs, args.by, on_progress=progress)
    except TraceError as err:
        status, problem = _CANNOT_RUN, str(err)
    except OSError as err:
        status, problem = _MISTAKE, f"{err.filename}: {err.strerror}"
    else:
        status, problem = 0, ""
    finally:
        if progress is not None:
            progress.close()
    if problem:
        print(f"hedgerow audit: {problem}", file=sys.stderr)
        return status
    if args.json:
        text = msgspec.json.format(msgspec.json.encode(findings), indent=1).decode() + "\n"
    else:
        text = report_text(findings, args.top)
    sys.stdout.write(text)
    return 0


class _Progress(StatusLine):
    def __call__(self, share: float) -> None:
        self.show(f"reading: {int(100.0 * share)} %")
