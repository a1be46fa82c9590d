"""The demand and the fleet from access logs."""

from pathlib import Path

import pytest

from router.lab.plan.observed import Place
from router.lab.plan.sources import access_logs
from router.lab.plan.sources.access_logs import OTHER, Windows, read, split
from router.lab.plan.types_file import parse
from tests.lab.plan.logs import EPOCH, OUTPUT, PROMPT, lines, write

TYPES = parse("types: [{name: gpu, cost: 1, regions: [eu, us], models: {'*': {throughput: 1000}}}]")


def test_the_demand_of_each_region_is_counted(tmp_path: Path) -> None:
    eu = write(tmp_path / "eu.log", lines(6, lambda n: 10 + n))
    us = write(tmp_path / "us.log", lines(6, lambda n: 5, model="x", replicas=1))
    observed, types = read([f"eu={eu}", f"us={us}"], 900.0, 2.0, TYPES)
    assert types is TYPES
    assert observed.begin_s == EPOCH + 900.0
    assert observed.now_s == EPOCH + 5 * 900.0
    assert observed.demand[Place("m", "eu")].requests == [11.0, 12.0, 13.0, 14.0]
    series = observed.demand[Place("x", "us")]
    assert (series.prompt, series.output) == ([5.0 * PROMPT] * 4, [5.0 * OUTPUT] * 4)
    assert observed.running == {Place("m", "eu"): {"gpu": 2}, Place("x", "us"): {"gpu": 1}}
    assert observed.tokens_per_s(Place("x", "us")) == pytest.approx(5 * 1000 / 900.0)


def test_cached_tokens_are_no_demand(tmp_path: Path) -> None:
    log = write(tmp_path / "a.log", lines(4, lambda n: 1, cached_tokens=PROMPT - 50))
    observed, _ = read([log], 900.0, 2.0, TYPES)
    assert observed.demand[Place("m")].prompt == [50.0, 50.0]


def test_without_types_the_throughput_is_measured(tmp_path: Path) -> None:
    log = write(tmp_path / "a.log", lines(8, lambda n: 90 if n == 4 else 60, replicas=3))
    observed, types = read([log], 900.0, 2.0, None)
    speed = types.types[0].speed("m")
    assert speed is not None
    assert speed.throughput == pytest.approx(90 * 1000 / 900.0 / 3)
    assert observed.throughput["m"].busiest == 90


def test_a_log_that_measures_nothing_is_refused(tmp_path: Path) -> None:
    log = write(tmp_path / "a.log", lines(8, lambda n: 60, ttft_ms=5000.0))
    with pytest.raises(ValueError, match=r"cannot be measured.*--types"):
        read([log], 900.0, 2.0, None)


def test_a_queue_at_the_end_is_seen(tmp_path: Path) -> None:
    rows = list(lines(6, lambda n: 5))
    for row in rows:
        if row["ts"] >= EPOCH + 4 * 900.0:  # the last complete window, and the incomplete one
            row["queue_ms"] = 3000.0
    log = write(tmp_path / "a.log", iter(rows))
    # Five requests waited for three seconds each of the 900.
    assert read([log], 900.0, 2.0, TYPES)[0].waiting == {Place("m"): pytest.approx(15.0 / 900.0)}
    for row in rows:
        row["queue_ms"] = 3000.0 if row["ts"] < EPOCH + 3 * 900.0 else None
    log = write(tmp_path / "b.log", iter(rows))
    assert read([log], 900.0, 2.0, TYPES)[0].waiting == {Place("m"): 0.0}


def test_a_log_without_replicas_has_an_unknown_fleet(tmp_path: Path) -> None:
    rows = [{**row, "replica": "", "attempts": []} for row in lines(4, lambda n: 10)]
    observed, _ = read([write(tmp_path / "a.log", iter(rows))], 900.0, 2.0, TYPES)
    assert observed.running is None
    assert observed.demand[Place("m")].requests == [10.0] * 2


def test_replicas_of_no_type_are_noted(tmp_path: Path) -> None:
    rows = list(lines(4, lambda n: 10))
    for row in rows:
        if row["replica"] == "gpu-1":
            row["replica_type"] = "b"
    log = write(tmp_path / "a.log", iter(rows))
    observed, _ = read([log], 900.0, 2.0, TYPES)
    assert observed.running == {Place("m"): {"gpu": 1}}
    assert "no type for 1 replicas, such as gpu-1" in observed.notes[-1]


def test_demand_is_in_the_clients_region_and_a_replica_in_its_own(tmp_path: Path) -> None:
    rows = list(lines(4, lambda n: 10, region="eu"))
    for row in rows:
        if row["replica"] == "gpu-1":  # the region us was full
            row["client_region"] = "us"
    log = write(tmp_path / "a.log", iter(rows))
    for given in (log, f"asia={log}"):
        observed, _ = read([given], 900.0, 2.0, TYPES)
        assert observed.demand[Place("m", "eu")].requests == [5.0, 5.0]
        assert observed.demand[Place("m", "us")].requests == [5.0, 5.0]
        assert observed.running == {Place("m", "eu"): {"gpu": 2}}


def test_only_a_share_of_batch_is_demand_and_its_wait_is_no_queue(tmp_path: Path) -> None:
    log = write(tmp_path / "a.log", lines(4, lambda n: 20, queue_ms=9e5, **{"class": "batch"}))
    observed, _ = read([log], 900.0, 2.0, TYPES)
    series = observed.demand[Place("m")]
    assert series.requests == [20.0, 20.0]
    assert series.prompt == pytest.approx([2.0 * PROMPT] * 2)
    assert series.output == pytest.approx([2.0 * OUTPUT] * 2)
    assert observed.waiting == {}
    _, measured = read([log], 900.0, 2.0, None)
    speed = measured.types[0].speed("m")
    assert speed is not None and speed.throughput == pytest.approx(20 * 1000 / 900.0 / 2)


def test_a_name_with_an_equals_sign_may_be_a_file(tmp_path: Path) -> None:
    file = tmp_path / "eu=x.log"
    file.write_text("")
    assert split(str(file)) == ("", str(file))
    assert split("eu=x.log") == ("eu", "x.log")
    assert split("x.log") == ("", "x.log")


PLACE = Place("m", "eu")


def test_requests_and_tokens_are_summed_by_window() -> None:
    counted = Windows(60.0)
    for at in (30.0, 60.0, 119.9, 130.0, 250.0):
        counted.add(PLACE, at, 1.0, 10.0, 5.0)
    # Window 0 and window 4 are incomplete.
    assert counted.bounds() == (1, 4)
    series = counted.series()[PLACE]
    assert series.requests == [2.0, 1.0, 0.0]
    assert series.tokens == [30.0, 15.0, 0.0]
    assert series.prompt_share(2) == pytest.approx(2 / 3)


def test_windows_begin_at_multiples_of_their_length_also_before_zero() -> None:
    counted = Windows(60.0)
    for at in (-61.0, -60.0, -1.0, 1.0):
        counted.add(PLACE, at, 1.0, 0.0, 0.0)
    assert counted.bounds() == (-1, 0)
    assert counted.series()[PLACE].requests == [2.0]


def test_the_numbers_of_places_and_windows_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_logs, "PLACES_MAX", 1)
    monkeypatch.setattr(access_logs, "WINDOWS_MAX", 10)
    counted = Windows(60.0)
    counted.add(counted.place("m", "eu"), 0.0, 1.0, 1.0, 1.0)
    assert counted.place("m", "eu") == PLACE
    assert counted.place("n", "eu") == Place(OTHER, "eu")
    with pytest.raises(ValueError, match="longer --window"):
        counted.add(PLACE, 601.0, 1.0, 1.0, 1.0)
