"""SLO targets and results per class, as reported by a running router."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from router.config.model import Classes, LowClass
from router.core.errors import Reason
from router.lab.audit.examine import examine
from tests.app.pages import by_class, page
from tests.faults.process.metrics import scrape
from tests.harness.behaviours import chat_either, sse_tokens, stream_then_hang
from tests.harness.messages import (
    DONE,
    LAST_CHUNK,
    SSE_HEAD,
    chat,
    chunk,
    json_response,
    role,
    token,
)
from tests.harness.queueing import ONE, Turnstile, queue, send, waiting
from tests.harness.replica import ReplicaConnection, eventually
from tests.harness.running import Router, assert_error, running, scenario


@scenario
async def test_times_by_class() -> None:
    async with running(sse_tokens(5)) as router:
        for priority in ("high", "high", "batch"):
            answer = await router.ask(chat(stream=True, priority=priority), "POST")
            assert answer.complete
        wanted = {"high": 2.0, "batch": 1.0}
        for what in ("ttft", "tpot", "duration"):
            assert await by_class(router, f"hedgerow_class_{what}_seconds_count") == wanted, what
        sums = {
            what: await by_class(router, f"hedgerow_class_{what}_seconds_sum")
            for what in ("ttft", "tpot", "duration")
        }
        assert sums["ttft"]["high"] + 4 * sums["tpot"]["high"] <= sums["duration"]["high"] + 1e-3
        lines = [line for line in await router.log(3) if line["class"] == "high"]
        logged = sum(line["duration_ms"] for line in lines) / 1e3
        assert abs(sums["duration"]["high"] - logged) < 1e-5


@scenario
async def test_a_cancelled_stream_has_a_tpot_and_no_duration() -> None:
    behave = stream_then_hang(role(), token("a"), token("b"))
    async with running(behave) as router:
        client = await router.client()
        await client.send(chat(stream=True, priority="high"))
        await client.recv_until(b'"b"')
        client.close()
        await router.log()
        assert await by_class(router, "hedgerow_class_tpot_seconds_count") == {"high": 1.0}
        assert await by_class(router, "hedgerow_class_duration_seconds_count") == {}


@scenario
async def test_only_streams_have_a_first_token() -> None:
    async def refuses(connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            await connection.send(json_response({"error": {"message": "no"}}, 400))

    async with running(chat_either, refuses, policy="round_robin") as router:
        for stream in (True, False):
            for status in (200, 400):  # answers alternate between success and refusal
                answer = await router.ask(chat(stream=stream, priority="low"), "POST")
                assert answer.status == status
        assert await by_class(router, "hedgerow_class_ttft_seconds_count") == {"low": 1.0}
        assert await by_class(router, "hedgerow_class_duration_seconds_count") == {"low": 2.0}


async def dropped(router: Router) -> dict[tuple[str, str], float]:
    found = await scrape(router.app.admin_port)
    told = {
        (dict(labels)["class"], dict(labels)["reason"]): n
        for (name, labels), n in found.items()
        if name == "hedgerow_queue_dropped_total"
    }
    assert len(told) == 5 * 11  # every class and reason is there from the start, for correct rates
    return {key: n for key, n in told.items() if n}


async def leaves(router: Router) -> None:
    (await send(router, "second", priority="low")).close()


async def expires(router: Router) -> None:
    client = await send(router, "second", priority="low")
    assert_error(await client.recv_response(), Reason.QUEUE_TIMEOUT)


async def is_refused(router: Router) -> None:
    second = await send(router, "second", priority="low")
    third = await router.ask(chat(priority="low"), "POST")
    assert_error(third, Reason.QUEUE_FULL)
    second.close()
    await router.log(2)


def test_drops_by_class_and_reason() -> None:
    stories: tuple[tuple[Callable[[Router], Awaitable[None]], Classes, dict[str, int]], ...] = (
        (leaves, Classes(), {"left": 1}),
        (expires, of_low(wait_s=0.1), {"queue_timeout": 1}),
        (is_refused, of_low(depth=1), {"queue_full": 1, "left": 1}),
    )
    for act, classes, wanted in stories:

        @scenario
        async def story(
            act: Callable[[Router], Awaitable[None]] = act,
            classes: Classes = classes,
            wanted: dict[str, int] = wanted,
        ) -> None:
            turnstile = Turnstile()
            async with running(turnstile, replica=ONE, queue=queue(), classes=classes) as router:
                first = await send(router, "first", queued=False)
                await act(router)
                turnstile.open()
                assert (await first.recv_response()).status == 200
                await router.log(1 + sum(wanted.values()))
                assert await dropped(router) == {("low", why): n for why, n in wanted.items()}
                told = await page(router, "/queue")
                assert told["pools"][0]["classes"]["low"]["dropped"] == wanted
                assert told["pools"][0]["classes"]["high"]["dropped"] == {}

        story()


def of_low(**rules: Any) -> Classes:
    return Classes(low=LowClass(**rules))


@scenario
async def test_the_log_has_the_wait_of_each_request() -> None:
    turnstile = Turnstile()
    async with running(turnstile, replica=ONE, queue=queue()) as router:
        first = await send(router, "first", queued=False)
        second = await send(router, "second")
        third = await send(router, "third", priority="batch")
        for client in (first, second, third):
            turnstile.open()
            assert (await client.recv_response()).status == 200
            await asyncio.sleep(0.1)
        lines = await router.log(3)
        assert "queue_ms" not in lines[0]
        assert "engine_ms" not in lines[0]  # without a wait, `ttft_ms` has this value
        for line, body in zip(lines, turnstile.bodies, strict=True):
            assert line["engine_priority"] == str(body["priority"])
        for line in lines[1:]:
            assert line["engine_ms"] > 0.0
            assert line["engine_ms"] + line["queue_ms"] <= line["duration_ms"] + 0.01
            assert 0.0 < line["queue_ms"] <= line["ttft_ms"] <= line["duration_ms"]
            waited_and_sent = line["queue_ms"] + line["tried"][0][3]
            assert waited_and_sent <= line["duration_ms"] + 0.01
        ends = [line["ts"] + line["queue_ms"] / 1e3 for line in lines[1:]]
        # The second request held the only slot while the test slept.
        assert ends[0] + 0.05 < ends[1]


@scenario
async def test_the_log_has_the_wait_of_an_expired_request() -> None:
    turnstile = Turnstile()
    classes = of_low(wait_s=0.1)
    async with running(turnstile, replica=ONE, queue=queue(), classes=classes) as router:
        first = await send(router, "first", queued=False)
        late = await send(router, "second", priority="low")
        assert_error(await late.recv_response(), Reason.QUEUE_TIMEOUT)
        (line,) = await router.log()
        assert 90.0 <= line["queue_ms"] <= line["duration_ms"]
        turnstile.open()
        assert (await first.recv_response()).status == 200


@scenario
async def test_an_audit_of_the_log_shows_waits() -> None:
    go = asyncio.Event()

    async def streams(connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            await go.wait()
            events = (role(), token("a"), token("b", "stop"), DONE)
            await connection.send(SSE_HEAD, *map(chunk, events), LAST_CHUNK)

    async with running(streams, replica=ONE, queue=queue()) as router:
        clients = [await send(router, "first", queued=False, stream=True, priority="high")]
        clients += [
            await send(router, "next", stream=True, priority=priority)
            for priority in ("high", "low", "low")
        ]
        clients.pop().close()
        await eventually(lambda: waiting(router) == 2, "its wait is over")
        go.set()
        for client in clients:
            assert (await client.recv_response()).complete
        await router.log(4)
        found = examine([str(router.log_path)]).queue
        assert [(each.name, each.requests, each.waited, each.in_vain) for each in found] == [
            ("high", 2, 1, 0),
            ("low", 2, 2, 1),
        ]
