"""The command line `hedgerow`: parses the flags, and runs one of its commands.

A flag replaces the same setting of the YAML file. The router listens only after the whole
configuration was checked. Errors in the flags or the configuration are printed to stderr with their
paths. The help text states the meaning of each exit status. Only the module of the requested
command is imported, so that `hedgerow check` is fast.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NoReturn

from router.config.peer_flags import hint
from router.core import held_signals

_DESCRIPTION = "A reverse proxy for fleets of LLM inference replicas."
_EPILOG = """\
examples:
  hedgerow serve --replica http://gpu-1:8000 --replica http://gpu-2:8000
  hedgerow serve --config hedgerow.yaml   also: HEDGEROW_CONFIG=hedgerow.yaml hedgerow serve
  hedgerow serve --emulate 3          no GPU: three emulated engines
  hedgerow check hedgerow.yaml        report all errors in a configuration
  hedgerow key --name acme --tier pro >> keys.jsonl    create an API key
  hedgerow replay access.log          simulate the same traffic with other policies
  hedgerow plan access.log            advise how many replicas the coming demand needs

exit status:
  0    success; `serve`: stopped after a drain
  1    the command could not run, for example because a port is in use
  2    errors in the flags or in a file; each is printed with its path
  3    `replay`: the simulation differs too much from the log to compare anything
  130  interrupted
"""
_RELOAD = """\
Signals: SIGHUP reads the configuration again (an invalid one is refused and the old one kept),
SIGUSR1 opens the access log again (log rotation; so does SIGHUP),
SIGUSR2 replaces the process by a new one, without a refused connection or a cut stream,
SIGTERM drains and exits, a second SIGTERM exits at once.
"""
# The module and the help text of each other command. A module has the functions
# `add_arguments(parser)` and `main(args) -> int`.
_COMMANDS = {
    "config": ("router.config.reference", "print the reference of all settings"),
    "completion": ("router.completion", "print a completion script for bash, zsh or fish"),
    "key": ("router.config.keys_command", "create an API key and its line for the keys file"),
    "fleet": ("router.admin_client", "print the replicas and the queue of a running router"),
    "cordon": ("router.admin_client", "send no new requests to a replica of a running router"),
    "drain": ("router.admin_client", "the same, to stop the replica when it is `drained`"),
    "uncordon": ("router.admin_client", "send requests to a replica again"),
    "emulate": ("router.lab.emulator.command", "run emulated engines, without a router"),
    "replay": (
        "router.lab.replay.command",
        "simulate policies and fleets on recorded traffic",
    ),
    "audit": ("router.lab.audit.command", "report which tenant delays which, from an access log"),
    "plan": ("router.lab.plan.command", "advise how many replicas the coming demand needs"),
}
# Benchmarks are not installed: they run from a checkout, as `python -m router bench NAME` there.
# Only `overhead --upstream` is a use of the program, so it also runs without them.
_FLEET_OVERHEAD: Final = "router.lab.overhead.command"
_BENCHES = {
    "overhead": ("bench.overhead.cli", "CPU per request and token, compared with other routers"),
    "simulated": ("bench.fleet.simulated.cli", "policies in many scenarios, in virtual time"),
    "hedging": ("bench.hedging.cli", "gain and cost of the second copy of a request"),
    "priority": ("bench.priority.cli", "gain and cost of the queue's order for each class"),
    "predictors": ("bench.predictors.cli", "error of the predicted TTFT and TPOT"),
    "gain": ("bench.gain.cli", "worth of the tokens in time, by queue order and policy"),
    "sidecar": ("bench.sidecar.cli", "several routers on one fleet, compared with one router"),
    "plan": ("bench.plan.cli", "GPU-hours of a plan, compared with the reactive rule"),
    "promise": ("bench.promise.cli", "coverage and width of the TTFT estimates' intervals"),
    "fleet": ("bench.fleet.cli", "TTFT of an emulated fleet, compared with other routers"),
}

# The configuration file of `serve` and `check` if none is given.
_CONFIG_VARIABLE: Final = "HEDGEROW_CONFIG"
_CONFIG_FILE: Final = "hedgerow.yaml"

_OK, _CANNOT_RUN, _MISTAKE, _INTERRUPTED = 0, 1, 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line. Returns the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    if argv is None and words[:1] == ["serve"]:
        # A signal must not end the start, which imports modules for a tenth of a second.
        held_signals.hold()
    parser = _parser(words)
    if not words:
        parser.print_help(sys.stderr)
        return _MISTAKE
    args = parser.parse_args(words)
    run: Callable[[argparse.Namespace], int] = args.run
    try:
        status = run(args)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:  # The reader of the output, such as `head`, has ended.
        # The interpreter flushes the rest of the output at its exit, which must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _CANNOT_RUN


def full_parser() -> argparse.ArgumentParser:
    """Return the parser with the arguments of all commands. Imports all their modules."""
    return _parser(None)


def _parser(words: list[str] | None) -> argparse.ArgumentParser:
    """Return the parser for the arguments `words`. Imports the module of the requested command.

    `None`: imports the modules of all commands.
    """
    parser = _Parser(
        prog="hedgerow",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version", action=_Version, help="print the version and how it was built, and exit"
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_serve(commands)
    _add_check(commands)

    for name, (module, text) in _COMMANDS.items():
        command = commands.add_parser(name, help=text)
        if words is None or words[:1] == [name]:
            _attach(command, module)

    bench = commands.add_parser(
        "bench",
        help="measure the router on this machine",
        epilog="An installed program has only `overhead --upstream URL`. The rest runs from a "
        "checkout of the source, as `python -m router bench BENCH`.",
    )
    benches = bench.add_subparsers(title="benchmarks", metavar="BENCH", required=True)
    for name, (module, text) in _BENCHES.items():
        one = benches.add_parser(name, help=text)
        if words is None or words[:2] == ["bench", name]:
            if (found := _bench_module(name, module)) is not None:
                _attach(one, found)
            elif words is not None:
                parser.exit(
                    _CANNOT_RUN,
                    f"hedgerow bench {name}: not part of an installed program; run "
                    f"`python -m router bench {name}` in a checkout of the source\n",
                )
    return parser


def _add_serve(commands: Any) -> None:
    serve = commands.add_parser(
        "serve",
        help="run the router",
        description="Run the router in front of a fleet of replicas.",
        epilog=_RELOAD,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    serve.add_argument(
        "--config",
        metavar="FILE",
        help="YAML configuration; flags override it (default: $HEDGEROW_CONFIG; without that, and "
        "without a flag that names replicas, hedgerow.yaml in the current directory if it exists)",
    )
    address = serve.add_mutually_exclusive_group()
    address.add_argument(
        "--listen",
        metavar="[HOST:]PORT[,...]",
        help="where clients connect (default: 0.0.0.0:8080)",
    )
    address.add_argument(
        "--port", metavar="PORT", type=int, help="the port for clients, instead of --listen"
    )
    serve.add_argument("--host", help="the host for --port (default: 0.0.0.0)")
    serve.add_argument(
        "--admin",
        metavar="HOST:PORT",
        help="metrics, health, replicas, reload and drain (default: 127.0.0.1:9901)",
    )
    serve.add_argument(
        "--replica",
        metavar="URL",
        action="append",
        help="an engine, such as http://gpu-1:8000; repeat for each; replaces the file's replicas",
    )
    serve.add_argument(
        "--worker-urls",
        metavar="URL",
        nargs="+",
        help="the same as --replica for each URL; the name that other routers use",
    )
    serve.add_argument("--tls-cert", metavar="FILE", help="certificate chain (PEM): serve HTTPS")
    serve.add_argument("--tls-key", metavar="FILE", help="private key (PEM) of --tls-cert")
    serve.add_argument("--keys", metavar="FILE", help="API keys of tenants; see: hedgerow key")
    serve.add_argument("--policy", metavar="NAME", help="routing policy (default: kv_aware)")
    serve.add_argument(
        "--emulate", metavar="N", type=int, help="start N emulated engines and route to them"
    )
    serve.add_argument(
        "--workers",
        metavar="N",
        type=int,
        help="processes that serve the port together, one for each core (default: 1)",
    )
    serve.add_argument(
        "--log-level",
        metavar="LEVEL",
        help="lowest level of the messages on stderr: info, warning or error (default: info)",
    )
    serve.add_argument(
        "--print-config",
        action="store_true",
        help="print the whole configuration (file, flags and defaults) without secrets, and exit",
    )
    serve.set_defaults(run=_serve)


def _add_check(commands: Any) -> None:
    check = commands.add_parser(
        "check",
        help="check a configuration file",
        description="Check a configuration file. Print every error; the exit status is then 2.",
    )
    check.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        help="default: $HEDGEROW_CONFIG, or hedgerow.yaml in the current directory",
    )
    check.add_argument(
        "--skip-files",
        action="store_true",
        help="check a configuration of another machine: do not read what FILE names (tokens, keys, "
        "certificates, environment variables), and do not look for optional packages",
    )
    check.set_defaults(run=_check)


def _serve(args: argparse.Namespace) -> int:
    from router.config.load import load
    from router.config.model import Config
    from router.core.errors import ConfigError

    overrides = _overrides(args)
    names_replicas = "replicas" in overrides or "emulate" in overrides
    path = _config_file(args.config, uses_folder=not names_replicas)

    def read() -> Config:
        return load(path, overrides, serves=not args.print_config)

    if args.print_config:
        from router.config.shown import as_yaml

        try:
            print(as_yaml(read()), end="")
        except ConfigError as err:
            return _report(err.problems)
        return _OK

    from router.app import serve

    try:
        return serve(read, path)
    except ConfigError as err:
        return _report(err.problems)
    except OSError as err:
        _say(f"hedgerow: cannot start: {err.strerror or err}")
        return _CANNOT_RUN


def _config_file(given: str | None, *, uses_folder: bool) -> str | None:
    """Return the path of the configuration file; `None`: there is no file.

    `given`: the path in the command. `uses_folder`: whether the file in the current directory is
    used if no other is named.
    """
    named = given or os.environ.get(_CONFIG_VARIABLE)
    if named or not uses_folder or not Path(_CONFIG_FILE).exists():
        return named or None
    return _CONFIG_FILE


def _overrides(args: argparse.Namespace) -> dict[str, Any]:
    """Return the flags that were given, in the structure of the YAML file."""
    overrides: dict[str, Any] = {}
    if args.listen is not None:
        overrides["listen"] = args.listen
    elif args.port is not None:
        host = "0.0.0.0" if args.host is None else args.host
        overrides["listen"] = f"[{host}]:{args.port}" if ":" in host else f"{host}:{args.port}"
    urls = [*(args.replica or ()), *(args.worker_urls or ())]
    if urls:
        overrides["replicas"] = [{"url": url} for url in urls]
    tls = {"cert": args.tls_cert, "key": args.tls_key}
    if given := {name: value for name, value in tls.items() if value is not None}:
        overrides["tls"] = given
    if args.log_level is not None:
        overrides["log_level"] = args.log_level
    if args.workers is not None:
        overrides["workers"] = args.workers
    for section, setting, value in (
        ("admin", "listen", args.admin),
        ("keys", "file", args.keys),
        ("routing", "policy", args.policy),
        ("emulate", "count", args.emulate),
    ):
        if value is not None:
            overrides[section] = {setting: value}
    return overrides


def _check(args: argparse.Namespace) -> int:
    from router.config.load import load
    from router.config.notes import notes
    from router.core.errors import ConfigError

    path = _config_file(args.file, uses_folder=True)
    if path is None:
        _say(f"hedgerow check: needs FILE: there is no {_CONFIG_FILE} in the current directory")
        return _MISTAKE
    try:
        config = load(path, reads_files=not args.skip_files)
    except ConfigError as err:
        return _report(err.problems, path)
    emulated = "emulated " if config.emulate.count else ""
    count = config.emulate.count or len(config.replicas)
    noun = "replica" if count == 1 else "replicas"
    found = config.discovery
    sources = len(found.files) + len(found.dns) + len(found.kubernetes)
    discovered = f", sources of discovery: {sources}" if sources else ""
    print(f"ok: {count} {emulated}{noun}{discovered}, policy {config.routing.policy}")
    for note in notes(config, reads_files=not args.skip_files):
        print(f"note: {note}")
    return _OK


def _attach(parser: argparse.ArgumentParser, module: str) -> None:
    command = import_module(module)
    command.add_arguments(parser)
    parser.set_defaults(run=command.main)


def _bench_module(name: str, module: str) -> str | None:
    """Return the module of a benchmark; `None` if the program was installed without it."""
    from importlib.util import find_spec

    try:
        is_there = find_spec(module) is not None
    except ModuleNotFoundError:  # of a package around it
        is_there = False
    if is_there:
        return module
    return _FLEET_OVERHEAD if name == "overhead" else None


def _report(problems: list[str], what: str = "the configuration") -> int:
    from router.config.problems import said

    _say(f"hedgerow: {said(problems, what)}")
    return _MISTAKE


def _say(line: str) -> None:
    print(line, file=sys.stderr)


class _Parser(argparse.ArgumentParser):
    """A parser whose errors name the replacements of other routers' flags."""

    def error(self, message: str) -> NoReturn:
        super().error(message + hint(message))


class _Version(argparse.Action):
    """The action of `--version`. It looks up the version only if the flag is given."""

    def __init__(self, option_strings: Sequence[str], dest: str, **kwargs: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, **kwargs)

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> NoReturn:
        from router.core.build import VERSION, build_kind

        print(f"hedgerow {VERSION} ({build_kind()})")
        parser.exit(_OK)
