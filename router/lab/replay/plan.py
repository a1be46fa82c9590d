"""Lists the runs of a replay: the logged fleet as configured, and each candidate on each fleet."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace

from router.config.keys import KeyLine
from router.lab.replay.arguments import Candidate
from router.lab.replay.engine_model import EngineModel
from router.lab.replay.job import Job, Source
from router.lab.replay.logged_fleet import LoggedGroup, numbers
from router.lab.replay.report.slo import Slo
from router.lab.replay.truth.judged import Half
from router.lab.replay.workers import Refused
from router.lab.simulator.scenario import Group, Polls, Scenario


class Plan:
    """The runs of one replay."""

    def __init__(
        self,
        args: argparse.Namespace,
        source: Source,
        model: EngineModel,
        keys: Mapping[str, KeyLine],
    ) -> None:
        self._args = args
        self._source = source
        self._model = model
        self._keys = keys
        self._slo = Slo(args.ttft_slo / 1e3, args.tpot_slo / 1e3)
        self._polls = Polls(delay_s=args.poll_delay, loss=args.poll_loss)

    def judged(self, candidate: Candidate, logged: Sequence[LoggedGroup], half_s: float) -> Job:
        """Return the run to compare with the log: one router, no faults, original speed.

        `half_s`: where the second half of the log begins, in seconds after its first request.
        """
        groups = self._model.groups
        starts = [0]
        for group in groups:
            starts.append(starts[-1] + group.replicas)
        half = Half(
            since_s=half_s,
            group_of_logged={name: number for number, name in numbers(logged)},
            group_of_simulated={
                f"r{index}": number
                for number, start in enumerate(starts[:-1])
                for index in range(start, starts[number + 1])
            },
            groups=tuple(group.name(number) for number, group in enumerate(logged, 1)),
        )
        return Job(
            policy=candidate.label,
            scenario=self._scenario(groups, candidate),
            source=replace(self._source, speedup=1.0, closed_loop=False),
            slo=self._slo,
            half=half,
        )

    def jobs(self, candidates: Sequence[Candidate], sizes: Sequence[int] | None) -> list[Job]:
        """Return the jobs by fleet, then by candidate. With several routers, each job is repeated
        with shared state.

        `sizes`: the sizes of fleets whose replicas are like those of the largest group; None: the
        logged fleet. Raises Refused if the log names no replica, and for a fault of a replica that
        does not exist.
        """
        args = self._args
        fleets = self._fleets(sizes)
        fewest = min(sum(group.replicas for group in groups) for groups in fleets)
        for fault in args.fault:
            if fault.replica >= fewest:
                raise Refused(
                    f"--fault: replica {fault.replica} does not exist in a fleet of {fewest}; "
                    f"allowed: 0 to {fewest - 1}"
                )
        jobs = [
            Job(
                policy=candidate.label,
                scenario=replace(
                    self._scenario(groups, candidate),
                    routers=args.routers,
                    shared=args.shared,
                    faults=tuple(args.fault),
                ),
                source=self._source,
                slo=self._slo,
            )
            for groups in fleets
            for candidate in candidates
        ]
        if args.routers > 1 and not args.shared:
            jobs += [replace(job, scenario=replace(job.scenario, shared=True)) for job in jobs]
        return jobs

    def _scenario(self, groups: tuple[Group, ...], candidate: Candidate) -> Scenario:
        """Return a scenario with one router and without faults."""
        return Scenario(
            groups=groups,
            config=candidate.config,
            keys=self._keys,
            network_s=self._model.network_s,
            polls=self._polls,
            seed=self._args.seed,
        )

    def _fleets(self, sizes: Sequence[int] | None) -> list[tuple[Group, ...]]:
        groups = self._model.groups
        largest = max(groups, key=lambda group: group.replicas)
        if sizes is None:
            if self._model.is_logged:
                return [groups]
            raise Refused("no request of the log names a replica; state --replicas")
        usual = Group(replicas=1, core=largest.core, timing=largest.timing)
        return [(replace(usual, replicas=size),) for size in sizes]
