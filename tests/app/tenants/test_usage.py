"""GET /usage of a running router: tokens and cost, by tenant and class."""

import asyncio
from pathlib import Path

import pytest

from router.config.keys import KeyLine, hash_of, line_of
from router.config.model import Keys, Prefix, Price, Queue, Usage as UsageConfig
from router.core.errors import Reason
from tests.app.pages import page
from tests.app.tenants.acme import ACME, keys, tells, tenants
from tests.faults.process.metrics import number
from tests.harness.behaviours import hang, stream_then_hang
from tests.harness.messages import (
    DONE,
    LAST_CHUNK,
    SSE_HEAD,
    chat,
    chunk,
    json_response,
    request,
    role,
    token,
)
from tests.harness.queueing import ONE, Turnstile, queue, send
from tests.harness.replica import ReplicaConnection, eventually
from tests.harness.running import assert_error, running, scenario

PRICES = UsageConfig(prices={"m": Price(input=2.0, cached=0.5, output=10.0)})
COST = (400 * 2.0 + 600 * 0.5 + 100 * 10.0) / 1e6  # cost of a request with the counts in TOLD


@scenario
async def test_tokens_and_costs_by_key_and_class(tmp_path: Path) -> None:
    async with running(tells, keys=keys(tmp_path), usage=PRICES) as router:
        assert (await page(router, "/usage"))["tenants"] == []
        for stream in (False, True):
            sent = chat(ACME, stream=stream, priority="high")
            assert (await router.ask(sent, "POST")).status == 200
        await router.ask(chat(), "POST")
        await router.ask(request("/v1/models"))  # no inference: charged to no tenant
        told = await page(router, "/usage")
        assert told["total"]["requests"] == 3
        assert told["total"]["cost"] == pytest.approx(3 * COST)
        assert told["seconds"] >= 0.0 and told["since"] > 1.7e9
        found = {each.pop("tenant"): each for each in told["tenants"]}
        assert list(found) == ["acme", "(none)"]  # tenants are sorted by use, highest first
        acme = found["acme"]
        logged = [line["tenant"] for line in await router.log(4) if line.get("class") == "high"]
        assert logged == [acme.pop("logged_as")] * 2
        assert "logged_as" not in found["(none)"]
        assert acme["classes"].keys() == {"high"}
        assert acme["classes"]["high"] == {k: v for k, v in acme.items() if k != "classes"}
        assert acme["classes"]["high"] == {
            "requests": 2,
            "prompt_tokens": 2000,
            "cached_tokens": 1200,
            "output_tokens": 200,
            "estimated": 0,
            "cost": pytest.approx(2 * COST),
            "unpriced_tokens": 0,
        }
        assert found["(none)"]["classes"].keys() == {"normal"}
        port = router.app.admin_port
        name = "hedgerow_tenant_tokens_total"
        assert await number(port, name, tenant="acme", kind="prompt") == 2000
        assert await number(port, name, tenant="acme", kind="cached") == 1200
        assert await number(port, name, tenant="(none)", kind="output") == 100
        assert await number(port, "hedgerow_tenant_requests_total", tenant="acme") == 2
        cost = await number(port, "hedgerow_tenant_cost_total", tenant="acme")
        assert cost == pytest.approx(2 * COST)


@scenario
async def test_without_prices_there_is_no_cost() -> None:
    async with running(tells) as router:
        await router.ask(chat(), "POST")
        (told,) = (await tenants(router)).values()
        assert told["cost"] is None
        assert told["unpriced_tokens"] == 1100
        assert (await page(router, "/usage"))["total"]["cost"] is None


@scenario
async def test_prices_are_read_again() -> None:
    async with running(tells) as router:
        await router.ask(chat(), "POST")
        router.change(usage=PRICES)
        await router.app.reload()
        await router.ask(chat(), "POST")
        (told,) = (await tenants(router)).values()
        assert told["cost"] == pytest.approx(COST)
        assert told["unpriced_tokens"] == 1100


@scenario
async def test_a_cancelled_request_is_charged_for_its_tokens_so_far() -> None:
    long = "tell me a story, " * 60
    behave = stream_then_hang(role(), token("a"), token("b"), token("c"))
    async with running(behave, usage=PRICES) as router:
        client = await router.client()
        sent = chat(stream=True, messages=[{"role": "user", "content": long}])
        await client.send(sent)
        await client.recv_until(b'"c"')
        client.close()
        (line,) = await router.log()
        assert line["reason"] == "client_gone"
        (told,) = (await tenants(router)).values()
        assert (told["requests"], told["output_tokens"]) == (1, 3)
        assert told["prompt_tokens"] == line["estimated_tokens"] > 200
        assert told["estimated"] == 1
        assert told["cost"] == pytest.approx((told["prompt_tokens"] * 2 + 3 * 10) / 1e6)


@scenario
async def test_a_stream_cancelled_before_its_first_token_is_charged_for_its_prompt() -> None:
    async with running(hang) as router:
        client = await router.client()
        long = [{"role": "user", "content": "x" * 4000}]
        await client.send(chat(stream=True, messages=long))
        await eventually(lambda: bool(router.replica.requests), "the request is there")
        client.close()
        (line,) = await router.log()
        (told,) = (await tenants(router)).values()
        assert (told["requests"], told["output_tokens"]) == (1, 0)
        assert told["prompt_tokens"] == line["estimated_tokens"] > 500
        assert told["estimated"] == 1


@scenario
async def test_a_refusal_of_the_engine_is_not_charged() -> None:
    async def refuses(connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            await connection.send(json_response({"error": {"message": "no"}}, 400))

    async with running(refuses, usage=PRICES) as router:
        assert (await router.ask(chat(), "POST")).status == 400
        (told,) = (await tenants(router)).values()
        assert (told["requests"], told["prompt_tokens"], told["cost"]) == (1, 0, None)


@scenario
async def test_an_answer_without_counts_is_estimated() -> None:
    async def answers(connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            await connection.send(json_response({"choices": [{"index": 0}]}))

    async with running(answers, prefix=Prefix()) as router:
        long = [{"role": "user", "content": "x" * 4000}]
        assert (await router.ask(chat(messages=long), "POST")).status == 200
        (told,) = (await tenants(router)).values()
        assert (told["requests"], told["estimated"], told["output_tokens"]) == (1, 1, 0)
        assert told["prompt_tokens"] == (await router.log())[0]["estimated_tokens"] > 0


@scenario
async def test_a_stream_that_breaks_is_counted_once() -> None:
    async def breaks(connection: ReplicaConnection) -> None:
        await connection.recv_request()
        await connection.send(SSE_HEAD, chunk(role()), chunk(token("a")))
        connection.close()

    async with running(breaks, usage=PRICES) as router:
        await router.ask(chat(stream=True), "POST")
        (told,) = (await tenants(router)).values()
        assert (told["requests"], told["output_tokens"], told["estimated"]) == (1, 1, 1)


@scenario
async def test_of_three_thousand_tenants_a_thousand_are_named() -> None:
    async with running(tells) as router:
        for name in range(3000):
            router.app.metrics.usage.count(f"t{name}", "low", "m", name, 0, 1, False)
        told = await page(router, "/usage")
        names = [each["tenant"] for each in told["tenants"]]
        assert names == ["(other)", *(f"t{name}" for name in reversed(range(1000)))]
        assert told["total"]["requests"] == told["total"]["output_tokens"] == 3000
        port, name = router.app.admin_port, "hedgerow_tenant_requests_total"
        assert await number(port, name, tenant="t199") == 1
        assert await number(port, name, tenant="(other)") == 2800


LONG = [{"role": "user", "content": "x" * 1200}]


async def paces_then_hangs(connection: ReplicaConnection) -> None:
    """A stream of twenty tokens gives the speed of the replica; whole answers never arrive."""
    while asked := await connection.recv_request():
        if asked.method != "POST":
            await connection.send(json_response({}))
            continue
        if not asked.json().get("stream"):
            await connection.expect_close()
            return
        await connection.send(SSE_HEAD, chunk(role()))
        for _ in range(20):
            await connection.send(chunk(token("a")))
            await asyncio.sleep(0.01)
        await connection.send(chunk(DONE), LAST_CHUNK)


@pytest.mark.parametrize("path", ["passes", "waits"])
@scenario
async def test_work_is_charged_even_if_its_client_disconnects(tmp_path: Path, path: str) -> None:
    """The cost of an abandoned whole answer is not reported: it is estimated."""
    limited = tmp_path / "keys.jsonl"
    line = KeyLine(name="acme", hash=hash_of(b"acme-key"), tokens_per_minute=600)
    limited.write_text(line_of(line) + "\n")
    rules = Queue(enabled=path == "waits")
    async with running(
        paces_then_hangs, keys=Keys(file=str(limited)), queue=rules, usage=PRICES
    ) as router:
        assert (await router.ask(chat(stream=True), "POST")).complete
        (replica,) = router.app.parts.fleet.replicas.values()
        assert replica.tpot_s is not None
        client = await router.client()
        await client.send(chat(ACME, messages=LONG, max_tokens=100))
        await router.replica.wait_for_requests(2)
        # As if the engine had worked for the time of 30 tokens.
        (exchange,) = router.app.parts.dispatcher.exchanges
        (attempt,) = exchange.driver.state.live
        attempt.began -= 30 * replica.tpot_s
        client.rst()
        await router.log(2)
        told = (await tenants(router))["acme"]
        assert told["estimated"] == 1
        assert told["prompt_tokens"] >= 300
        assert 10 <= told["output_tokens"] <= 100
        later = await router.ask(chat(ACME, messages=LONG, max_tokens=100), "POST")
        assert_error(later, Reason.KEY_TOKENS)


@scenario
async def test_a_request_that_was_not_sent_is_free() -> None:
    turnstile = Turnstile()
    async with running(turnstile, replica=ONE, queue=queue(), usage=PRICES) as router:
        first = await send(router, "first", queued=False)
        waits = await send(router, "waits")
        waits.rst()
        await router.log(1)
        (told,) = (await tenants(router)).values()
        assert (told["prompt_tokens"], told["output_tokens"]) == (0, 0)
        turnstile.open()
        assert (await first.recv_response()).status == 200


@scenario
async def test_a_limit_of_output_that_the_engine_may_not_read_lowers_no_estimate(
    tmp_path: Path,
) -> None:
    async with running(paces_then_hangs, keys=keys(tmp_path)) as router:
        assert (await router.ask(chat(stream=True), "POST")).complete
        (replica,) = router.app.parts.fleet.replicas.values()
        assert replica.tpot_s is not None
        client = await router.client()
        await client.send(chat(ACME, max_tokens=100, max_completion_tokens=1))
        await router.replica.wait_for_requests(2)
        # As if the engine had worked for the time of 30 tokens.
        (exchange,) = router.app.parts.dispatcher.exchanges
        (attempt,) = exchange.driver.state.live
        attempt.began -= 30 * replica.tpot_s
        client.rst()
        await router.log(2)
        assert 10 <= (await tenants(router))["acme"]["output_tokens"] <= 100
