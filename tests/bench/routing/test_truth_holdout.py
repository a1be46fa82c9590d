"""Fit to one part of a log, judged by the other, on logs of engines with known timing."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from bench.fleet.truth.figures import compare
from bench.fleet.truth.holdout import holdout
from router.config.varied import varied
from router.emulator.core.core_config import CoreConfig
from router.emulator.core.timing import PROFILES, Timing
from router.simulator.outcome import Outcome
from router.simulator.scenario import Scenario, equal
from router.simulator.simulation import simulate
from router.simulator.workloads import Lengths, Unique

EPOCH = 1_700_000_000.0
TIMING = PROFILES["realistic"].scaled(0.5)
SIZES = CoreConfig(num_blocks=4096, block_size=128)
TRAFFIC = Unique(
    rate=3.0, duration_s=160.0, prompt=Lengths(1200.0, 0.7, 8000), output=Lengths(30.0, 0.3, 90)
)


class Logger:
    """Outcomes as lines of an access log."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def ended(self, outcome: Outcome) -> None:
        arrival = outcome.arrival
        duration_ms = (outcome.ended - arrival.at) * 1e3
        self.lines.append(
            {
                "ts": EPOCH + arrival.at,
                "id": str(arrival.number),
                "kind": "chat",
                "stream": True,
                "status": 200,
                "reason": "ok",
                "replica": outcome.replica,
                "attempts": [[outcome.replica, "primary", "ok", duration_ms]],
                "ttft_ms": (outcome.first - arrival.at) * 1e3,
                "duration_ms": duration_ms,
                "prompt_tokens": arrival.prompt_tokens,
                "output_tokens": arrival.output_tokens,
                "cached_tokens": 0,
            }
        )


@pytest.fixture(scope="module")
def lines() -> list[dict[str, Any]]:
    return log_of(TIMING)


def log_of(timing: Timing) -> list[dict[str, Any]]:
    logger = Logger()
    world = Scenario(
        groups=equal(2, SIZES, timing),
        config=varied(routing={"policy": "round_robin"}, queue={"enabled": False}),
        network_s=0.0,
        sample_s=0.0,
    )
    simulate(world, TRAFFIC, logger)
    return logger.lines


def write(folder: Path, lines: Iterable[dict[str, Any]], rest: str = "") -> Path:
    path = folder / "access.log"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + rest)
    return path


def test_engines_that_are_as_modelled_are_simulated_as_they_were(
    lines: list[dict[str, Any]], tmp_path: Path
) -> None:
    found = holdout(write(tmp_path, lines), SIZES, replicas=2, policy="round_robin", seeds=1)
    rows = {row.name: row for row in compare("rest", [found.measured], found.simulated)}
    for name in ("TTFT p50", "TTFT p90", "TPOT p50", "TPOT p99", "requests", "output tokens"):
        error = rows[name].error
        assert error is not None and abs(error) < 5.0, rows[name]
    assert rows["failed"].measured == rows["failed"].simulated == 0
    assert rows["TTFT p50"].measured != rows["TTFT p50"].simulated  # the value was not copied


def test_the_fit_does_not_see_what_it_is_judged_by(
    lines: list[dict[str, Any]], tmp_path: Path
) -> None:
    """From the middle of the log on, the engines are three times as slow: the error shows it."""
    slow = {line["id"]: line for line in log_of(TIMING.scaled(3.0))}
    middle = sorted(line["ts"] for line in lines)[len(lines) // 2]
    changed = [line if line["ts"] < middle else slow[line["id"]] for line in lines]
    one = holdout(write(tmp_path, lines), SIZES, replicas=2, policy="round_robin", seeds=1)
    other = holdout(write(tmp_path, changed), SIZES, replicas=2, policy="round_robin", seeds=1)
    assert other.calibration.timing == one.calibration.timing
    (ttft, *_) = compare("rest", [other.measured], other.simulated)
    assert ttft.error is not None and ttft.error < -50.0


def test_a_last_line_that_is_still_being_written_is_left_out(
    lines: list[dict[str, Any]], tmp_path: Path
) -> None:
    whole = holdout(write(tmp_path, lines), SIZES, replicas=2, policy="round_robin", seeds=1)
    cut = write(tmp_path, lines, '{"ts": 1700000')
    assert holdout(cut, SIZES, replicas=2, policy="round_robin", seeds=1) == whole
