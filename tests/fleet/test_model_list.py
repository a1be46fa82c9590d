"""The encoded list of models: the complete list, a part of the list, and a single entry."""

from __future__ import annotations

import json

from router.fleet.model_list import ModelList
from tests.fleet.helpers import Table
from tests.fleet.test_table import listed, listing, take_down
from tests.harness.running import scenario


def test_the_whole_a_part_and_one() -> None:
    entries = {name: {"id": name, "n": 1} for name in ("b", "a", "é")}
    models = ModelList(entries)
    assert len(models) == 3
    assert json.loads(models.whole) == {"object": "list", "data": list(entries.values())}
    part = models.part(frozenset({"é", "b", "other"}))
    assert json.loads(part) == {"object": "list", "data": [entries["b"], entries["é"]]}
    assert models.part(frozenset({"é", "b", "other"})) is part
    assert json.loads(models.entry("é") or b"") == entries["é"]
    assert models.entry("other") is None
    assert json.loads(ModelList({}).whole) == {"object": "list", "data": []}


def test_the_parts_that_are_kept_are_few() -> None:
    models = ModelList({str(n): {"id": str(n)} for n in range(100)})
    for n in range(100):
        part = models.part(frozenset({str(n)}))
        assert [entry["id"] for entry in json.loads(part)["data"]] == [str(n)]
    assert len(models._parts) <= 16


@scenario
async def test_it_is_made_anew_when_the_list_changes_and_only_then() -> None:
    table = Table()
    first, second = table.add("a", None), table.add("b", None)
    table.fleet.learned(first, listing("m"))
    before = table.fleet.model_list()
    assert [entry["id"] for entry in listed(table)] == ["m"]
    table.fleet.learned(first, listing("m"))
    table.fleet.rebuild()
    assert table.fleet.model_list() is before
    table.fleet.learned(second, listing("m", "n"))
    assert [entry["id"] for entry in listed(table)] == ["m", "n"]
    shown = {"m": {"id": "m", "max_model_len": 7}}
    table.fleet.learned(first, shown)  # a different list of the same models
    assert listed(table)[0] == shown["m"]
    take_down(table, second)
    assert [entry["id"] for entry in listed(table)] == ["m"]
    table.close()
