"""The encoded list of models: the complete list, a part of the list, and a single entry."""

import json

from policies.allowed import Allowed
from router.config.model import Config, ModelRoute, SplitTarget
from router.fleet.model_list import ModelList
from router.fleet.names import Names
from tests.fleet.helpers import Table
from tests.fleet.table.helpers import listed, listing, take_down


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


def test_it_is_made_anew_when_the_list_changes_and_only_then(table: Table) -> None:
    first, second = table.add("a", None), table.add("b", None)
    table.fleet.probes.learned(first, listing("m"))
    before = table.fleet.listing.of(None)
    assert [entry["id"] for entry in listed(table)] == ["m"]
    table.fleet.probes.learned(first, listing("m"))
    table.fleet.rebuild()
    assert table.fleet.listing.of(None) is before
    table.fleet.probes.learned(second, listing("m", "n"))
    assert [entry["id"] for entry in listed(table)] == ["m", "n"]
    shown = {"m": {"id": "m", "max_model_len": 7}}
    table.fleet.probes.learned(first, shown)  # a different list of the same models
    assert listed(table)[0] == shown["m"]
    take_down(table, second)
    assert [entry["id"] for entry in listed(table)] == ["m"]


def names_in(table: Table, *regions: str) -> list[str]:
    """The models that a key limited to these regions may see."""
    entries = json.loads(table.fleet.listing.of(Allowed(regions)).whole)["data"]
    return [entry["id"] for entry in entries]


def test_a_list_for_some_regions_has_only_their_models(table: Table) -> None:
    eu = table.add("eu-1", ("both", "eu-only"), region="eu")
    us = table.add("us-1", ("both", "us-only"), region="us")
    table.fleet.probes.learned(
        us, {"both": {"id": "both", "root": "us"}, "us-only": {"id": "us-only"}}
    )
    assert names_in(table, "eu") == ["both", "eu-only"]
    assert names_in(table, "us") == ["both", "us-only"]
    assert names_in(table, "eu", "us") == ["both", "eu-only", "us-only"]
    assert names_in(table, "asia") == []
    # The entry of a model is that of a replica in the allowed regions.
    assert table.fleet.listing.of(Allowed(("us",))).entry("both") == (b'{"id":"both","root":"us"}')
    assert b'"root"' not in (table.fleet.listing.of(Allowed(("eu",))).entry("both") or b"")
    eu_list = Allowed(("eu",))
    assert table.fleet.listing.names_text(None, eu_list) == "; served here: `both`, `eu-only`"
    assert table.fleet.listing.names_text({"us-only"}, eu_list) == ""
    take_down(table, eu)
    assert names_in(table, "eu") == []
    assert names_in(table, "us") == ["both", "us-only"]


def test_a_list_for_some_regions_follows_the_fleet(table: Table) -> None:
    replica = table.add("a", ("m",), region="eu")
    table.add("b", ("n",), region="us")
    assert names_in(table, "eu") == ["m"]
    settings = {"region": "us", "url": "http://127.0.0.1:9", "id": "a", "models": ("m",)}
    replica.adopt(type(replica.config)(**settings), table.rules, None)
    table.fleet.rebuild()
    assert names_in(table, "eu") == []
    assert names_in(table, "us") == ["m", "n"]
    for number in range(100):  # operators may configure many sets of regions
        assert names_in(table, "us", f"r{number}") == ["m", "n"]
    assert len(table.fleet.listing._lists) <= 16


def test_an_alias_is_listed_where_its_target_is_served(table: Table) -> None:
    table.add("a", ("m",), region="eu", pool="p")
    table.add("b", ("m", "n"), region="us")
    aliases = {
        "in-pool": ModelRoute(targets=(SplitTarget(model="m", pool="p"),)),
        "other": ModelRoute(targets=(SplitTarget(model="n"),)),
    }
    table.fleet.adopt_names(Names(Config(models=aliases)))
    assert names_in(table, "eu") == ["m", "in-pool"]
    assert names_in(table, "us") == ["m", "n", "other"]
    allowed = Allowed(("us",))
    assert table.fleet.listing.names_text(None, allowed) == "; served here: `m`, `n`, `other`"


def test_the_list_for_clients_of_anthropics_api() -> None:
    entries = {
        "a": {"id": "a", "object": "model", "created": 1732752000, "owned_by": "vllm"},
        "b": {"id": "b"},
        "c": {"id": "c", "created": "yesterday"},
        "d": {"id": "d", "created": 10**30},
        "e": {"id": "e", "created": -1},
    }
    models = ModelList(entries).for_anthropic()
    times = {"a": "2024-11-28T00:00:00Z"}
    shown = [
        {
            "type": "model",
            "id": name,
            "display_name": name,
            "created_at": times.get(name, "1970-01-01T00:00:00Z"),
        }
        for name in entries
    ]
    ends = {"has_more": False, "first_id": "a", "last_id": "e"}
    assert json.loads(models.whole) == {"data": shown, **ends}
    assert json.loads(models.part(frozenset("b"))) == {
        "data": [shown[1]],
        "has_more": False,
        "first_id": "b",
        "last_id": "b",
    }
    assert json.loads(models.entry("c") or b"") == shown[2]
    empty = {"data": [], "has_more": False, "first_id": None, "last_id": None}
    assert json.loads(ModelList({}).for_anthropic().whole) == empty
