"""`hedgerow replay`: a trace against policies and fleet sizes, a table and a page about it.

Every combination of policy and fleet size is one run. The same flags give the same table and JSON,
byte for byte. Exit status: 0 done, 1 a run went wrong, 2 a mistake in the flags or the trace. Must
never: leave half a file behind.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TextIO

from router.config.load import load
from router.config.model import Config
from router.config.problems import said
from router.config.varied import varied
from router.core.errors import ConfigError
from router.emulator.core.core_config import CoreConfig
from router.emulator.core.timing import PROFILES, Timing
from router.replay.candidates import Candidate, candidates
from router.replay.described import facts_of
from router.replay.flags import PROFILE, add_arguments
from router.replay.job import Job, Source
from router.replay.report.columns import of_parts, of_runs, parts_of
from router.replay.report.document import document
from router.replay.report.findings import findings
from router.replay.report.html import page
from router.replay.report.run import Replay
from router.replay.report.slo import Slo
from router.replay.report.table import build, plain
from router.replay.sizing import replicas_for
from router.replay.workers import Broken, Refused, run_all
from router.simulator.scenario import Polls, Scenario, equal
from router.traces import Trace, TraceFacts, describe

__all__ = ["add_arguments", "main"]

_DONE, _WENT_WRONG, _MISTAKE = 0, 1, 2


def main(args: argparse.Namespace) -> int:
    """Simulate, print, write; the exit status."""
    # A terminal is told how far it is, a file is not.
    status = _StatusLine() if sys.stderr.isatty() and not args.quiet else None
    try:
        for path in (args.html, args.json):
            _check_writable(path)
        replay = _replayed(args, status)
    except (Refused, ValueError) as err:  # TraceError is one, and so is what a scenario refuses
        return _say(str(err), _MISTAKE)
    except ConfigError as err:
        return _say(said(err.problems), _MISTAKE)
    except Broken as err:
        return _say(str(err), _WENT_WRONG)
    finally:
        if status is not None:
            status.close()
    _print(args, replay)
    try:
        _write(args, replay)
    except OSError as err:
        return _say(f"{err.filename}: cannot be written: {err.strerror}", _WENT_WRONG)
    return _DONE


def _replayed(args: argparse.Namespace, status: _StatusLine | None) -> Replay:
    """Read, size, say what is simulated, simulate. Raises Refused, Broken, ValueError."""
    source = Source(
        path=args.file,
        format=args.format,
        block_tokens=args.block_tokens,
        model=args.model,
        spread_seed=args.seed,
        limit=args.limit,
        until_s=args.until,
        speedup=args.speedup,
    )
    try:
        trace = source.open()
        traffic = describe(trace)
    except OSError as err:
        raise Refused(f"{args.file}: {err.strerror or err}") from None
    timing, model_name, calibration = _engine_model(args, status)
    jobs = _jobs(args, source, trace, traffic, timing)
    facts = facts_of(trace, traffic, jobs, model_name=model_name, estimated=args.replicas is None)
    if status is not None:
        status.close()
        status.runs = len(jobs)
    if not args.quiet:
        out = _out(args)
        for what, how in [*facts, *(("calibration", line) for line in calibration)]:
            print(f"{what + ':':14}{how}", file=out)
        print(file=out, flush=True)
    return Replay(
        title=f"Replay of {trace.name}",
        runs=run_all(jobs, args.jobs, status),
        facts=facts,
        calibration=calibration,
        when=f"{datetime.now():%Y-%m-%d %H:%M}",
    )


def _out(args: argparse.Namespace) -> TextIO:
    """Where JSON goes to standard output, nothing else does."""
    return sys.stderr if args.json == Path("-") else sys.stdout


def _engine_model(
    args: argparse.Namespace, status: _StatusLine | None
) -> tuple[Timing, str, Sequence[str]]:
    """The timing, what to call it, and how well it fits. Raises Refused."""
    if args.timing is not None:
        if args.profile is not None:
            raise Refused("--profile and --timing say the same; give one of them")
        return args.timing, "given", ()
    profile = args.profile or PROFILE
    if not args.calibrate:
        return PROFILES[profile], profile, ()
    from router.replay.calibrate import MissingExtra, calibrate

    try:
        found = calibrate(
            args.file,
            base=PROFILES[profile],
            model=args.model,
            step_tokens=args.max_num_batched_tokens,
            on_progress=None if status is None else status.calibrated,
        )
    except MissingExtra as err:
        raise Refused(str(err)) from None
    return found.timing, "fitted to the log", found.report


def _jobs(
    args: argparse.Namespace, source: Source, trace: Trace, traffic: TraceFacts, timing: Timing
) -> list[Job]:
    """All runs: fleet by fleet, policies in their order, then the same with shared knowledge."""
    slo = Slo(args.ttft_slo / 1e3, args.tpot_slo / 1e3)
    if args.kv_tokens < trace.block_tokens:
        raise Refused(f"--kv-tokens: one block has {trace.block_tokens} tokens")
    core = CoreConfig(
        max_num_seqs=args.max_num_seqs,
        max_num_batched_tokens=args.max_num_batched_tokens,
        num_blocks=args.kv_tokens // trace.block_tokens,
        block_size=trace.block_tokens,
    )
    sizes = args.replicas or (
        replicas_for(
            trace,
            timing,
            rate=traffic.rate,
            kv_tokens=args.kv_tokens,
            max_num_seqs=args.max_num_seqs,
            tpot_s=slo.tpot_s,
        ),
    )
    for fault in args.fault:
        if fault.replica >= min(sizes):
            raise Refused(
                f"--fault: no replica {fault.replica} in a fleet of {min(sizes)}; the first is 0"
            )
    jobs = [
        Job(
            policy=candidate.label,
            scenario=Scenario(
                groups=equal(size, core, timing),
                config=candidate.config,
                routers=args.routers,
                shared=args.shared,
                polls=Polls(delay_s=args.poll_delay, loss=args.poll_loss),
                faults=tuple(args.fault),
                seed=args.seed,
            ),
            source=source,
            slo=slo,
        )
        for size in sizes
        for candidate in _candidates(args)
    ]
    if args.routers > 1 and not args.shared:
        jobs += [replace(job, scenario=replace(job.scenario, shared=True)) for job in jobs]
    return jobs


def _candidates(args: argparse.Namespace) -> list[Candidate]:
    """Raises Refused for an axis with one value twice, ConfigError for the file."""
    base = Config() if args.config is None else load(args.config)
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
    return candidates(base, *axes)


def _print(args: argparse.Namespace, replay: Replay) -> None:
    runs = replay.runs
    table = build(runs, of_runs(runs), group=lambda run: run.place, sort=args.sort)
    out = _out(args)
    print(plain(table), end="", file=out)
    if args.queue and (parts := parts_of(runs, "by_class")):
        by_class = build(parts, of_parts("class", parts), group=lambda part: part.name)
        print(f"\n{plain(by_class)}", end="", file=out)
    if not args.quiet:
        print("".join(f"\n{line}" for line in findings(replay)), file=out)
    out.flush()


def _check_writable(path: Path | None) -> None:
    """Before hours of simulation, not after them."""
    if path is None or path == Path("-"):
        return
    if path.is_dir():
        raise Refused(f"{path}: is a directory")
    if not path.parent.is_dir():
        raise Refused(f"{path}: there is no directory {path.parent}")
    if not os.access(path.parent, os.W_OK):
        raise Refused(f"{path}: nothing can be written to {path.parent}")


def _write(args: argparse.Namespace, replay: Replay) -> None:
    """Raises OSError with the file's name."""
    if args.json == Path("-"):
        sys.stdout.write(document(replay))
    elif args.json is not None:
        _replace(args.json, document(replay))
    if args.html is not None:
        _replace(args.html, page(replay))
        if not args.quiet:
            print(f"{args.html} written", file=sys.stderr)


def _replace(path: Path, text: str) -> None:
    """All of the file or nothing: whoever opens it sees the old or the new one."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


class _StatusLine:
    """One line on a terminal that is written over: what is done, and how far the next is."""

    def __init__(self) -> None:
        self.runs = 0
        self._width = 0

    def __call__(self, done: int, text: str) -> None:
        """So many runs are done, and one of the others says how far it is."""
        if text:
            self._show(f"{done} of {self.runs} runs done; {text}"[:150])

    def calibrated(self, share: float) -> None:
        self._show(f"fitting the engine model, {share:.0%}")

    def close(self) -> None:
        self._show("")

    def _show(self, text: str) -> None:
        print(f"\r{text.ljust(self._width)}", end="" if text else "\r", file=sys.stderr, flush=True)
        self._width = len(text)


def _say(problem: str, status: int) -> int:
    print(f"hedgerow replay: {problem}", file=sys.stderr)
    return status
