"""The results of attempts: ejections, and what does not count against a replica."""

from time import monotonic

import pytest

from router.core.errors import Reason
from router.fleet.replica import UNLIMITED
from tests.fleet.helpers import Table
from tests.fleet.table.helpers import eject
from tests.harness.replica import eventually
from tests.harness.running import run_bounded, scenario


@scenario
async def test_a_failing_replica_is_ejected_then_tried_then_trusted() -> None:
    table = Table(eject_base_s=0.02, slow_start_s=0)
    table.add("a")
    replica = table.add("b")
    eject(table, replica)
    assert table.ids("m") == ["a"]
    assert replica.state(monotonic()) == "ejected"
    await eventually(lambda: replica.health.half_open, "the trial")
    assert table.ids("m") == ["a", "b"]
    assert replica.limit == 1
    lease = table.lease(replica)
    assert table.ids("m") == ["a"]
    table.fleet.outcomes.succeeded(replica)
    lease.release()
    assert replica.limit == UNLIMITED
    assert table.ids("m") == ["a", "b"]
    names = [what for what, _ in table.events]
    assert names == ["ejected", "half_open", "recovered"]
    await eventually(lambda: not table.sweeper.parties, "no timer left")
    table.close()


def test_only_what_speaks_against_a_replica_counts() -> None:
    table = Table(eject_after=1)
    table.add("a")
    replica = table.add("b")
    for reason in (Reason.REPLICA_BUSY, Reason.CLIENT_GONE, Reason.NO_FILES, Reason.NO_PORTS):
        for _ in range(10):
            table.fleet.outcomes.failed(replica, reason)
    assert table.ids("m") == ["a", "b"]


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("count", [1, 2, 3, 10])
def test_at_most_a_share_is_ejected_and_one_always_stays(share: float, count: int) -> None:
    async def body() -> None:
        table = Table(eject_share=share)
        replicas = [table.add(f"r{n}") for n in range(count)]
        for replica in replicas:
            eject(table, replica)
        ejected = count - len(table.fleet.serving.ready)
        assert ejected <= max(1, int(count * share))
        assert table.fleet.serving.ready, "one replica always stays"
        table.close()

    run_bounded(body, 10.0)


def test_a_first_token_bounds_the_round_trip(table: Table) -> None:
    """Slow probes make the distance too long. No token comes sooner than a round trip takes."""
    far = table.add("far", region="us")
    far.timed(0.5, table.clock())
    for ttft_s, is_timed, found in ((0.8, True, 0.5), (0.1, False, 0.5), (0.3, True, 0.3)):
        table.fleet.outcomes.showed_content(far, 1.0, 0.0, ttft_s, 10, is_timed=is_timed)
        assert far.speed.rtt_s == found
    table.fleet.outcomes.showed_content(far, 1.0, 0.0, None, 10)
    assert far.speed.rtt_s == 0.3
