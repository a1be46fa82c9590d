"""Gate, routing policies and hedger agree whether a replica's KV cache is full."""

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import pytest

from policies.contract import Context, RequestView, make_policy
from router.admission.gates.gate import OBSTACLES, Facts, obstacle as closes
from router.admission.rules import Rules
from router.config.model import Config, Hedging
from router.core.lease import Lease, poll_begins
from router.core.urgency import NORMAL
from router.dispatch.hedging.backups import obstacle
from router.fleet.replica import Replica
from router.fleet.signals import Signals
from router.fleet.table.fleet import Fleet
from router.observe.hedge_counts import Refusal
from tests.fleet.helpers import Table
from tests.harness.running import scenario

NOW = 1000.0
KV_TOKENS = 100_000
RULES = Rules(Config()).classes[NORMAL]
VIEW = RequestView(model="m", stream=True, prompt_tokens=100)


def begun(replica: Replica, count: int, tokens: int = 0) -> list[Lease]:
    leases = [Lease(replica, tokens) for _ in range(count)]
    for lease in leases:
        lease.begun()
    return leases


def poll(fleet: Fleet, replica: Replica, usage: float, running: int) -> None:
    signals = Signals(running=running, waiting=0, kv_usage=usage, kv_tokens=KV_TOKENS)
    fleet.polls.observed(replica, signals, poll_begins(replica, NOW), NOW)


@contextmanager
def two() -> Iterator[tuple[Table, Replica, Replica]]:
    """A replica to judge, and a busier one whose cache is half full."""
    table = Table()
    replica, other = table.add("a"), table.add("b")
    leases = begun(other, 20)
    poll(table.fleet, other, 0.5, 20)
    yield table, replica, other
    for lease in leases:
        lease.release()
    table.close()


def gate(replica: Replica) -> str:
    facts = Facts()
    facts.slots = 1000.0
    facts.read(replica)
    return OBSTACLES[closes(facts, RULES)]


def hedger(primary: Replica, replica: Replica) -> Refusal | None:
    return obstacle(primary, replica, Hedging().kv_usage, NOW)


def chosen(policy: str, *replicas: Replica) -> str:
    return make_policy(policy).pick(VIEW, replicas, Context(Random(1), NOW)).candidate.id


@scenario
async def test_all_see_that_a_replica_has_filled_up_since_its_poll() -> None:
    with two() as (table, replica, other):
        leases = begun(replica, 2)
        poll(table.fleet, replica, 0.1, 2)
        assert gate(replica) == ""
        assert hedger(other, replica) is None
        assert chosen("kv_aware", replica, other) == "a"
        leases += begun(replica, 9, tokens=10_000)
        assert gate(replica) == "kv_cache"
        assert hedger(other, replica) == Refusal.KV
        for policy in ("kv_aware", "weighted"):
            assert chosen(policy, replica, other) == "b", policy
        assert replica.kv_polled == 0.1  # the KV usage shown by the engine's metrics
        for lease in leases:
            lease.release()


@scenario
async def test_all_see_that_a_replica_has_emptied_since_its_poll() -> None:
    with two() as (table, replica, other):
        leases = begun(replica, 10)
        poll(table.fleet, replica, 0.98, 10)
        assert gate(replica) == "kv_cache"
        assert hedger(other, replica) == Refusal.KV
        assert chosen("kv_aware", replica, other) == "b"
        for lease in leases[:8]:
            lease.release()
        assert gate(replica) == ""
        assert hedger(other, replica) is None
        for policy in ("kv_aware", "weighted"):
            assert chosen(policy, replica, other) == "a", policy
        assert replica.kv_polled == 0.98
        for lease in leases[8:]:
            lease.release()


@scenario
async def test_a_report_on_a_response_is_corrected_as_a_poll_is() -> None:
    table = Table()
    replica = table.add("a")
    leases = begun(replica, 10)
    header = b'JSON {"named_metrics": {"kv_cache_usage_perc": 0.98}}'
    table.fleet.polls.load_reported(replica, header)
    assert replica.kv_usage == replica.kv_polled == 0.98
    for lease in leases[:5]:
        lease.release()
    assert replica.kv_usage == pytest.approx(0.49)
    assert replica.kv_polled == 0.98
    for lease in leases[5:]:
        lease.release()
    table.close()


@scenario
async def test_old_signals_leave_it_unknown_and_close_nothing() -> None:
    with two() as (table, replica, other):
        leases = begun(replica, 10)
        poll(table.fleet, replica, 0.98, 10)
        table.fleet.polls.unobserved(replica, "timeout", NOW + table.fleet.polls.stale_s + 1.0)
        assert replica.kv_usage is None
        assert replica.kv_polled is None
        assert gate(replica) == ""
        assert hedger(other, replica) is None
        for lease in leases:
            lease.release()
        assert replica.kv_usage is None
