"""Several ranks behind one address: what they share, and what each has for itself."""

from typing import Any
from unittest.mock import Mock

import pytest

from router.core.build import is_compiled
from router.core.errors import Reason
from router.dispatch.hedging.backups import same_engine
from router.fleet.engines.common.base import MOST_RANKS
from router.fleet.membership import Duty
from router.fleet.replica import Replica
from router.fleet.signals import Signals
from tests.fleet.helpers import Table

ENTRIES: dict[str, dict[str, Any]] = {"m": {"id": "m", "max_model_len": 4096, "parent": None}}


def ids(*replicas: Replica) -> list[str]:
    return [replica.id for replica in replicas]


def test_each_rank_is_a_replica_with_a_header_of_its_own(table: Table) -> None:
    lead = table.add("a", data_parallel_ranks=3)
    fleet = table.fleet
    assert ids(*fleet.serving.of("m", None)) == ["a", "a@1", "a@2"]
    assert [r.rank_line for r in lead.ranks] == [
        b"\r\nx-data-parallel-rank: %d" % rank for rank in range(3)
    ]
    assert ids(*fleet.members) == ["a"]
    assert len({r.endpoint.pool for r in lead.ranks}) == 1, "one address, one pool"
    assert all(r.ranks == lead.ranks for r in lead.ranks)


def test_the_number_of_ranks_follows_the_metrics(table: Table) -> None:
    lead, other = table.add("a"), table.add("b")
    fleet = table.fleet
    fleet.set_ranks(lead, 3)
    assert ids(*fleet.serving.ready) == ["a", "b", "a@1", "a@2"]
    second, third = lead.ranks[1:]
    lease = table.lease(third)
    fleet.set_ranks(lead, 2)
    assert ids(*fleet.serving.ready) == ["a", "b", "a@1"]
    assert lead.ranks == (lead, second), "the ranks that stay keep their state"
    assert third in fleet.leaving
    lease.release()
    fleet.attempt_ended(third)
    assert third not in fleet.leaving
    assert not lead.pool._closed
    fleet.remove("a")
    assert ids(*fleet.serving.ready) == ["b"]
    assert lead.pool._closed and not other.pool._closed
    fleet.set_ranks(lead, 4)
    assert ids(*fleet.replicas.values()) == ["b"]


def test_ranks_get_other_numbers(table: Table) -> None:
    """Ranks with other numbers are other engines, so they are made again."""
    lead, fleet = table.add("a"), table.fleet
    fleet.set_ranks(lead, 3, 4)
    assert ids(*lead.ranks) == ["a", "a@5", "a@6"]
    assert [r.rank_line[-2:] for r in lead.ranks] == [b" 4", b" 5", b" 6"]
    lease = table.lease(lead.ranks[1])
    before = lead.ranks
    fleet.set_ranks(lead, 3)
    fleet.set_ranks(lead, 3, 4)
    assert lead.ranks is before, "nothing has changed"
    fleet.set_ranks(lead, 2, 0)
    assert ids(*fleet.replicas.values()) == ["a", "a@1"]
    assert [r.rank_line[-2:] for r in lead.ranks] == [b" 0", b" 1"]
    assert fleet.leaving == {before[1]}
    lease.release()
    fleet.attempt_ended(before[1])
    fleet.set_ranks(lead, 1, 5)
    assert ids(*fleet.replicas.values()) == ["a"]


def test_ranks_are_different_engines_and_the_ones_that_left_are_forgotten(table: Table) -> None:
    lead = table.add("a")
    fleet = table.fleet
    for moments in ((0.0,), (5.0, 9.0)):  # The engine reports no start time; the engine restarts.
        fleet.set_ranks(lead, 3)
        for moment in moments:
            for rank in lead.ranks:
                signals = Signals(running=0, waiting=0, started_at=moment)
                fleet.polls.observed(rank, signals, 1, moment)
            pairs = [(one, other) for one in lead.ranks for other in lead.ranks if one is not other]
            assert not any(same_engine(one, other) for one, other in pairs)
        left = lead.ranks[1:]
        fleet.set_ranks(lead, 1)
        assert not lead.reports.apart and not any(rank.reports.apart for rank in left)


def test_the_number_of_ranks_is_limited(table: Table) -> None:
    lead = table.add("a")
    table.fleet.set_ranks(lead, MOST_RANKS + 1)
    assert len(lead.ranks) == len(table.fleet.replicas) == MOST_RANKS
    before = lead.ranks
    table.fleet.set_ranks(lead, MOST_RANKS + 2)
    assert lead.ranks is before, "nothing has changed"


def test_probes_models_and_duties_are_those_of_the_address() -> None:
    table = Table(fall=1, rise=1)
    lead = table.add("a", None, is_new=True, data_parallel_ranks=2)
    fleet = table.fleet
    fleet.probes.learned(lead, ENTRIES)
    fleet.probes.probed(lead, True)
    assert ids(*fleet.serving.of("m", None)) == ["a", "a@1"]
    assert all(r.listed.lengths.of("m") == 4096 for r in lead.ranks)
    lead.timed(0.25, fleet.clock())
    assert all(r.speed.rtt_s == lead.speed.rtt_s > 0.0 for r in lead.ranks)
    fleet.set_duty(lead, Duty.CORDONED)
    assert not fleet.serving.ready
    fleet.set_duty(lead, Duty.IN_SERVICE)
    fleet.set_standby({"a"})
    assert not fleet.serving.ready
    fleet.set_standby(())
    fleet.probes.probed(lead, False)
    assert not fleet.serving.ready


def test_a_refused_connection_counts_against_all_ranks() -> None:
    table = Table(eject_after=2, eject_share=1.0)
    lead, _ = table.add("a", data_parallel_ranks=3), table.add("b")
    fleet = table.fleet
    for _ in range(2):
        fleet.outcomes.failed(lead.ranks[1], Reason.CONNECT_FAILED)
    assert ids(*fleet.serving.ready) == ["b"]


def test_a_rank_that_loses_requests_is_ejected_alone() -> None:
    table = Table(eject_after=2)
    lead = table.add("a", data_parallel_ranks=3)
    fleet = table.fleet
    for _ in range(2):
        fleet.outcomes.failed(lead.ranks[1], Reason.REPLICA_RESET)
    assert ids(*fleet.serving.ready) == ["a", "a@2"]


@pytest.mark.skipif(is_compiled(), reason="a compiled replica takes no other pool")
def test_waiting_requests_leave_the_connections_with_the_last_rank() -> None:
    table = Table(eject_after=1, eject_share=1.0, fall=1)
    lead, _ = table.add("a", data_parallel_ranks=2), table.add("b")
    calls: list[str] = []
    pool = Mock(give_up=lambda: calls.append("give up"))
    for rank in lead.ranks:
        rank.endpoint.pool = pool
    fleet = table.fleet
    fleet.outcomes.failed(lead.ranks[1], Reason.REPLICA_RESET)
    assert not calls, "the other rank uses the connections"
    fleet.outcomes.failed(lead, Reason.REPLICA_RESET)
    assert len(calls) == 1
    fleet.probes.probed(lead, False)
    assert len(calls) == 2


def test_a_change_of_the_number_is_reported(table: Table) -> None:
    lead = table.add("a")
    told: list[tuple[str, list[str]]] = []
    table.fleet.hooks.ranks = lambda replica, left: told.append((replica.id, ids(*left)))
    table.fleet.set_ranks(lead, 3)
    table.fleet.set_ranks(lead, 3)
    table.fleet.set_ranks(lead, 1)
    assert told == [("a", []), ("a", ["a@1", "a@2"])]


def test_load_and_prefixes_are_those_of_the_rank(table: Table) -> None:
    lead = table.add("a", data_parallel_ranks=2)
    fleet = table.fleet
    one = lead.ranks[1]
    fleet.polls.observed(lead, Signals(running=1, waiting=0, kv_usage=0.1), 1, 1.0)
    fleet.polls.observed(one, Signals(running=9, waiting=4, kv_usage=0.9), 1, 1.0)
    assert (lead.load, one.load) == (1, 13)
    assert (lead.kv_polled, one.kv_polled) == (0.1, 0.9)
    fleet.knowledge.sent(one, (1, 2, 3), 0)
    assert set(fleet.knowledge.prefixes.match((1, 2, 3))) == {one}


def test_a_reload_that_moves_the_address_keeps_its_ranks(table: Table) -> None:
    lead = table.add("a")
    fleet = table.fleet
    fleet.set_ranks(lead, 3)
    successor = table.make("a")
    successor.continues(lead)
    fleet.change(["a"], [successor])
    assert ids(*fleet.serving.ready) == ["a", "a@1", "a@2"]
    assert fleet.replicas["a@1"] is successor.ranks[1] is not lead.ranks[1]
    assert all(r.endpoint.pool is successor.endpoint.pool for r in successor.ranks)
