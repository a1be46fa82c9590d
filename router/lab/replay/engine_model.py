"""Determines the timing and the sizes of the simulated engines.

The timing is given by flags, taken from a profile, or fitted to the log. Times in a log include the
network, HTTP and the tokenizer, and so does a fitted timing. Therefore the simulated network delay
is 0 with a fitted timing, or the network would be counted twice.

The sizes are the number of sequences and the KV tokens of an engine. They come from the flags, else
from the log, else from a replica that was full in the log, else from defaults. Must never: fit to
the part of the log that a simulation is compared with.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from router.lab.emulator.core.timing import PROFILES, CoreConfig, Timing
from router.lab.replay.flags import KV_TOKENS, PROFILE, SLOTS
from router.lab.replay.logged_fleet import LoggedGroup
from router.lab.replay.workers import Refused
from router.lab.simulator.scenario import NETWORK_S, Group


@dataclass(frozen=True, slots=True)
class EngineModel:
    """The engines of the groups of replicas in the log, in the same order.

    For a trace without information about the fleet, there is one group of one replica.
    """

    name: str  # the name of the timing: a profile, "given" or "fitted to the log"
    groups: tuple[Group, ...]
    network_s: float
    is_logged: bool  # the groups are those of the log
    report: tuple[str, ...] = ()  # lines about the quality of the fit


def engine_model(
    args: argparse.Namespace,
    groups: Sequence[LoggedGroup],
    block_tokens: int,
    until: float,
    on_progress: Callable[[float], None] | None,
) -> EngineModel:
    """Determine the engines of the fleet.

    `until`: seconds since 1970; requests that arrived later are not used for a fit. Raises Refused,
    and the errors of `calibrate`.
    """
    if args.kv_tokens is not None and args.kv_tokens < block_tokens:
        raise Refused(f"--kv-tokens must be at least one block, {block_tokens} tokens")
    if args.calibrate:
        return _fitted(args, groups, block_tokens, until, on_progress)
    if args.timing is not None and args.profile is not None:
        raise Refused("--profile and --timing exclude each other; give one of them")
    profile = args.profile or PROFILE
    timing = PROFILES[profile] if args.timing is None else args.timing
    made = [_group(args, group, timing, block_tokens) for group in groups or (None,)]
    return EngineModel(
        "given" if args.timing is not None else profile, tuple(made), NETWORK_S, bool(groups)
    )


def _fitted(
    args: argparse.Namespace,
    groups: Sequence[LoggedGroup],
    block_tokens: int,
    until: float,
    on_progress: Callable[[float], None] | None,
) -> EngineModel:
    from router.lab.extras import MissingExtra
    from router.lab.replay.calibrate import Calibration, CalibrationError, calibrate

    wanted: Sequence[LoggedGroup | None] = groups or (None,)

    def fit(number: int, group: LoggedGroup | None) -> Calibration:
        def show(share: float) -> None:
            if on_progress is not None:
                on_progress((number + share) / len(wanted))

        return calibrate(
            args.file,
            base=PROFILES[args.profile or PROFILE],
            model=args.model,
            until=until,
            # With one group, the requests of all replicas are used.
            replicas=None if group is None or len(wanted) == 1 else frozenset(group.replicas),
            step_tokens=args.max_num_batched_tokens,
            on_progress=show,
        )

    made: list[Group] = []
    report: list[str] = []
    for number, group in enumerate(wanted):
        name = "" if group is None or len(wanted) == 1 else f"group {group.name(number + 1)}: "
        try:
            found = fit(number, group)
        except MissingExtra as err:
            raise Refused(str(err)) from None
        except CalibrationError as err:
            raise Refused(f"{name}{err}") from None
        report += [f"{name}{line}" for line in found.report]
        made.append(
            _group(
                args,
                group,
                found.timing,
                block_tokens,
                slots=found.sequences_full or max(SLOTS, found.sequences_peak),
                kv_tokens=max(KV_TOKENS, found.context_peak),
            )
        )
    return EngineModel("fitted to the log", tuple(made), 0.0, bool(groups), tuple(report))


def _group(
    args: argparse.Namespace,
    logged: LoggedGroup | None,
    timing: Timing,
    block_tokens: int,
    *,
    slots: int = SLOTS,
    kv_tokens: int = KV_TOKENS,
) -> Group:
    """Make a group of engines. `slots`, `kv_tokens`: the sizes if neither a flag nor the log has
    them.
    """
    if logged is not None:
        slots, kv_tokens = logged.slots or slots, logged.kv_tokens or kv_tokens
    core = CoreConfig(
        max_num_seqs=args.max_num_seqs or slots,
        max_num_batched_tokens=args.max_num_batched_tokens,
        num_blocks=max(1, (args.kv_tokens or kv_tokens) // block_tokens),
        block_size=block_tokens,
    )
    if logged is None:
        return Group(replicas=1, core=core, timing=timing)
    like = logged.like
    return Group(
        replicas=len(logged.replicas),
        core=core,
        timing=timing,
        models=logged.models,
        weight=like.weight,
        max_inflight=like.max_inflight,
        zone=like.zone,
        node=like.node,
        region=like.region,
        pool=like.pool,
    )
