"""Arrivals spread over their time slot: in order, in the slot, uniform, equal for a seed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from router.lab.simulator.traffic import Arrival, TraceError
from router.lab.traces import spread as spreading
from router.lab.traces.lines import Lines
from router.lab.traces.spread import is_on_grid, spread


@pytest.fixture
def lines(tmp_path: Path) -> Iterator[Lines]:
    (tmp_path / "f").write_bytes(b"")
    lines = Lines(str(tmp_path / "f"))
    yield lines
    lines.close()


def arrivals(*times: float) -> list[Arrival]:
    return [Arrival(i, at, 1, 1) for i, at in enumerate(times)]


def test_within_the_slot_and_in_the_order_of_the_rows(lines: Lines) -> None:
    times = [3.0 * (i // 7) for i in range(700)]
    found = list(spread(lines, arrivals(*times), 3.0, 1))
    assert [a.number for a in found] == list(range(700))
    assert [a.at for a in found] == sorted(a.at for a in found)
    assert all(0.0 <= a.at - at < 3.0 for a, at in zip(found, times, strict=True))


def test_times_within_a_slot_are_uniform(lines: Lines) -> None:
    found = list(spread(lines, arrivals(*([0.0] * 4000)), 3.0, 1))
    tenths = [sum(0.3 * i <= a.at < 0.3 * (i + 1) for a in found) for i in range(10)]
    assert all(320 < count < 480 for count in tenths)


def test_a_slot_that_is_short_ends_where_the_next_begins(lines: Lines) -> None:
    found = list(spread(lines, arrivals(*([0.0] * 50), 1.0, 1.0), 3.0, 1))
    assert 0.9 < max(a.at for a in found[:50]) < 1.0 <= found[50].at


def test_a_seed_says_it_all(lines: Lines) -> None:
    def times(seed: int) -> list[float]:
        return [a.at for a in spread(lines, arrivals(0, 0, 3, 3), 3.0, seed)]

    assert times(1) == times(1) != times(2)


def test_a_slot_of_everything_is_an_error(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spreading, "GROUP_MAX", 10)
    assert len(list(spread(lines, arrivals(*([0.0] * 10)), 3.0, 1))) == 10
    with pytest.raises(TraceError, match="spread_seed=None"):
        list(spread(lines, arrivals(*([0.0] * 11)), 3.0, 1))


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([0.0, 3.0, 9.0], True),
        ([0.0, 2.999, 6.003, 8.998], True),
        ([27.999, 31.0, 33.999], True),
        ([0.0, 3.0, 4.0], False),
        ([0.0, 3.02], False),
    ],
)
def test_a_grid_is_seen(times: list[float], expected: bool) -> None:
    assert is_on_grid(times, 3.0) is expected
