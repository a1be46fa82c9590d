"""Continued streams and other parts: reclaimed machines, regions, silence, kept bodies, reloads."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from router.addons.continuation.store import Outcome
from router.config.model import Continuation, Replica, Spot
from router.fleet.notice import Notice
from tests.addons.continuation.app.test_stream_is_continued import (
    ON,
    VLLM,
    Fleet,
    asking,
    assert_unbroken,
    kinds,
    outcomes,
    resets,
    stops,
    whole,
)
from tests.addons.continuation.engine import read
from tests.app.test_silence import AHEAD_S, silences
from tests.faults.bodies.test_body_of_a_stream import relayed
from tests.faults.replicas.test_spot_reclaimed import FIRST, moved, reclaim
from tests.faults.replicas.test_tenant_stays_in_its_regions import told
from tests.harness import kit


@kit.scenario
async def test_a_stream_is_continued_before_its_machine_goes_away() -> None:
    fleet = Fleet(stops(4))
    async with kit.running(fleet, fleet, replica=VLLM, continuation=ON, policy=FIRST) as router:
        client = await router.send(asking("chat"))
        await client.recv_until(b"fox")
        shown = await reclaim(router)
        assert 0.0 < shown["reclaimed_in_s"] <= Spot().notice_s
        answer = await client.recv_response()
        assert answer.complete
        assert_unbroken(read(bytes(answer.body)), "chat")
        assert moved(router) == (0, 1)
        assert outcomes(router) == {Outcome.CONTINUED: 1}
        (line,) = await router.log()
        assert kinds(line) == ["primary", "continuation"]
        assert [record[2] for record in line["tried"]] == ["preempted", "ok"]
        assert router.app.parts.fleet.replicas["r0"].health.failures == 0


@kit.scenario
async def test_a_stream_is_continued_once_for_each_notice() -> None:
    fleet = Fleet(stops(4))
    hostiles = [kit.HostileReplica(fleet) for _ in range(4)]
    for each in hostiles:
        each.start()
    replicas = tuple(
        Replica(url=each.url, id=f"r{n}", spot=n < 3, **VLLM) for n, each in enumerate(hostiles)
    )
    async with kit.running(replicas=replicas, policy=FIRST, continuation=ON) as router:
        client = await router.send(asking("chat"))
        await client.recv_until(b"fox")
        router.app.parts.reclaims.noticed(Notice("all"), "file")
        assert (await client.recv_response()).complete
        assert [len(each.requests) for each in hostiles] == [1, 0, 0, 1]
        assert moved(router) == (0, 1)
    for each in hostiles:
        await each.stop()


# -- under load -------------------------------------------------------------------------------

STREAMS = 24
TOKENS = 400


@kit.long_scenario
async def test_under_load_nothing_is_lost() -> None:
    """The machine goes away (its engine resets every connection) when the notice ends."""
    async with AsyncExitStack() as stack:
        machine = await stack.enter_async_context(AsyncExitStack())
        gone = await machine.enter_async_context(kit.emulated("vllm", speed=1.0))
        stays: list[kit.Emulated] = [
            await stack.enter_async_context(kit.emulated("vllm", speed=1.0)) for _ in range(2)
        ]
        replicas = (
            Replica(url=gone.url, id="spot", spot=True),
            *(Replica(url=e.url, id=f"r{n}") for n, e in enumerate(stays)),
        )
        async with kit.running(replicas=replicas, continuation=ON, policy=FIRST) as router:
            clients = [await router.client() for _ in range(STREAMS)]
            for number, client in enumerate(clients):
                await client.send(kit.chat(stream=number % 4 > 0, max_tokens=TOKENS))
            replica = router.app.parts.fleet.replicas["spot"]
            for number, client in enumerate(clients):
                if number % 4:
                    await client.recv_until(b"data:")
            assert replica.inflight >= STREAMS // 4
            await reclaim(router, "spot", seconds=1.5)
            await kit.eventually(lambda: replica.inflight == 0, "nothing left at the machine")
            await machine.aclose()
            answers = await asyncio.gather(*(client.recv_response() for client in clients))
            failed = [a for a in answers if (a.status, a.complete) != (200, True)]
            assert failed == []
            requeued, continued = moved(router)
            assert requeued > 0 and continued > 0


def test_a_broken_stream_is_not_continued_elsewhere(tmp_path: Path) -> None:
    go = asyncio.Event()
    go.set()
    behave = kit.stream_then_fin(go, kit.role(), kit.token("one"))
    status = told(tmp_path, behave, stream=True, continuation=ON)
    assert status == 200, "the truncation comes after the status"


@kit.scenario
async def test_a_stream_that_waits_for_its_rest_is_silent_since_its_last_content() -> None:
    go = asyncio.Event()
    breaks = kit.stream_then_rst(go, kit.role(), kit.token("a"), kit.token("b"))
    silent = kit.stream_then_hang()
    rules = {"continuation": ON, "timeouts": {"first_token_s": 600.0}}
    fleet = kit.in_turn(breaks, then=silent)
    async with kit.running(fleet, fleet, replica={"engine": "vllm"}, **rules) as router:  # type: ignore[arg-type]
        client = await router.send(kit.chat(stream=True, priority="high"))
        await client.recv_until(b'"b"')
        (x,) = router.app.parts.dispatcher.exchanges
        last = x.last_content_at()
        go.set()
        await kit.eventually(lambda: x.driver.state.resumptions == 1, "another replica is asked")
        assert x.last_content_at() == last
        assert silences(router, AHEAD_S)["high"] > AHEAD_S


@kit.scenario
async def test_the_body_is_kept_while_the_stream_may_be_continued() -> None:
    await relayed(is_kept=True, replica=VLLM, continuation=ON)


@kit.scenario
async def test_a_reload_turns_it_on_for_new_requests_and_off_again() -> None:
    fleet = Fleet(resets(4), resets(4), whole, resets(4))
    async with kit.running(fleet, fleet, replica=VLLM, health={"eject_after": 1000}) as router:
        for rules, is_whole in ((Continuation(), False), (ON, True), (Continuation(), False)):
            router.change(continuation=rules)
            await router.app.reload()
            assert (await router.ask(asking("chat"))).complete is is_whole
        assert outcomes(router) == {Outcome.CONTINUED: 1}
        shown = await router.admin("/metrics")
        assert b'hedgerow_continuations_total{outcome="continued"} 1.0' in shown.body
        assert router.app.census()["kept_text"] == 0
