"""Costs of parts are measured on the real classes, operation by operation."""

from __future__ import annotations

from pathlib import Path

import pytest
import uvloop

from bench.overhead import internal, works
from bench.overhead.parts import PARTS
from bench.overhead.works import Marks


class Pairs(Marks):
    """Counts its own use: every work marks each of its operations."""

    def __init__(self) -> None:
        self.open = 0
        self.pairs = 0

    def begin(self) -> None:
        assert not self.open
        self.open = 1

    def end(self) -> None:
        assert self.open
        self.open = 0
        self.pairs += 1

    def take(self) -> float:
        pairs, self.pairs = self.pairs, 0
        return float(pairs)


@pytest.mark.parametrize("name", works.WORKS)
def test_each_operation_of_a_work_is_marked(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(works, "DEEP", 200)
    differences = ("queue_10", "queue_deeper", "hedging_never", "hedging_armed")

    async def run() -> float:
        work = await works.WORKS[name](tmp_path)
        return await work(Pairs(), 30)

    assert uvloop.run(run()) == (0.0 if name in differences else 1.0)


def test_every_part_is_measured() -> None:
    found, note = internal.measure(blocks=1)
    assert note == ""
    assert found.keys() == {part.name for part in PARTS}
    assert found["internal"] > 0 and found["json_request"] > 0
