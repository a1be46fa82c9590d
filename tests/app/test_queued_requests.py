"""Queued requests over sockets: their order, and each way in which a wait can end."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from policies.queueing.ticket import CLASSES
from router.admission.runs import MOST_PREDICTED
from router.config.model import (
    Preemption as PreemptionRules,
    Priority,
    Queue,
    Reservations,
)
from router.core.errors import ConfigError, Reason
from router.core.urgency import BATCH, NORMAL
from router.fleet.engines.common.priority import EPOCH
from tests.addons.needed import needs
from tests.admission.extras import used_tokens
from tests.app.pages import page
from tests.faults.process.metrics import scrape
from tests.harness.behaviours import chat_either, in_turn, json_ok, until_closed
from tests.harness.emulated import emulated
from tests.harness.messages import (
    chat,
    json_response,
    request,
)
from tests.harness.queueing import (
    ONE,
    Turnstile,
    counts,
    of_normal,
    queue,
    send,
    waiting,
)
from tests.harness.replica import ReplicaConnection, eventually
from tests.harness.running import Router, assert_error, running, scenario


async def deadline_passes(router: Router, after_s: float) -> None:
    """Wait until the queue has ended the wait of a request at its deadline."""
    data = chat(f"x-request-timeout-ms: {1000 * after_s:.0f}", tag="deadline")
    assert_error(await router.ask(data), Reason.DEADLINE_PASSED)


@scenario
async def test_the_most_urgent_request_goes_first_and_none_is_lost() -> None:
    turnstile = Turnstile()
    rules = Priority(ceiling="critical")
    async with running(turnstile, replica=ONE, queue=queue(), priority=rules) as router:
        clients = [await send(router, "first", queued=False)]
        names = ("batch", "low", "normal", "high", "critical")
        clients += [await send(router, name, priority=name) for name in names]
        turnstile.open(6)
        for client in clients:
            assert (await client.recv_response()).status == 200
        assert turnstile.tags == ["first", "critical", "high", "normal", "low", "batch"]
        assert counts(router, "passed") == [0, 0, 1, 0, 0]
        assert counts(router, "granted") == [1] * 5


@scenario
async def test_a_request_does_not_wait_if_a_replica_has_room() -> None:
    async with running(json_ok, json_ok, replica=ONE, queue=queue()) as router:
        for _ in range(5):
            assert (await router.ask(chat(), "POST")).status == 200
        assert sum(counts(router, "queued")) == 0
        # This request bypasses the queue.
        assert (await router.ask(request("/nowhere"))).status == 200


@scenario
async def test_each_replica_that_has_room_takes_one() -> None:
    turnstiles = [Turnstile(), Turnstile()]
    async with running(*turnstiles, replica=ONE, queue=queue()) as router:
        clients = [await send(router, "a", queued=False), await send(router, "b", queued=False)]
        clients += [await send(router, str(n)) for n in range(4)]
        turnstiles[1].open(5)
        await eventually(lambda: waiting(router) == 0, "the second has taken them all")
        turnstiles[0].open()
        for client in clients:
            assert (await client.recv_response()).status == 200
        assert [len(t.tags) for t in turnstiles] == [1, 5]


@scenario
async def test_the_first_token_timeout_begins_at_the_dispatch() -> None:
    turnstile = Turnstile()
    timeouts = {"first_token_s": 0.6}
    async with running(turnstile, turnstile, queue=queue(), timeouts=timeouts) as router:
        driver = router.app.parts.queue
        assert driver is not None
        for replica in router.app.parts.fleet.replicas.values():
            replica.limit = 0
            driver.changed(replica)
        second = await send(router, "second")
        await deadline_passes(router, 0.9)  # later than the second's limit for a first token
        assert waiting(router) == 1
        router.app.parts.fleet.rebuild()  # the replicas may be polled again
        turnstile.open()
        assert (await second.recv_response()).status == 200


@scenario
async def test_no_ticket_is_created_while_no_request_waits() -> None:
    """Requests without a wait are counted; later requests wait for a full replica, and none is
    lost.
    """
    turnstile = Turnstile()
    async with running(turnstile, replica=ONE, queue=queue()) as router:
        first = await send(router, "a", queued=False)
        (exchange,) = router.app.parts.dispatcher.exchanges
        assert exchange.ticket is None
        second = await send(router, "b")
        assert waiting(router) == 1
        turnstile.open(2)
        for client in (first, second):
            assert (await client.recv_response("POST")).status == 200
        driver = router.app.parts.queue
        assert driver is not None
        counts = driver.pools.queues[0].counts
        assert (counts.passed[NORMAL], counts.granted[NORMAL]) == (1, 1)
        third = await send(router, "c", queued=False)  # the replica has room again
        turnstile.open()
        assert (await third.recv_response("POST")).status == 200
        assert counts.passed[NORMAL] == 2


@scenario
async def test_a_client_cannot_choose_the_predicted_cost_of_its_request() -> None:
    turnstile = Turnstile()
    async with running(turnstile, replica=ONE, queue=queue()) as router:
        clients = [await send(router, "first", queued=False)]
        clients.append(await send(router, "three", n=3, max_tokens=10))
        clients.append(await send(router, "many", n=10**9, max_tokens=2**31 - 1))
        driver = router.app.parts.queue
        assert driver is not None
        waiting = sorted(
            driver.pools.queues[0].wait_lists.tickets(), key=lambda ticket: ticket.order
        )
        assert [ticket.view.output_tokens for ticket in waiting] == [30, MOST_PREDICTED]
        turnstile.open(3)
        for client in clients:
            assert (await client.recv_response("POST")).status == 200


@scenario
async def test_the_length_of_one_choice_is_learned_without_a_ticket() -> None:
    async def four_choices(connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            usage = {"prompt_tokens": 3, "completion_tokens": 400}
            await connection.send(json_response({"choices": [], "usage": usage}))

    async with running(four_choices, replica=ONE, queue=queue()) as router:
        for _ in range(40):
            assert (await router.ask(chat(n=4), "POST")).status == 200
        driver = router.app.parts.queue
        assert driver is not None
        (mean,) = driver.pools.queues[0].runs.outputs._means.values()
        assert mean == pytest.approx(100, rel=0.01)


@needs("preemption")
@scenario
async def test_a_preempted_request_is_sent_again_and_its_client_notices_nothing() -> None:
    async def never(connection: ReplicaConnection) -> None:
        await connection.recv_request()
        await until_closed(connection)

    rules = queue(preemption=PreemptionRules(enabled=True, after_s=0.05))
    behave = in_turn(never, then=chat_either)
    async with running(behave, replica=ONE, queue=rules) as router:
        batch = await send(router, "batch", queued=False, priority="batch", stream=True)
        await router.replica.wait_for_requests(1)
        assert (await router.ask(chat(tag="high", priority="high"))).status == 200
        whole = await batch.recv_response()
        assert whole.status == 200
        assert whole.events()[-1] == "[DONE]"
        assert counts(router, "preempted")[BATCH] == 1
        lines = await router.log(2)
        (tried,) = [line["tried"] for line in lines if line["attempts"] == 2]
        assert "preempted" in str(tried)


@scenario
async def test_the_priority_number_contains_the_arrival_not_the_dispatch_time() -> None:
    turnstile = Turnstile()
    replica = {**ONE, "engine": "vllm"}
    async with running(turnstile, replica=replica, queue=queue()) as router:
        first = await send(router, "first", queued=False)
        second = await send(router, "second", priority="low")
        third = await send(router, "third", priority="low")
        # A wait of three units of vLLM's number between arrival and dispatch: the numbers must not
        # contain this wait.
        await deadline_passes(router, 0.3)
        turnstile.open(3)
        for client in (first, second, third):
            assert (await client.recv_response()).status == 200
        numbers = [body["priority"] for body in turnstile.bodies]
        assert turnstile.tags == ["first", "second", "third"]
        lines = [line for line in await router.log(4) if line["reason"] == "ok"]
        (log_first, log_second, log_third) = lines
        for line, number, behind in zip(
            (log_first, log_second, log_third), numbers, (0.0, 300.0, 300.0), strict=True
        ):
            assert number == pytest.approx(10.0 * (line["ts"] - EPOCH + behind), abs=1.0)


@scenario
async def test_a_fair_order_does_not_lower_a_users_further_requests() -> None:
    async with running(json_ok, queue=queue()) as router:
        assert not router.app.parts.context.takes_steps()
    async with running(json_ok, queue=queue(policy="fifo")) as router:
        assert router.app.parts.context.takes_steps()


@scenario
async def test_a_reload_makes_room_and_changes_the_rules() -> None:
    turnstile = Turnstile()
    async with running(turnstile, replica=ONE, queue=queue()) as router:
        app = router.app
        first = await send(router, "first", queued=False)
        second = await send(router, "second")

        router.change(
            replicas=(router.at(0, max_inflight=2),),
            queue=queue(policy="fifo"),
            classes=of_normal(depth=1),
        )
        await app.reload()
        await eventually(lambda: len(turnstile.tags) == 2, "there is room for the second")
        third = await send(router, "third")
        assert_error(await router.ask(chat(tag="fourth")), Reason.QUEUE_FULL)
        router.change(queue=Queue(enabled=False))
        with pytest.raises(ConfigError, match="restart"):
            await app.reload()
        turnstile.open(3)
        for client in (first, second, third):
            assert (await client.recv_response()).status == 200


@scenario
async def test_waiting_requests_are_shown() -> None:
    turnstile = Turnstile()
    async with running(turnstile, replica=ONE, queue=queue()) as router:
        first = await send(router, "first", queued=False)
        others = [await send(router, str(n), priority="low") for n in range(3)]
        told = await page(router, "/queue")
        assert (told["enabled"], told["waiting"]) == (True, 3)
        assert told["pools"][0]["classes"]["low"]["waiting"] == 3
        assert told["pools"][0]["replicas"] == ["r0"]
        (tenant,) = told["tenants"]
        assert (tenant["user"], tenant["waiting"]) == ("", 3)
        assert router.app.census()["queued"] == 3
        samples = await scrape(router.app.admin_port)
        assert samples["hedgerow_model_queue_depth", frozenset({("model", "m")})] == 3.0
        turnstile.open(4)
        for client in (first, *others):
            assert (await client.recv_response()).status == 200
        samples = await scrape(router.app.admin_port)
        low = frozenset({("class", "low")})
        assert samples["hedgerow_queue_depth", low] == 0.0
        assert samples["hedgerow_queue_granted_total", low] == 3.0
        assert samples["hedgerow_queue_wait_seconds_count", low] == 3.0


@needs("preemption", "reservations")
@scenario
async def test_a_crowd_before_small_engines_is_served_whole() -> None:
    async with AsyncExitStack() as stack:
        engines = [
            await stack.enter_async_context(emulated("vllm", max_num_seqs=2)) for _ in range(2)
        ]
        router = await stack.enter_async_context(
            running(
                *(e.url for e in engines),
                queue=Queue(
                    enabled=True,
                    preemption=PreemptionRules(enabled=True, after_s=0.0),
                    reservations=Reservations(enabled=True),
                ),
                polling={"interval_s": 0.2},
                policy="least_load",
            )
        )
        names = ("critical", "high", "normal", "low", "batch")

        async def one(number: int) -> None:
            extra = {"priority": names[number % 5], "stream": number % 2 == 0}
            answer = await router.ask(chat(max_tokens=8, **extra), "POST")
            assert answer.status == 200
            assert answer.complete

        await asyncio.gather(*(one(number) for number in range(80)))
        assert sum(counts(router, "queued")), "nobody waited"
        driver = router.app.parts.queue
        assert driver is not None
        (only,) = driver.pools.queues
        await eventually(lambda: not only.waiting, "all are served")
        assert [used_tokens(only, urgency) for urgency in range(CLASSES)] == [0] * CLASSES
