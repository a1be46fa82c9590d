"""`hedgerow replay`: simulates a trace with policies and fleet sizes, and reports the results.

Each combination of policies and fleet size is one run. The same flags give the same table and the
same JSON, byte for byte, except for the date and the durations in the JSON. An access log is first
simulated with its own fleet and configuration. If the result differs too much from the log, nothing
else is simulated.

Exit status: 0 done; 1 a run failed; 2 an error in the flags, the configuration or the trace; 3 the
simulation differs too much from the log. Must never: leave an incomplete output file.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TextIO

from router.config.load import load
from router.config.model import Config
from router.config.problems import said
from router.config.varied import varied
from router.core.errors import ConfigError
from router.core.text.table import build, plain
from router.lab.replay.arguments import Candidate, as_configured, candidates
from router.lab.replay.described import facts_of
from router.lab.replay.engine_model import engine_model
from router.lab.replay.flags import add_arguments
from router.lab.replay.job import Source
from router.lab.replay.logged_fleet import keys_of, read
from router.lab.replay.plan import Plan
from router.lab.replay.report.columns import of_parts, of_runs, parts_of
from router.lab.replay.report.document import document
from router.lab.replay.report.findings import findings
from router.lab.replay.report.html import of_truth, page
from router.lab.replay.report.run import Replay
from router.lab.replay.report.words import StatusLine, replace_file, why_not_writable
from router.lab.replay.truth.judged import trust_of
from router.lab.replay.workers import Broken, Refused, run_all

__all__ = ["add_arguments", "main"]

_DONE, _RUN_FAILED, _BAD_INPUT, _NOT_TRUSTED = 0, 1, 2, 3


def main(args: argparse.Namespace) -> int:
    """Simulate, print the tables and write the files. Returns the exit status."""
    # Progress is shown on a terminal only.
    status = _ReplayStatus() if sys.stderr.isatty() and not args.quiet else None
    try:
        for path in (args.html, args.json):
            if path not in (None, Path("-")) and (problem := why_not_writable(path)):
                raise Refused(problem)
        replay = _replayed(args, status)
    except (Refused, ValueError) as err:  # ValueError: TraceError, or an invalid scenario
        return _report_error(str(err), _BAD_INPUT)
    except ConfigError as err:
        return _report_error(said(err.problems), _BAD_INPUT)
    except Broken as err:
        return _report_error(str(err), _RUN_FAILED)
    finally:
        if status is not None:
            status.close()
    _print(args, replay)
    try:
        _write(args, replay)
    except OSError as err:
        return _report_error(f"{err.filename}: cannot be written: {err.strerror}", _RUN_FAILED)
    if _is_refused(args, replay):
        return _report_error(
            "the simulation differs too much from the log, so no candidates were compared; "
            "--calibrate fits the engine model to the log, --anyway compares in any case",
            _NOT_TRUSTED,
        )
    return _DONE


def _replayed(args: argparse.Namespace, status: _ReplayStatus | None) -> Replay:
    """Read the log, print the conditions, and simulate.

    Raises Refused, Broken, ConfigError, ValueError.
    """
    source = Source(
        path=args.file,
        block_tokens=args.block_tokens,
        model=args.model,
        limit=args.limit,
        until_s=args.until,
        speedup=args.speedup,
        closed_loop=args.closed_loop,
    )
    base, compared = _candidates(args)
    try:
        trace = source.open()
        seen = read(trace, None if status is None else status.read)
    except OSError as err:
        raise Refused(f"{args.file}: {err.strerror or err}") from None
    traffic = seen.facts
    keys, of_keys = keys_of(base, seen.tenants)
    logged = seen.fleet.groups(base)
    # Half of the trace, in seconds on the file's own clock.
    half_s = args.speedup * traffic.duration_s / 2.0
    model = engine_model(
        args,
        logged,
        trace.block_tokens,
        trace.zero_s + half_s,
        None if status is None else status.calibrated,
    )
    plan = Plan(args, source, model, keys)
    jobs = plan.jobs(compared, args.replicas)
    judged = plan.judged(as_configured(base), logged, half_s) if logged else None
    facts = facts_of(trace, traffic, jobs, model_name=model.name)
    if of_keys:
        facts.append(("keys", of_keys))
    replay = Replay(
        title=f"Replay of {trace.name}",
        runs=(),
        facts=facts,
        calibration=model.report,
        when=f"{datetime.now():%Y-%m-%d %H:%M}",
    )
    if status is not None:
        status.close()
        status.runs = len(jobs)
    if not args.quiet:
        out = _out(args)
        for what, how in [*facts, *(("calibration", line) for line in model.report)]:
            print(f"{what + ':':14}{how}", file=out)
        print(file=out, flush=True)
    if judged is None:
        return replace(replay, runs=run_all(jobs, args.jobs, status))
    (run,) = run_all([judged], 1, status)
    replay = replace(replay, runs=[run], truth=trust_of(run.judged))
    if _is_refused(args, replay):
        return replay
    # If a candidate is the logged fleet as configured, its run has already been made.
    others = [job for job in jobs if job.scenario != judged.scenario or job.source != judged.source]
    found = dict(zip(map(id, others), run_all(others, args.jobs, status), strict=True))
    runs = [replace(found.get(id(job), run), policy=job.policy) for job in jobs]
    return replace(replay, runs=runs)


def _is_refused(args: argparse.Namespace, replay: Replay) -> bool:
    """Whether candidates are not compared, because the simulation differs too much from the log."""
    truth = replay.truth
    return truth is not None and bool(truth.off) and not args.anyway


def _out(args: argparse.Namespace) -> TextIO:
    """Return the stream for tables: standard error if the JSON goes to standard output."""
    return sys.stderr if args.json == Path("-") else sys.stdout


def _candidates(args: argparse.Namespace) -> tuple[Config, list[Candidate]]:
    """Read the configuration, and make the candidates to compare.

    Raises Refused for a repeated value of a flag, and ConfigError for an invalid file.
    """
    base = Config() if args.config is None else load(args.config, serves=False)
    if args.poll_interval is not None:
        base = varied(base, polling={"interval_s": args.poll_interval})
    axes = []
    for flag in ("policy", "queue", "hedging"):
        asked = getattr(args, flag) or []
        labels = [choice.label for choice in asked]
        twice = next((label for label in labels if labels.count(label) > 1), None)
        if twice is not None:
            raise Refused(f"--{flag} {twice} is given twice")
        axes.append(asked)
    return base, candidates(base, *axes)


def _print(args: argparse.Namespace, replay: Replay) -> None:
    runs = replay.runs
    table = build(runs, of_runs(runs), group=lambda run: run.setup, sort=args.sort)
    out = _out(args)
    if replay.truth is not None:
        if replay.truth.is_judged:
            print(plain(of_truth(replay.truth)), file=out)
        print("".join(f"{line}\n" for line in replay.truth.lines()), file=out)
    if _is_refused(args, replay):
        out.flush()
        return
    print(plain(table), end="", file=out)
    if args.queue and (parts := parts_of(runs, "by_class")):
        by_class = build(parts, of_parts("class", parts), group=lambda part: part.name)
        print(f"\n{plain(by_class)}", end="", file=out)
    if not args.quiet:
        print("".join(f"\n{line}" for line in findings(replay)), file=out)
    out.flush()


def _write(args: argparse.Namespace, replay: Replay) -> None:
    """Write the JSON and HTML files. Raises OSError with the file's name."""
    if args.json == Path("-"):
        sys.stdout.write(document(replay))
    elif args.json is not None:
        replace_file(args.json, document(replay))
    if args.html is not None:
        replace_file(args.html, page(replay))
        if not args.quiet:
            print(f"{args.html} written", file=sys.stderr)


class _ReplayStatus(StatusLine):
    """A progress line on a terminal: the number of finished runs, and the state of another run."""

    def __init__(self) -> None:
        super().__init__()
        self.runs = 0

    def __call__(self, done: int, text: str) -> None:
        """Show that `done` runs are finished, and the progress text of another run."""
        if text:
            self.show(f"{done} of {self.runs} runs done; {text}"[:150])

    def read(self, share: float) -> None:
        self.show(f"reading, {share:.0%}")

    def calibrated(self, share: float) -> None:
        self.show(f"fitting the engine model, {share:.0%}")


def _report_error(problem: str, status: int) -> int:
    print(f"hedgerow replay: {problem}", file=sys.stderr)
    return status
