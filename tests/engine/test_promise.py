"""The estimated times to first token on two real engines, for a short time, and their report.

`make prove-promise` judges coverage and width by thousands of requests. Here the intervals only
have to contain most of the times without being as wide as all of them.
"""

import asyncio
import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from bench.promise.coverage import Stream
from tests.engine.loads.estimates import CLASSES, Estimated, middle_rate
from tests.engine.machine.cores import on_cores_of_their_own
from tests.engine.machine.fleet import SLOTS, Engine, configured
from tests.engine.prove_promise import Block, errors, holds, judged, lines, records, streams

CLIENTS, EACH = 3 * SLOTS, 6
LOAD = {0.6: 60, 0.9: 60, 1.2: 60, 0.5: 30}  # requests by arrivals as a share of saturation
WITHIN_S = 120.0
COVERED = 0.7  # the goal of thousands of requests is 0.87


def short_prompts() -> Iterator[tuple[str, int]]:
    """Prompts of 100 to 300 tokens, which are characters here, and 4 to 8 output tokens."""
    for number in count():
        yield f"short {number} ".ljust(100 + number % 5 * 50, "x"), 4 + number % 5


def test_streams_begin_within_their_intervals(
    engines: tuple[Engine, Engine], tmp_path: Path
) -> None:
    log = tmp_path / "access.log"
    settings = {
        "replicas": [engine.url for engine in engines],
        "access_log": {"path": str(log)},
        "prefix": {"block_bytes": 64},
    }
    with on_cores_of_their_own(engines), configured(settings, tmp_path) as router:
        warm, run = (Estimated(router.url, name, short_prompts()) for name in ("warm", "judged"))
        rate = asyncio.run(warm.saturate(CLIENTS, EACH, WITHIN_S))
        records(log, CLIENTS * EACH)
        asyncio.run(run.arrive(rate, LOAD, WITHIN_S))
        found = records(log, CLIENTS * EACH + sum(LOAD.values()))
    assert warm.failed == run.failed == []
    by_class = streams(found[CLIENTS * EACH :])
    given = [one for each in by_class.values() for one in each if one.estimate_s >= 0.0]
    assert [len(by_class[name]) for name in CLASSES] == [sum(LOAD.values()) // 3] * 3
    assert run.given == len(given), "each estimate is in the head of its response"
    assert len(given) >= sum(LOAD.values()) / 2
    assert all(0.0 < one.low_s <= one.estimate_s <= one.high_s for one in given)
    covered = sum(one.low_s <= one.ttft_s <= one.high_s for one in given) / len(given)
    ttfts = sorted(one.ttft_s for one in given)
    widths = sorted(one.high_s - one.low_s for one in given)
    print(f"\n{rate:.1f} requests/s, {len(given)} estimates, {covered:.0%} within their intervals")
    assert covered >= COVERED
    assert widths[len(widths) // 2] < ttfts[-1] - ttfts[0]


# -- the report ------------------------------------------------------------------------------


def logged(number: int, **fields: object) -> bytes:
    record = {"ts": 1.0, "class": CLASSES[number % 3], "ttft_ms": 200.0, **fields}
    return json.dumps(record).encode() + b"\n"


def test_the_streams_of_a_log_are_read_by_class(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    assert lines(log) == []
    given = {"ttft_estimate_ms": 190.0, "ttft_low_ms": 150.0, "ttft_high_ms": 300.0}
    log.write_bytes(logged(0, **given) + logged(1))
    high, normal, low = streams(records(log, 2)).values()
    assert (high, low) == ([Stream(0.2, 0.19, 0.15, 0.3)], [])
    assert normal[0].ttft_s == 0.2 and normal[0].estimate_s < 0.0
    log.write_bytes(logged(0, ttft_ms=None))
    with pytest.raises(ValueError, match="no first token"):
        streams(records(log, 1))


def test_the_errors_of_predictions_are_read_by_kind() -> None:
    page = "# TYPE hedgerow_prediction_error_ratio gauge\n"
    page += 'hedgerow_prediction_error_ratio{model="tiny",kind="ttft"} 0.25\n'
    page += "# TYPE other gauge\nother 3\n"
    assert errors(page) == {"ttft": 0.25}


def block(ttfts_s: list[float], given: int) -> Block:
    """A block in which each class has these times, with an interval from 1 to 2 s for each."""
    each = [Stream(ttft_s, 1.5, 1.0, 2.0) for ttft_s in ttfts_s]
    return Block(0, 3.0, given, dict.fromkeys(CLASSES, each), {"ttft": 0.2})


@pytest.mark.parametrize(
    ("found", "is_met"),
    [
        (block([0.1] * 60 + [1.5] * 880 + [9.0] * 60, 3000), True),
        (block([0.1] * 100 + [1.5] * 800 + [9.0] * 100, 3000), False),  # coverage
        (block([1.5] * 950 + [9.0] * 50, 3000), False),  # covers too much
        (block([0.9] * 60 + [1.5] * 880 + [2.1] * 60, 3000), False),  # too wide
        (block([0.1] * 54 + [1.5] * 891 + [9.0] * 54, 2997), False),  # too few
        (block([0.1] * 60 + [1.5] * 880 + [9.0] * 60, 2999), False),  # not sent to its client
    ],
)
def test_each_goal_can_be_missed(found: Block, is_met: bool) -> None:
    result = judged([found])
    assert holds(result.verdicts) is is_met
    assert "ttft 20.0 %, tpot not measured" in result.remarks[0]


def test_the_ends_of_a_closed_loop_do_not_count() -> None:
    assert middle_rate([0.0, 5.0, *(10.0 + 0.5 * n for n in range(6)), 30.0, 90.0]) == 2.0
    with pytest.raises(ValueError, match="too few"):
        middle_rate([1.0, 2.0])
