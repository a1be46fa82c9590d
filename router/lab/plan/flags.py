"""The flags of `hedgerow plan`. This module is fast to import. Must never: read a file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from router.config.address import split_host_port
from router.config.units import seconds
from router.lab.flags import positive

ALL: Final = "all"  # the mean of all forecast methods
SEASONAL: Final = "seasonal"
ARIMA: Final = "arima"
METHODS: Final = (ALL, SEASONAL, ARIMA)

HEDGEROW: Final = "hedgerow"  # Hedgerow's own counters in Prometheus.


WINDOW_S: Final = 900.0
HISTORY_S: Final = 28 * 86400.0
TTFT_SLO_MS: Final = 2000.0

_DESCRIPTION = """\
Advise how many replicas each model needs in the coming time, by region and type of replica. The
demand comes from access logs, or from a Prometheus server. Nothing is scaled.
A LOG is FILE, or REGION=FILE for the router of a region.
"""
_EPILOG = """\
examples:
  hedgerow plan access.log --types plan.yaml
  hedgerow plan eu=eu.log us=us.log --types plan.yaml --html plan.html
  hedgerow plan --prometheus http://prometheus:9090 --types plan.yaml --serve 9902 --every 15m
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("logs", nargs="*", metavar="LOG", help="an access log; gzip or plain")
    add(
        "--types",
        metavar="FILE",
        help="types of replicas, with throughput, cost and limits (deploy/plan.yaml is an example);"
        " default: one type with the throughput measured in the log",
    )
    add(
        "--window",
        type=duration,
        default=WINDOW_S,
        metavar="D",
        help="length of the windows in which demand is counted (default: 15m)",
    )
    add(
        "--method",
        choices=METHODS,
        default=ALL,
        help="of the forecast; all: the mean of all methods (default)",
    )
    add(
        "--ttft-slo",
        type=positive,
        default=TTFT_SLO_MS,
        metavar="MS",
        help="for the measured throughput: only windows within this SLO (default: %(default)g)",
    )
    _add_prometheus(parser.add_argument_group("Prometheus"))
    _add_output(parser.add_argument_group("output"))


def _add_prometheus(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--prometheus", metavar="URL", help="read the demand from this server instead of logs")
    add(
        "--counters",
        default=HEDGEROW,
        metavar="NAME",
        help="whose counters to read: hedgerow, or an engine (default: %(default)s)",
    )
    add(
        "--history",
        type=duration,
        default=HISTORY_S,
        metavar="D",
        help="how far to look back (default: 28d)",
    )
    add(
        "--match",
        default="",
        metavar="MATCHERS",
        help="""count only series with these labels, such as 'job="hedgerow",env="prod"'""",
    )
    add(
        "--region-label",
        default="",
        metavar="NAME",
        help="the label with the region (default for hedgerow: region)",
    )
    add(
        "--running-query",
        default="",
        metavar="PROMQL",
        help="the running replicas, with the labels model, type and the region label (default for"
        " hedgerow: its own gauge)",
    )
    add(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="a file with the bearer token for the server",
    )
    add(
        "--basic-auth-file",
        type=Path,
        metavar="FILE",
        help="a file with USER:PASSWORD for the server",
    )
    add(
        "--ca-file",
        metavar="FILE",
        help="certificates that sign the server's (default: the system's)",
    )


def _add_output(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--json", action="store_true", help="print the plan as one JSON document")
    add("--html", type=Path, metavar="PAGE", help="write an HTML page with plots")
    add(
        "--prometheus-file",
        type=Path,
        metavar="FILE",
        help="write gauges for node_exporter's textfile collector, such as hedgerow_plan.prom",
    )
    add(
        "--serve",
        type=address,
        metavar="[HOST:]PORT",
        help="serve the gauges at /metrics and plan again and again (default HOST: 127.0.0.1)",
    )
    add(
        "--every",
        type=duration,
        metavar="D",
        help="plan again after this time (default with --serve: the length of a window)",
    )


def duration(text: str) -> float:
    """Parse a duration such as 15m. Returns seconds, at least 1."""
    found = seconds(text)
    if found is None or found < 1.0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 15m or 1h30m")
    return found


def address(text: str) -> tuple[str, int]:
    """Parse a host and a port. For a port without a host, the host is 127.0.0.1."""
    try:
        host, port = split_host_port(text)
    except ValueError as err:
        raise argparse.ArgumentTypeError(str(err)) from None
    return ("127.0.0.1", port) if text.isdecimal() else (host, port)
