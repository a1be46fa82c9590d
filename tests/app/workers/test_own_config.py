"""What a worker makes of the configuration of all."""

from msgspec.structs import replace

from router.app.restart.messages import Worker
from router.app.workers.own_config import own_config
from router.config.load import parse
from router.config.model import Config
from router.dispatch.routing_facts import salt_of

MIB = 1024 * 1024
ONE = Worker(0, 3, 4, (5, 6, 7, 8), 9, salt="from the parent", is_first=True)


def config(text: str = "") -> Config:
    return parse(f"workers: 4\nreplicas: [http://127.0.0.1:9]\n{text}", reads_files=False)


def test_limits_of_memory_and_connections_are_divided() -> None:
    found = own_config(config("limits: {bodies_total: 1GiB, connections: 10}\n"), ONE)
    assert (found.limits.bodies_total, found.limits.connections) == (256 * MIB, 3)
    assert found.queue.limits.bytes == 64 * MIB
    small = own_config(
        config("limits: {bodies_total: 100MiB}\nqueue: {limits: {bytes: 8MiB}}\n"), ONE
    )
    # The largest body must fit; no limit of connections stays none.
    assert (small.limits.bodies_total, small.limits.connections) == (64 * MIB, 0)
    assert small.queue.limits.bytes == 8 * MIB


def test_all_workers_have_one_salt() -> None:
    other = replace(ONE, slot=1)
    assert salt_of(own_config(config(), ONE)) == salt_of(own_config(config(), other)) != ""
    named = own_config(config("access_log: {salt: mine}\n"), ONE)
    assert salt_of(named) == "mine"
    shared = own_config(config("share: {url: 'redis://a:1'}\n"), ONE)
    assert salt_of(shared) == salt_of(config("share: {url: 'redis://a:1'}\n"))
