"""Is the simulator true of a fleet whose access log there is? The engine model is fitted to the
first part of the log, and the rest is simulated by replaying the log's own requests.

The whole log is replayed, so that caches are as warm as they were; only the rest is compared. What
a log shows holds network, HTTP and tokenizer, so the fitted model does, and the simulated network
takes no time. Must never: fit to a request that it is judged by.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from bench.fleet.truth.figures import Figures, figures
from bench.fleet.truth.outcomes import Outcomes, of_log, span_s
from router.audit.rows import Row, rows
from router.config.varied import varied
from router.emulator.core.core_config import CoreConfig
from router.intake.prompt import GENERATES
from router.replay.calibrate import Calibration, calibrate
from router.simulator.scenario import Scenario, equal
from router.simulator.simulation import simulate
from router.traces import open_trace
from router.traces.lines import Lines


@dataclass(frozen=True, slots=True)
class Holdout:
    """What came of one log."""

    measured: Figures
    simulated: list[Figures]  # seed by seed
    calibration: Calibration


def holdout(
    path: Path,
    sizes: CoreConfig,
    *,
    replicas: int,
    policy: str = "kv_aware",
    share: float = 0.5,
    seeds: int = 5,
    slo_s: float = 2.0,
) -> Holdout:
    """`sizes`: the engines', in blocks of theirs; `share`: of the log's requests, to fit to.

    Raises CalibrationError, MissingExtra, TraceError, OSError.
    """
    seen = _rows(path)
    times = sorted(row.ts for row in seen)
    since = times[int(share * len(times))]
    zero = times[0]
    with _lines_before(path, since) as head:
        found = calibrate(str(head), step_tokens=sizes.max_num_batched_tokens)
    trace = open_trace(path, format="hedgerow")
    kv_tokens = sizes.num_blocks * sizes.block_size
    size = trace.block_tokens
    core = replace(sizes, block_size=size, num_blocks=kv_tokens // size)
    simulated = []
    for seed in range(1, seeds + 1):
        world = Scenario(
            groups=equal(replicas, core, found.timing),
            config=varied(routing={"policy": policy}),
            network_s=0.0,
            sample_s=0.0,
            seed=seed,
        )
        outcomes = Outcomes(since - zero)
        simulate(world, trace, outcomes)
        played = outcomes.played(span_s(outcomes.records), outcomes.served.counters())
        simulated.append(figures(played, slo_s))
    return Holdout(figures(of_log(seen, zero, since - zero), slo_s), simulated, found)


class _Timed(msgspec.Struct):
    ts: float


def _rows(path: Path) -> list[Row]:
    """What a replay would replay."""
    with closing(Lines(str(path))) as lines:
        return [row for row in rows(lines) if row.kind in GENERATES and row.attempts]


@contextmanager
def _lines_before(path: Path, since: float) -> Iterator[Path]:
    """A log of the requests that came before."""
    decode = msgspec.json.Decoder(_Timed).decode
    with tempfile.TemporaryDirectory(prefix="hedgerow-truth-") as folder:
        head = Path(folder) / "head.log"
        with closing(Lines(str(path))) as lines, head.open("wb") as out:
            # The last line may be cut off: it is still being written.
            out.writelines(line for line in lines if not lines.is_cut and decode(line).ts < since)
        yield head
