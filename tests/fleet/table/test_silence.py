"""Silent replicas: a late token makes a replica suspect, and a timeout counts as its failure."""

import pytest

from router.core.errors import Reason
from tests.fleet.helpers import Table


@pytest.mark.parametrize(
    ("is_streamed", "lacks"), [(True, "no first token for 7.0 s"), (False, "no answer for 7.0 s")]
)
def test_an_overdue_token_is_looked_at_again_while_the_replica_works(
    is_streamed: bool, lacks: str, table: Table
) -> None:
    fleet, least_s = table.fleet, table.rules.suspect_min_s
    replica = table.add("a")
    table.add("b")
    sent = fleet.clock()
    now = sent + least_s
    replica.progress.at = sent + 2.0
    assert fleet.outcomes.works_until(replica, sent, now, True) == sent + 2.0 + least_s
    now = sent + 2.0 + least_s
    table.clock = lambda: now
    assert fleet.outcomes.works_until(replica, sent, now, True) == now
    fleet.outcomes.overdue(replica, sent, now, is_streamed)
    assert table.events == [("suspect", "a")]
    assert replica.why(now).startswith(f"suspect: {lacks}")
    assert table.ids("m") == ["b"]
    replica.progress.at = now + 1.0  # a token of another stream
    now += 1.0
    fleet.on_deadline(now)
    assert table.ids("m") == ["a", "b"]


@pytest.mark.parametrize("reason", [Reason.TTFT_TIMEOUT, Reason.TOKEN_GAP_TIMEOUT])
def test_a_timeout_counts_only_against_a_silent_replica(reason: Reason) -> None:
    table = Table(eject_after=100)
    fleet = table.fleet
    replica = table.add("a")
    now = fleet.clock()
    table.clock = lambda: now
    replica.progress.at = now - 1.0
    fleet.outcomes.failed(replica, reason, now - 60.0, now - 60.0)
    assert replica.health.failures == 0
    fleet.outcomes.failed(replica, reason, now - 60.0, now - 1.0)  # this request's own content
    assert replica.health.failures == 1
    replica.progress.at = now - 2.0 * table.rules.suspect_min_s
    fleet.outcomes.failed(replica, reason, now - 60.0, now - 60.0)
    assert replica.health.failures == 2
