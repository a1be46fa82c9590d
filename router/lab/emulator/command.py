"""Defines the options of `hedgerow emulate` and starts it.

This module is cheap to import, because only `main` imports the server.
"""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

from router.lab.emulator.core.timing import DEFAULT_PROFILE, PROFILES
from router.lab.emulator.http import faults as fault
from router.lab.emulator.settings import PERSONAS, EngineSettings
from router.lab.flags import count, not_negative, positive

if TYPE_CHECKING:
    from router.lab.emulator.fleet import Beside

_DEFAULTS = EngineSettings()
_FAULTS = """\
Faults, in three forms with the same names (see --fault):
  from the start:          hedgerow emulate --fault 'slow=10; replica=emulated-0'
  while an engine runs:    curl http://127.0.0.1:8001/emulator/faults -d '{"freeze": true}'
                           curl -X DELETE http://127.0.0.1:8001/emulator/faults
  for one request:         the header  x-emulate-fault: status=503; retry_after_s=1
The engine itself gets the second one, not the router: GET /replicas of the router has its URL.
  slow X           every step takes X times as long      freeze        no step ever ends
  health STATUS    answer of /health                     probability P share of the requests
  delay_s S        wait before anything is sent          straggle X    the first token takes X times
  reset            TCP reset instead of an answer                      as long as on an idle engine
  status STATUS    this error instead of an answer       retry_after_s S  its Retry-After
  hang             never continue after the head         die_after N   close after N tokens
  error_after N    an error event after N tokens         replica NAME  only this engine
All engines of one command share a process; to kill one engine, start it by a command of its own.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add every option with its default. An option that vLLM also has has vLLM's name."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _FAULTS
    add = parser.add_argument
    add("--count", type=count, default=1, help="number of engines; each has its own port")
    add("--host", default="127.0.0.1")
    add("--port", type=_port, default=0, help="port of the first engine; 0: any free ports")
    add("--name", default="emulated", help="engines are called NAME-0, NAME-1, ...")
    add(
        "--persona",
        choices=PERSONAS,
        default=_DEFAULTS.persona,
        help="the engine to emulate (default: %(default)s)",
    )
    add("--engine-version", metavar="TEXT", help="version it reports (default: the newest known)")
    add(
        "--model",
        action="append",
        metavar="NAME",
        help="a model it serves; repeat for several (default: emulated)",
    )
    add(
        "--data-parallel-size",
        type=count,
        default=_DEFAULTS.data_parallel_size,
        metavar="N",
        help="ranks behind each port, chosen by x-data-parallel-rank (vLLM and SGLang only)",
    )
    add(
        "--lora-modules",
        action="append",
        default=[],
        metavar="NAME",
        help="a LoRA adapter of the first model; repeat for several (vLLM and SGLang only)",
    )
    add("--max-loras", type=count, default=_DEFAULTS.max_loras, help="adapters in memory")
    add(
        "--lora-load-time",
        type=not_negative,
        default=_DEFAULTS.lora_load_s,
        metavar="SECONDS",
        help="time to load an adapter into memory (default: 0)",
    )
    add(
        "--profile",
        choices=sorted(PROFILES),
        default=DEFAULT_PROFILE,
        help="durations of the engine's steps (default: %(default)s)",
    )
    add(
        "--speed",
        type=positive,
        default=_DEFAULTS.speed,
        metavar="X",
        help="speed as a multiple of the profile's (default: %(default)s)",
    )
    add("--seed", type=int, default=0, help="random seed of faults that have a probability")
    add("--max-num-seqs", type=count, default=_DEFAULTS.max_num_seqs)
    add("--max-num-batched-tokens", type=count, default=_DEFAULTS.max_num_batched_tokens)
    pool = parser.add_mutually_exclusive_group()
    pool.add_argument(
        "--num-blocks",
        type=count,
        default=_DEFAULTS.num_blocks,
        help="blocks of the KV cache",
    )
    pool.add_argument(
        "--kv-tokens", type=count, metavar="N", help="KV cache size in tokens, rounded down"
    )
    add("--block-size", type=count, default=_DEFAULTS.block_size, help="tokens of a KV block")
    add("--max-model-len", type=count, default=_DEFAULTS.max_model_len)
    add("--stream-interval", type=count, default=1, help="tokens of an event of a stream")
    add(
        "--max-queued-requests",
        type=count,
        metavar="N",
        help="refuse more waiting requests (TGI counts running ones, too; default: no limit)",
    )
    add(
        "--scheduling-policy",
        choices=("fcfs", "priority"),
        default=_DEFAULTS.scheduling_policy,
        help="order of the queue; priority: as the persona's engine has it (default: %(default)s)",
    )
    add(
        "--schedule-low-priority-values-first",
        action="store_true",
        help="SGLang only: lower numbers first, as in vLLM",
    )
    add(
        "--forget-leavers",
        action="store_true",
        help="SGLang only: a stream whose client disconnected runs to its end, and a later abort "
        "has no effect, as in 0.5.14 to 0.5.19",
    )
    add("--no-prefix-caching", action="store_true")
    add(
        "--wait-first-token",
        action="store_true",
        help="send a stream's head with its first token, as SGLang does, not at once as vLLM does",
    )
    add(
        "--sse-keep-alive-interval",
        type=positive,
        metavar="SECONDS",
        help="idle time before a stream gets a comment (default: that of the persona)",
    )
    add("--no-metrics", action="store_true", help="do not serve metrics")
    add(
        "--gauge-lag",
        type=not_negative,
        default=_DEFAULTS.gauge_lag_s,
        metavar="SECONDS",
        help="vLLM only: age of the gauges in /metrics, up to 1 in vLLM 0.32 (default: 0)",
    )
    add("--kv-events", action="store_true", help="publish KV events over ZMQ (needs pyzmq)")
    add(
        "--kv-events-topic",
        default=_DEFAULTS.kv_events_topic,
        metavar="TEXT",
        help="may contain {address}, {url}, {name} and {model} (default: empty)",
    )
    add(
        "--fault",
        metavar="SPEC",
        action="append",
        default=[],
        help='a fault from the start: "slow=10; replica=emulated-2", '
        '"status=503; retry_after_s=1; probability=0.1"; others: ' + _fault_names(),
    )
    add("--exit-with-stdin", action="store_true", help="stop when standard input ends")


def settings_from(args: argparse.Namespace) -> list[EngineSettings]:
    """Return the settings of each engine. Raises ValueError with a message for the user."""
    num_blocks = args.num_blocks
    if args.kv_tokens is not None:
        num_blocks = max(args.kv_tokens // args.block_size, 1)
    if args.data_parallel_size > 1 and args.kv_events and args.persona != "vllm":
        raise ValueError("--kv-events with several ranks is for vLLM only")
    plans = [fault.parse(spec) for spec in args.fault]
    engines = []
    for index in range(args.count):
        name = f"{args.name}-{index}"
        mine = [plan for plan in plans if plan.replica in (None, name)]
        engines.append(
            EngineSettings(
                name=name,
                persona=args.persona,
                engine_version=args.engine_version,
                models=tuple(args.model or _DEFAULTS.models),
                data_parallel_size=args.data_parallel_size,
                adapters=tuple(args.lora_modules),
                max_loras=args.max_loras,
                lora_load_s=args.lora_load_time,
                profile=args.profile,
                speed=args.speed,
                seed=args.seed + index,
                max_num_seqs=args.max_num_seqs,
                max_num_batched_tokens=args.max_num_batched_tokens,
                num_blocks=num_blocks,
                block_size=args.block_size,
                max_model_len=args.max_model_len,
                max_queued_requests=args.max_queued_requests,
                scheduling_policy=args.scheduling_policy,
                low_priority_values_first=args.schedule_low_priority_values_first,
                forgets_leavers=args.forget_leavers,
                prefix_caching=not args.no_prefix_caching,
                wait_first_token=args.wait_first_token,
                keep_alive_s=args.sse_keep_alive_interval,
                stream_interval=args.stream_interval,
                gauge_lag_s=args.gauge_lag,
                metrics=not args.no_metrics,
                kv_events=args.kv_events,
                kv_events_topic=args.kv_events_topic,
                faults=mine[-1] if mine else fault.NONE,
            )
        )
    return engines


def main(args: argparse.Namespace, beside: Beside | None = None) -> int:
    """Serve until stopped, with the server `beside` on one more port.

    Returns the exit status; 2 means unusable options or ports.
    """
    try:
        engines = settings_from(args)
    except ValueError as err:
        print(f"hedgerow emulate: {err}", file=sys.stderr)
        return 2
    if args.kv_events and find_spec("zmq") is None:
        print("hedgerow emulate: --kv-events needs pyzmq", file=sys.stderr)
        return 2
    from router.lab.emulator.fleet import run

    try:
        return run(engines, args.host, args.port, args.exit_with_stdin, beside)
    except OSError as err:
        print(f"hedgerow emulate: {err.strerror or err}", file=sys.stderr)
        return 2


def _fault_names() -> str:
    return ", ".join(name for name in fault.Faults.__struct_fields__ if name != "replica")


def _port(value: str) -> int:
    number = int(value)
    if not 0 <= number <= 65535:
        raise argparse.ArgumentTypeError("must be within 0 and 65535")
    return number
