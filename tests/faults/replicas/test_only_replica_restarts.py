"""The only replica restarts: waiting requests are served afterwards, and none fails."""

import json

from router.core.errors import Reason
from tests.harness import kit

CROWD = 20


class OneEach(kit.Turnstile):
    """Serves one request for each connection, so that the next one needs a new connection."""

    async def __call__(self, connection: kit.ReplicaConnection) -> None:
        asked = await connection.recv_request()
        if asked is not None:
            self.tags.append(json.loads(asked.body)["tag"])
            await self.permits.acquire()
            await connection.send(kit.completion("Connection: close"))
            connection.close()


async def restart(
    replica: kit.HostileReplica, router: kit.Router, turnstile: kit.Turnstile
) -> None:
    """Finish running requests and refuse connections; listen again after some refusals."""
    await replica.stop_listening()
    turnstile.open()
    fleet = router.app.parts.fleet
    (member,) = fleet.replicas.values()
    opened = member.pool.opened
    await kit.eventually(lambda: member.health.failures >= 3, "three connections were refused")
    assert kit.waiting(router) + member.inflight == CROWD
    turnstile.open(CROWD + 5)
    replica.start(replica.port)
    await kit.eventually(lambda: member.pool.opened > opened, "it is connected to again")


async def story(quiet: str) -> None:
    turnstile = OneEach()
    hostile = kit.HostileReplica(turnstile)
    hostile.start()
    async with kit.running(
        hostile, replica=kit.ONE, queue=kit.queue(), quiet_control_plane=quiet
    ) as router:
        first = await kit.send(router, "first", queued=False)
        await hostile.wait_for_requests(1)
        clients = [await kit.send(router, str(n), priority="batch") for n in range(CROWD)]
        await restart(hostile, router, turnstile)
        for client in (first, *clients):
            assert (await client.recv_response()).status == 200
        assert sum(kit.counts(router, "expired")) == 0
        assert sorted(set(turnstile.tags)) == sorted({"first", *map(str, range(CROWD))})


@kit.scenario
async def test_before_any_probe_has_seen_it() -> None:
    await story(kit.BY_HAND)


@kit.scenario
async def test_while_probes_take_it_down_and_up() -> None:
    await story("")


@kit.scenario
async def test_a_new_request_waits_too_and_is_answered_in_the_end() -> None:
    turnstile = kit.Turnstile()
    hostile = kit.HostileReplica(turnstile)
    hostile.start()
    classes = kit.of_each(absent_s=0.5)
    async with kit.running(
        hostile,
        replica=kit.ONE,
        queue=kit.queue(),
        classes=classes,
        quiet_control_plane=kit.BY_HAND,
    ) as router:
        await hostile.stop_listening()
        answer = await router.ask(kit.chat(), "POST")
        kit.assert_error(answer, Reason.CONNECT_FAILED, 503)
        assert int(answer.header("retry-after") or 0) >= 1
        assert (await router.log())[0]["attempts"] >= 2, "it was tried again meanwhile"
        assert kit.waiting(router) == 0
