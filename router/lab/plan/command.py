"""`hedgerow plan`: reads the demand, forecasts it, plans, and writes the advice.

With `--every`, a failure to plan is reported, and the previous plan remains. Exit status: 0 done; 1
no plan could be made; 2 a mistake in the flags or in a file. This module is fast to import, because
its functions import the other modules.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from router.lab.plan.flags import add_arguments
from router.lab.replay.report.words import StatusLine, replace_file, why_not_writable

if TYPE_CHECKING:
    from router.lab.plan.output.gauges import GaugeServer
    from router.lab.plan.planning import Planned
    from router.lab.plan.sources.prometheus_api import Fetch

__all__ = ["add_arguments", "main"]

_DONE, _CANNOT_PLAN, _MISTAKE = 0, 1, 2


def main(args: argparse.Namespace, *, sleep: Callable[[float], None] = time.sleep) -> int:
    """Plan once, or repeatedly with `--every` or `--serve`. Returns the exit status."""
    problem = _contradiction(args)
    if problem:
        return _report(problem, _MISTAKE)
    every_s: float | None = args.every
    if args.serve is None:
        if every_s is None:
            return _plan(args, None)
        return _repeat(args, None, every_s, sleep)

    from router.lab.plan.output.gauges import GaugeServer

    try:
        server = GaugeServer(*args.serve)
    except OSError as err:
        return _report(f"cannot listen: {err.strerror or err}", _CANNOT_PLAN)
    try:
        return _repeat(args, server, every_s or args.window, sleep)
    finally:
        server.close()


def _repeat(
    args: argparse.Namespace,
    server: GaugeServer | None,
    every_s: float,
    sleep: Callable[[float], None],
) -> int:
    """Plan every `every_s` seconds until the process is stopped. Returns only for a mistake in a
    file.
    """
    while True:
        status = _plan(args, server)
        if status == _MISTAKE:
            return status
        sleep(every_s)


def _contradiction(args: argparse.Namespace) -> str:
    """Return why these flags cannot be used; "" if they can."""
    if bool(args.logs) is (args.prometheus is not None):
        return "name either logs or --prometheus"
    if args.token_file is not None and args.basic_auth_file is not None:
        return "name either --token-file or --basic-auth-file"
    if args.prometheus is not None and args.types is None:
        return "--prometheus needs --types: counters do not tell the throughput of a replica"
    paths = (args.html, args.prometheus_file)
    return next(filter(None, (why_not_writable(path) for path in paths if path is not None)), "")


def _plan(args: argparse.Namespace, server: GaugeServer | None) -> int:
    """Plan once and write all output. Returns the exit status."""
    from router.config.problems import said
    from router.core.errors import ConfigError
    from router.lab.extras import MissingExtra
    from router.lab.plan.decision.problem import PlanError
    from router.lab.plan.sources.prometheus_api import PrometheusError

    progress = _Progress() if sys.stderr.isatty() else None
    try:
        made = _made(args, progress)
    except ConfigError as err:
        return _report(f"{args.types}: {said(err.problems)}", _MISTAKE)
    except (MissingExtra, PlanError, PrometheusError) as err:
        return _report(str(err), _CANNOT_PLAN)
    except ValueError as err:  # includes TraceError
        return _report(str(err), _MISTAKE)
    except OSError as err:
        return _report(f"{err.filename}: {err.strerror}", _MISTAKE)
    finally:
        if progress is not None:
            progress.close()
    return _write(args, made, server)


def _made(args: argparse.Namespace, progress: _Progress | None) -> Planned:
    from router.lab.plan import types_file
    from router.lab.plan.planning import planned

    types = None if args.types is None else types_file.load(args.types)
    if args.prometheus is not None:
        from router.lab.plan.sources import prometheus
        from router.lab.plan.sources.prometheus_api import Prometheus
        from router.lab.plan.sources.question import Question

        assert types is not None  # see `_contradiction`
        question = Question(
            counters=args.counters,
            window_s=args.window,
            history_s=args.history,
            region_label=args.region_label,
            running_query=args.running_query,
            match=args.match,
        )
        server = Prometheus(args.prometheus, _fetch(args))
        observed = prometheus.read(server, question, time.time(), types)
        source = str(args.types)
    else:
        from router.lab.plan.sources import access_logs

        source = str(args.types) if types is not None else "measured in the log, cost 1 per hour"
        observed, types = access_logs.read(
            args.logs,
            args.window,
            args.ttft_slo / 1e3,
            types,
            None if progress is None else progress.reading,
        )
    return planned(
        types, source, observed, args.method, None if progress is None else progress.planning
    )


def _fetch(args: argparse.Namespace) -> Fetch:
    from router.lab.plan.sources.prometheus_api import basic, bearer, fetcher

    authorization = ""
    if args.token_file is not None:
        authorization = bearer(args.token_file.read_text().strip())
    elif args.basic_auth_file is not None:
        authorization = basic(args.basic_auth_file.read_text().strip())
    return fetcher(authorization, args.ca_file)


def _write(args: argparse.Namespace, made: Planned, server: GaugeServer | None) -> int:
    from router.core.text.table import plain
    from router.lab.plan.output import gauges
    from router.lab.plan.output.document import document
    from router.lab.plan.output.page import page, table
    from router.lab.plan.output.words import facts, findings

    now_s = time.time()
    if args.json:
        sys.stdout.write(document(made))
    else:
        heads = "".join(f"{what + ':':14} {how}\n" for what, how in facts(made))
        lines = "".join(f"{line}\n" for line in findings(made))
        sys.stdout.write(f"{heads}\n{plain(table(made))}\n{lines}")
    sys.stdout.flush()
    try:
        if args.html is not None:
            when = f"{datetime.fromtimestamp(now_s, UTC):%Y-%m-%d %H:%M} UTC"
            replace_file(args.html, page(made, when))
        if args.prometheus_file is not None:
            replace_file(args.prometheus_file, gauges.text(made, now_s))
    except OSError as err:
        return _report(f"{err.filename}: cannot be written: {err.strerror}", _CANNOT_PLAN)
    if server is not None:
        server.plan = gauges.registry(made, now_s)
    return _DONE


class _Progress(StatusLine):
    def reading(self, share: float) -> None:
        self.show(f"reading: {share:.0%}")

    def planning(self, share: float) -> None:
        self.show(f"forecasting: {share:.0%}")


def _report(problem: str, status: int) -> int:
    print(f"hedgerow plan: {problem}", file=sys.stderr)
    return status
