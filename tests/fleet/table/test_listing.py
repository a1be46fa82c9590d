"""The list of models that clients see."""

from router.core.errors import Reason
from tests.fleet.helpers import Table
from tests.fleet.table.helpers import listed, listing, refusal, take_down


def test_configured_models_stand_whatever_the_replica_lists(table: Table) -> None:
    replica = table.add("a", ("m",))
    table.fleet.probes.learned(replica, listing("m", "hidden"))
    assert refusal(lambda: table.ids("hidden")).reason is Reason.MODEL_NOT_FOUND
    assert [entry["id"] for entry in listed(table)] == ["m"]


def test_models_are_listed_once_as_their_replica_shows_them(table: Table) -> None:
    first, _, _ = table.add("a", None), table.add("b", ("m", "z")), table.add("c", None)
    table.fleet.probes.learned(first, listing("m", "x"))
    entries = {entry["id"]: entry for entry in listed(table)}
    assert sorted(entries) == ["m", "x", "z"]
    assert entries["m"]["owned_by"] == "engine"
    assert entries["z"]["object"] == "model"
    take_down(table, first)
    assert sorted(entry["id"] for entry in listed(table)) == ["m", "z"]
