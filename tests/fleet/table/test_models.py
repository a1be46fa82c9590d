"""The models of a fleet: replicas that list none, and models that are remembered."""

from router.core.errors import Reason
from router.fleet.engines.common.models import MODELS_MOST
from tests.fleet.helpers import Table
from tests.fleet.table.helpers import listing, refusal


def test_a_replica_that_lists_no_models_serves_any_where_none_does(table: Table) -> None:
    unlisted = table.add("unlisted", None)
    table.add("another", None)
    assert table.ids("anything") == ["another", "unlisted"]
    assert table.ids(None) == ["another", "unlisted"]
    assert table.fleet.models.of(unlisted) is None
    table.add("lists", ("m",))
    assert table.ids("m") == ["lists"]
    assert table.ids(None) == ["lists"]
    assert refusal(lambda: table.ids("anything")).reason is Reason.MODEL_NOT_FOUND
    assert unlisted.state(0.0) == "unknown"
    assert table.events == [("lists no models", "unlisted"), ("lists no models", "another")]
    table.fleet.probes.learned(unlisted, listing("m"))
    assert table.ids("m") == ["lists", "unlisted"]
    assert unlisted.state(0.0) == "ready"


def test_the_memory_of_models_is_bounded(table: Table) -> None:
    replica = table.add("a", None)
    table.fleet.probes.learned(replica, listing(*map(str, range(MODELS_MOST))))
    assert len(table.fleet.models.known) == 10_000
    assert table.events == [("models_left_out", "a")]
