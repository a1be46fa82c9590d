"""The queue of the bench has the stated depth, and is being served."""

from bench.overhead.queue_traffic import Traffic


def test_the_queue_is_as_deep_as_asked_for_and_every_replica_is_full() -> None:
    traffic = Traffic("fair", 4)
    traffic.fill(500)
    assert traffic.queue.waiting == 500
    assert all(not traffic.queue.gates.is_open(each, 2) for each in traffic.fleet.replicas)
    assert len(traffic.leases) >= 4 * 3
