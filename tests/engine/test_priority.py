"""Two engines with priority scheduling, full of batch requests: benefit and cost of priority.

The same traffic in front of the same engines, alternately with the router's queue, with priority
numbers for the engine, with both and with neither. Ratios are judged, not times, because everything
shares a few cores. They are ratios of consecutive runs, and the median over all rounds counts:
seconds in which the whole machine stalls would affect only one run. One round is enough where every
ratio is good. Otherwise `MORE_ROUNDS` follow, and the median of all counts: the 99th percentile of
52 requests is nearly the longest wait, so one stall decides it. `HEDGEROW_PRIORITY_ROUNDS` in the
environment is the number of rounds before that decision.
"""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from bench.fleet.report import aligned
from tests.engine.loads.saturation import CLIENTS, Saturation, Seen, at
from tests.engine.machine.cores import on_cores_of_their_own
from tests.engine.machine.fleet import Engine, Engines, configured

# Rounds over all settings; the seed of a round is the same for all. One takes two minutes.
ROUNDS = int(os.environ.get("HEDGEROW_PRIORITY_ROUNDS", "1"))
MORE_ROUNDS = 2  # rounds after a ratio that was too large
RATE = 6.0  # urgent requests per second; in tokens a fraction of the engines' throughput
REQUESTS = 52  # requests per run
TARGET = 3  # requests that wait at an engine; batch has a target of its own, 1
P50_SHARE, P99_SHARE = 1 / 3, 1 / 4  # allowed TTFT, as a share of that without priorities
NO_GAP = 1.25  # allowed ratio of waits between equal requests, in either direction
IDLE_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Setting:
    """Where priorities are used: in the router's queue, at the engines, in both or in neither."""

    name: str
    queue: bool = False
    engine: bool = False
    urgent: str = "high"  # the class of the urgent requests
    requests: int = REQUESTS

    def config(self, engines: Sequence[Engine]) -> dict[str, Any]:
        told = "vllm" if self.engine else "none"
        return {
            "replicas": [
                {"url": engine.url, "id": engine.name, "priority": told} for engine in engines
            ],
            # No limit by tokens: at most the target number waits at an engine.
            "queue": {"enabled": self.queue, "gates": {"waiting": TARGET, "prefill_tokens": 0}},
            "hedging": {"policy": "off"},  # a copy would be another way to be early
        }


NOBODY = Setting("nobody")
QUEUE = Setting("router's queue", queue=True)
ENGINE = Setting("engines", engine=True)
BOTH = Setting("both", queue=True, engine=True)
# The control: the same requests at the same times, but of the class of all others.
EQUAL = Setting(
    "both; all are batch", queue=True, engine=True, urgent="batch", requests=REQUESTS // 2
)
SETTINGS = (NOBODY, QUEUE, ENGINE, BOTH, EQUAL)

URGENT = (QUEUE, ENGINE, BOTH)  # settings in which urgent requests are early

every_way = pytest.mark.parametrize("setting", URGENT, ids=lambda one: one.name)


Rounds = dict[Setting, list[Seen]]


@pytest.fixture(scope="module")
def rounds(fleet: Engines, tmp_path_factory: pytest.TempPathFactory) -> Rounds:
    """Results of each setting, round by round."""
    found: Rounds = {setting: [] for setting in SETTINGS}
    for number in range(ROUNDS + MORE_ROUNDS):
        if number == ROUNDS and is_good(found):
            break
        for setting in SETTINGS:
            folder = tmp_path_factory.mktemp("priority")
            found[setting].append(run(setting, fleet, folder, f"round {number}"))
    print()
    print(table(found))
    return found


@pytest.fixture(scope="module")
def seen(rounds: Rounds) -> dict[Setting, Seen]:
    """Results over all rounds."""
    return {setting: Seen.of_all(several) for setting, several in rounds.items()}


def share(rounds: Rounds, setting: Setting, q: float) -> float:
    """An urgent request's wait, relative to its wait without priorities."""
    pairs = zip(rounds[setting], rounds[NOBODY], strict=True)
    return median(at(one.urgent_s, q) / at(without.urgent_s, q) for one, without in pairs)


def is_good(rounds: Rounds) -> bool:
    """Urgent requests begin soon in every setting, and equals wait equally."""
    gap = at([gap for seen in rounds[EQUAL] for gap in seen.gaps], 0.5)
    return 1 / NO_GAP <= gap <= NO_GAP and all(
        share(rounds, setting, 0.5) <= P50_SHARE and share(rounds, setting, 0.99) <= P99_SHARE
        for setting in URGENT
    )


def run(setting: Setting, engines: Engines, folder: Path, seed: str) -> Seen:
    for engine in engines:
        engine.wait_until_idle(IDLE_WITHIN_S)
    with on_cores_of_their_own(engines), configured(setting.config(engines), folder) as router:
        saturation = Saturation(router, engines, seed)
        return asyncio.run(saturation.run(setting.urgent, setting.requests, RATE))


@every_way
def test_urgent_requests_begin_soon(rounds: Rounds, setting: Setting) -> None:
    assert share(rounds, setting, 0.5) <= P50_SHARE
    assert share(rounds, setting, 0.99) <= P99_SHARE


def test_equals_wait_equally(seen: dict[Setting, Seen]) -> None:
    """Only its class makes a request early, not its shape, its client or its time."""
    gap = at(seen[EQUAL].gaps, 0.5)
    assert 1 / NO_GAP <= gap <= NO_GAP, f"{gap:.2f}"


@pytest.mark.parametrize("setting", [QUEUE, BOTH, EQUAL], ids=lambda one: one.name)
def test_waiting_requests_wait_in_the_router(seen: dict[Setting, Seen], setting: Setting) -> None:
    assert max(seen[setting].waiting) <= TARGET + 1
    assert max(seen[NOBODY].waiting) > TARGET + 1, "the engines were not saturated"


def milliseconds(values: Sequence[float], q: float) -> str:
    """A quantile for the table; `-`: on a slow machine no batch stream fits into the window."""
    return f"{1000 * at(values, q):.0f}" if values else "-"


def table(rounds: Rounds) -> str:
    """Benefit and cost of priority, compared with the goals."""
    found = {setting: Seen.of_all(several) for setting, several in rounds.items()}
    rows = [
        [
            *("known to", "TTFT p50, ms", "p99, ms", "batch TPOT p50, ms", "p99, ms"),
            *("batch tokens/s", "preemptions", "waiting at an engine", "at most"),
        ]
    ]
    for setting, one in found.items():
        rows.append(
            [
                setting.name,
                *(f"{1000 * at(one.urgent_s, q):.0f}" for q in (0.5, 0.99)),
                *(milliseconds(one.batch_per_token_s, q) for q in (0.5, 0.99)),
                f"{one.batch_tokens / one.seconds:.0f}",
                str(one.preemptions),
                f"{sum(one.waiting) / len(one.waiting):.1f}",
                str(max(one.waiting)),
            ]
        )
    without, control = found[NOBODY], found[EQUAL]
    p50, p99 = (share(rounds, BOTH, q) for q in (0.5, 0.99))
    gap = at(control.gaps, 0.5)
    return "\n".join(
        [
            f"Urgent requests among batch, two real engines, {datetime.now():%Y-%m-%d %H:%M}",
            *aligned(rows, 1),
            f"{len(without.urgent_s)} urgent requests a row, {len(control.urgent_s)} in the last, "
            f"{RATE:g}/s; {CLIENTS} batch clients",
            f"both against nobody, median of {len(rounds[BOTH])} round(s): "
            f"p50 {p50:.3f} of it (goal {P50_SHARE:.3f} at most), "
            f"p99 {p99:.3f} (goal {P99_SHARE:.3f})",
            f"all of them batch: p50 {gap:.2f} of what the nearest other waits (goal 1)",
        ]
    )
