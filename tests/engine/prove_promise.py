"""The estimated times to first token on two real engines: coverage and width of their intervals.

    python -m tests.engine.prove_promise FOLDER [MINUTES]

Two vLLM engines, each on a core of its own, behind a router with the shipped configuration. A start
begins with a closed loop, which is not judged: the router learns, and the rate at which the engines
are saturated is measured. Then follow blocks of Poisson arrivals at the shares `LOAD` of this rate,
below and shortly above saturation. Three classes have equal shares, and every request asks for its
estimate. The last phase of a block is so light that the backlog is served while requests arrive.

FOLDER keeps the records of each finished block under the measured commit. A later start measures
the missing blocks; no block begins after MINUTES. Goals, over all blocks together: the 90 %
intervals of each class cover 87 to 93 % of the times, with at least `coverage.LEAST` estimates, and
their median width is at most half of the range from the 5th to the 95th percentile of the times.
The report also has the errors of the predicted TTFT and TPOT, as the router's metrics show them at
the end of each block. It is printed and written to FOLDER/report.txt. Exit status: 0 if all goals
are met, else 1.

Must never leave a block out of the report.
"""

import asyncio
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import fmean
from time import monotonic
from typing import Final

import httpx
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from bench.findings.found import Found
from bench.overhead.goals import Verdict
from bench.promise.coverage import LEAST, Coverage, Stream, columns, coverage, judge
from router.core.text.table import build
from router.observe.log.record import Record
from tests.engine.loads.estimates import CLASSES, Estimated
from tests.engine.loads.halves import prompts
from tests.engine.loads.rounds import logged_pair, wait_for_lines
from tests.engine.machine.fleet import SLOTS, Hedgerow

MINUTES: Final = 40.0
BLOCKS: Final = 12
# Requests of one block, by arrivals as a share of the rate of saturation.
LOAD: Final = {0.6: 60, 0.9: 90, 1.2: 90, 0.5: 60}
BLOCK: Final = sum(LOAD.values())
# The closed loop: more clients than the two engines have slots, so that the queue is used.
CLIENTS, EACH = 3 * SLOTS, 6
WITHIN_S: Final = 600.0  # of the closed loop, and of one block
NAME: Final = "two engines"
KINDS: Final = ("ttft", "tpot", "step")  # of the predictions
_ERRORS: Final = "hedgerow_prediction_error_ratio"


@dataclass(frozen=True, slots=True)
class Block:
    """The results of one block, as plain values."""

    number: int
    rate: float  # requests/s of saturation, measured before
    given: int  # responses with an estimate in their head
    streams: dict[str, list[Stream]]  # by class
    errors: dict[str, float]  # mean absolute errors of predictions by kind, as shares

    @property
    def logged(self) -> int:
        """Streams with an estimate in the access log."""
        return sum(one.estimate_s >= 0.0 for each in self.streams.values() for one in each)


def main(folder: Path, minutes: float = MINUTES) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    commit = subprocess.check_output(["git", "describe", "--always", "--dirty"], text=True).strip()
    kept = folder / f"{commit}.jsonl"
    missing = [
        number for number in range(BLOCKS) if number not in {one.number for one in read(kept)}
    ]
    if missing:
        measure(folder, kept, missing, monotonic() + 60.0 * minutes)
    blocks = read(kept)
    found = judged(blocks)
    report = f"{commit}, {datetime.now():%Y-%m-%d}\n\n{found.text([found])}"
    (folder / "report.txt").write_text(report)
    print(report)
    return 0 if holds(found.verdicts) else 1


def read(kept: Path) -> list[Block]:
    """The finished blocks of a file."""
    if not kept.exists():
        return []
    decode = msgspec.json.Decoder(Block).decode
    return [decode(line) for line in kept.read_bytes().splitlines()]


def written_line(block: Block) -> bytes:
    """A block as a line of the file that `read` reads."""
    return msgspec.json.encode(block) + b"\n"


def measure(folder: Path, kept: Path, missing: Sequence[int], until: float) -> None:
    """Run the missing blocks; append each to `kept`. No block begins after `until`, in monotonic
    seconds.
    """
    log = folder / "access.log"
    with logged_pair(folder, log) as router:
        rate = warmed(router, log, CLIENTS, EACH)
        for number in missing:
            if monotonic() >= until:
                break
            block = measured(router, log, number, rate, LOAD)
            with kept.open("ab") as file:
                file.write(written_line(block))


def warmed(router: Hedgerow, log: Path, clients: int, each: int) -> float:
    """Run the closed loop. Returns the requests per second of the saturated engines."""
    name = f"warm-up {monotonic()}"
    run = Estimated(router.url, name, prompts(name))
    rate = asyncio.run(run.saturate(clients, each, WITHIN_S))
    assert not run.failed, run.failed[:5]
    records(log, clients * each)
    return rate


def measured(
    router: Hedgerow, log: Path, number: int, rate: float, load: dict[float, int]
) -> Block:
    """Run one block of `load` through a warm router whose access log is `log`."""
    before = len(lines(log))
    run = Estimated(router.url, f"block {number}", prompts(f"block {number}"))
    asyncio.run(run.arrive(rate, load, WITHIN_S))
    assert not run.failed, run.failed[:5]
    found = records(log, before + sum(load.values()))[before:]
    page = httpx.get(f"{router.admin}/metrics", timeout=10.0).text
    return Block(number, rate, run.given, streams(found), errors(page))


def lines(log: Path) -> list[bytes]:
    """The complete lines of an access log that may not exist yet."""
    return log.read_bytes().splitlines() if log.exists() else []


def records(log: Path, count: int) -> list[Record]:
    """The records of an access log as soon as there are `count`."""
    wait_for_lines(log, count)
    decode = msgspec.json.Decoder(Record).decode
    return [decode(line) for line in lines(log)]


def streams(found: Iterable[Record]) -> dict[str, list[Stream]]:
    """The streams of each class. Raises ValueError for a stream without a first token."""
    by_class: dict[str, list[Stream]] = {name: [] for name in CLASSES}
    for record in found:
        if record.ttft_ms is None:
            raise ValueError(f"no first token: {record}")
        given = record.ttft_estimate_ms, record.ttft_low_ms, record.ttft_high_ms
        estimate, low, high = (-1.0 if one is None else one / 1000.0 for one in given)
        by_class[record.priority].append(Stream(record.ttft_ms / 1000.0, estimate, low, high))
    return by_class


def errors(page: str) -> dict[str, float]:
    """The mean absolute errors of the predictions in a page of metrics, by kind, as shares."""
    return {
        sample.labels["kind"]: sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == _ERRORS
    }


# -- the report -----------------------------------------------------------------------------------


def judged(blocks: Sequence[Block]) -> Found:
    """The table and the verdicts over all blocks together."""
    rows = rows_of(blocks)
    return Found(
        "Estimated times to first token on two real engines",
        f"{len(blocks)} of {BLOCKS} blocks of {BLOCK} requests, at {_words()} of the rate of "
        f"saturation ({_rates(blocks)}); the closed loop of {CLIENTS * EACH} requests before is "
        "not judged. Times as logged by the router. Range: from the 5th to the 95th percentile of "
        "the class.",
        build(rows, columns()),
        remarks=[_prediction_words(blocks)],
        verdicts=verdicts(rows, blocks),
    )


def rows_of(blocks: Sequence[Block]) -> list[Coverage]:
    return [
        coverage(NAME, name, [one for block in blocks for one in block.streams[name]])
        for name in CLASSES
    ]


def verdicts(rows: Sequence[Coverage], blocks: Sequence[Block]) -> list[Verdict]:
    """The goals of `bench promise`, enough estimates of each class, and each estimate sent."""
    fewest = min(row.estimated for row in rows)
    unsent = sum(abs(block.logged - block.given) for block in blocks)
    return [
        *judge(rows),
        Verdict(
            f"{NAME}: estimates of each class",
            f"{LEAST} at least",
            -LEAST,
            -fewest,
            reached=str(fewest),
        ),
        Verdict(f"{NAME}: estimates that no client got", "0", 0.0, unsent, reached=str(unsent)),
    ]


def holds(found: Sequence[Verdict]) -> bool:
    return all(verdict.met for verdict in found)


def _words() -> str:
    return ", ".join(f"{share:.0%}" for share in LOAD)


def _rates(blocks: Sequence[Block]) -> str:
    found = sorted({block.rate for block in blocks})
    return ", ".join(f"{rate:.2f}/s" for rate in found) or "not measured"


def _prediction_words(blocks: Sequence[Block]) -> str:
    shown = []
    for kind in KINDS:
        values = [block.errors[kind] for block in blocks if kind in block.errors]
        mean = f"{100.0 * fmean(values):.1f} %" if values else "not measured"
        shown.append(f"{kind} {mean}")
    return f"Mean absolute error of predictions, at the ends of the blocks: {', '.join(shown)}"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *map(float, sys.argv[2:])))
