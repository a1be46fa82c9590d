"""The queue's benchmark measures a queue of the stated depth that is being served."""

from __future__ import annotations

import pytest

from bench.queueing import measure
from bench.queueing.traffic import Traffic
from policies.queueing.contract import order_names


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_BLOCK", 50)


def test_the_queue_is_as_deep_as_asked_for_and_every_replica_is_full() -> None:
    traffic = Traffic("fair", 4)
    traffic.fill(500)
    assert traffic.queue.waiting == 500
    assert all(not traffic.queue.is_open(each, 2) for each in traffic.fleet.replicas)
    assert len(traffic.leases) >= 4 * 3


@pytest.mark.parametrize("policy", order_names())
@pytest.mark.parametrize("prefixes", [False, True])
def test_a_dispatch_is_measured_for_every_policy(policy: str, prefixes: bool) -> None:
    dispatch_us, settle_us = measure.dispatch_us(policy, 20, 2, prefixes=prefixes)
    assert dispatch_us > 0.0
    assert settle_us > 0.0


def test_what_does_not_wait_is_measured_too() -> None:
    _, pass_us = measure.pass_us(2)
    assert pass_us > 0.0


def test_what_one_that_waits_takes_of_memory() -> None:
    assert 500 < measure.waiting_bytes(500) < measure.waiting_bytes(500, prefixes=True) < 5000
