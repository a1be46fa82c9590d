"""GET /replicas and GET /fleet explain why a replica gets no requests, and show its values."""

from tests.app.pages import page, text_page
from tests.harness.behaviours import answer, json_ok
from tests.harness.messages import chat, json_response
from tests.harness.queueing import ONE, Turnstile, queue, send
from tests.harness.running import running, scenario

BROKEN = answer(json_response({"error": {"message": "broken"}}, 500))


@scenario
async def test_it_shows_why_a_replica_gets_no_requests_and_its_priorities() -> None:
    turnstile = Turnstile()
    async with running(turnstile, replica={**ONE, "engine": "vllm"}, queue=queue()) as router:
        (shown,) = await page(router, "/replicas")
        assert shown["closed_to"] == {}
        assert shown["priority"]["last_sent"] is None
        first = await send(router, "first", queued=False)
        second = await send(router, "second")
        (shown,) = await page(router, "/replicas")
        assert shown["closed_to"] == dict.fromkeys(
            ("critical", "high", "normal", "low", "batch"), "limit"
        )
        assert shown["priority"]["last_sent"] == str(turnstile.bodies[0]["priority"])
        text = await text_page(router, "/fleet")
        assert text.startswith("1 of 1 replicas ready; 1 requests in flight; 1 waiting in")
        assert "closed to critical, high, normal, low, batch: limit\n" in text
        # The replica was never seen to be full.
        assert (shown["slots"], shown["slots_reported"]) == (None, None)
        for client in (first, second):
            turnstile.open()
            assert (await client.recv_response()).status == 200
            client.close()
        await router.quiet()
        (shown,) = await page(router, "/replicas")
        assert shown["closed_to"] == {}


@scenario
async def test_the_last_replica_shows_that_it_fails() -> None:
    async with running(BROKEN, health={"eject_after": 2}) as router:
        for _ in range(3):
            assert (await router.ask(chat())).status == 500
        (shown,) = await page(router, "/replicas")
        assert shown["state"] == "ready"
        assert shown["why"].startswith("failures in a row: 3; not ejected, because too few")
        assert "failures in a row: 3; not ejected" in await text_page(router, "/fleet")


@scenario
async def test_an_ejected_replica_shows_the_request_that_caused_it() -> None:
    rules = {"eject_after": 2, "slow_start_s": 0.0}
    async with running(BROKEN, json_ok, health=rules, policy="round_robin") as router:
        for number in range(4):
            await router.ask(chat(f"x-request-id: mine-{number}"))
        health = router.app.parts.fleet.replicas["r0"].health
        lines = await router.log(4)
        assert {line["status"] for line in lines} == {200}
        # The other replica has answered the requests that failed here.
        failed = [line["id"] for line in lines if line["attempts"] == 2]
        assert len(failed) == 2
        assert health.why == f"2 failures in a row, the last: server_error; request {failed[-1]}"
