"""Many reloads under load: no request fails, and no object of an old configuration stays."""

import asyncio
import gc
from pathlib import Path

import msgspec

from router.config.model import AccessLog as LogConfig, Config, Limits, Routing, Timeouts, Upstream
from router.observe.log.access_log import AccessLog
from router.wire.pool import Pool
from tests.examples import ALL
from tests.harness.behaviours import chat_either
from tests.harness.messages import chat
from tests.harness.queueing import of_each
from tests.harness.replica import eventually
from tests.harness.running import Router, routed, running, scenario

RELOADS = 100 if ALL else 40


def pools() -> list[Pool]:
    gc.collect()
    return [thing for thing in gc.get_objects() if isinstance(thing, Pool)]


def variants(config: Config) -> list[Config]:
    """Changeable settings: the fleet, connections to it, policies, limits."""
    one, two, three = config.replicas
    replace = msgspec.structs.replace
    return [
        replace(config, replicas=(one, two)),
        replace(config, replicas=(two, three)),
        replace(config, upstream=Upstream(token="t")),  # every connection is opened anew
        replace(config, routing=Routing(policy="p2c")),
        replace(config, limits=Limits(pool_idle=2), timeouts=Timeouts(pool_idle_s=1.0)),
        # an ID moves to another address
        replace(config, replicas=(replace(two, id=one.id), three)),
        replace(config, replicas=(three, two, one)),
    ]


async def load(router: Router, over: asyncio.Event, stream: bool) -> int:
    """Send requests on one connection until `over`; return the number served, all successful."""
    client = await router.client()
    served = 0
    while not over.is_set():
        await client.send(chat(stream=stream))
        answer = await client.recv_response()
        assert (answer.status, answer.complete) == (200, True), answer
        served += 1
    client.close()
    return served


@scenario
async def test_no_pool_and_no_prober_stays() -> None:
    before = pools()  # the list keeps the pools alive, so that none is freed meanwhile
    # No request may be refused because a probe of a new replica is late.
    classes = of_each(absent_s=8.0)
    async with running(chat_either, chat_either, chat_either, classes=classes) as router:
        app = router.app
        original = router.next
        choices = variants(original)
        over = asyncio.Event()
        loads = [asyncio.create_task(load(router, over, n % 2 == 1)) for n in range(6)]
        for index in range(RELOADS):
            router.next = choices[index % len(choices)]
            await app.reload()
            served = sum(len(replica.requests) for replica in router.replicas)
            await eventually(
                lambda served=served: (  # type: ignore[misc]
                    sum(len(replica.requests) for replica in router.replicas) > served
                    or any(task.done() for task in loads)
                ),
                "a request served under this configuration",
            )
        router.next = original
        await app.reload()
        over.set()
        assert sum(await asyncio.gather(*loads)) >= RELOADS
        await eventually(lambda: not router.busy(), "nothing under way")
        assert app.parts.fleet.leaving == set()
        await eventually(lambda: app.census()["probes"] == 3, "one prober a replica")
        await eventually(
            lambda: sum(pool not in before for pool in pools()) == 3, "the pools of three replicas"
        )
        await eventually(
            lambda: (
                sum(not connection.closed for r in router.replicas for connection in r.sessions)
                == sum(shown["connections"]["open"] for shown in app.replicas())
            ),
            "no connection but the pooled ones",
        )
    assert not [line for replica in router.replicas for line in replica.failures]


def logs() -> int:
    gc.collect()
    return sum(isinstance(thing, AccessLog) for thing in gc.get_objects())


@routed(chat_either)
async def test_no_replaced_access_log_stays(router: Router, tmp_path: Path) -> None:
    before = logs()
    for number in range(8):
        router.change(access_log=LogConfig(path=str(tmp_path / f"{number}.log")))
        await router.app.reload()
        assert (await router.ask(chat())).status == 200
    # The threads of the last logs may still write.
    replaced = router.app.parts.replaced_logs
    await eventually(lambda: not replaced.dropped and logs() == before, "all are gone")
