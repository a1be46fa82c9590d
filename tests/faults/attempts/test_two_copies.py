"""Two copies of a request in every combination of ends: one response, and nothing stays held."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from router.config.model import Hedging, Replica
from router.core.errors import Reason
from tests.harness import kit

URGENT = "x-priority: high"


def refusal(message: str, status: int = 500) -> bytes:
    error = {"message": message, "type": "x", "param": None, "code": None}
    return kit.json_response({"error": error}, status)


class Act:
    """A replica's action for one request, triggered by the test."""

    def __init__(self, *sends: bytes, rst: bool = False) -> None:
        self.asked = asyncio.Event()
        self.go = asyncio.Event()
        self.gone = asyncio.Event()
        self._sends = sends
        self._rst = rst

    async def __call__(self, connection: kit.ReplicaConnection) -> None:
        await connection.recv_request()
        self.asked.set()
        over = asyncio.ensure_future(kit.until_closed(connection))
        go = asyncio.ensure_future(self.go.wait())
        await asyncio.wait((over, go), return_when=asyncio.FIRST_COMPLETED)
        go.cancel()
        if not over.done() and self._sends:
            await connection.send(*self._sends)
        if not over.done() and self._rst:
            over.cancel()
            await asyncio.wait((over,))
            connection.rst()
        else:
            await over
        self.gone.set()


def says(text: str) -> Act:
    return Act(kit.SSE_HEAD, kit.chunk(kit.token(text)), kit.chunk(kit.DONE), kit.LAST_CHUNK)


@asynccontextmanager
async def racing(
    *behaviours: kit.Behaviour | kit.HostileReplica,
    spare: kit.Behaviour | None = None,
    delay_s: float = 0.02,
    **rules: Any,
) -> AsyncIterator[kit.Router]:
    """`spare`: a further replica, on the node of the first one, so that copies avoid it."""
    hedging = Hedging(policy="fixed", options={"delay_s": delay_s}, budget=1.0, **rules)
    rules = {"hedging": hedging, "retry": {"backoff_s": 0.0}, "policy": "round_robin"}
    if spare is not None:
        hostiles = [
            behave if isinstance(behave, kit.HostileReplica) else kit.HostileReplica(behave)
            for behave in (*behaviours, spare)
        ]
        for hostile in hostiles:
            hostile.start()
        nodes = ("a", *["b"] * (len(behaviours) - 1), "a")
        rules["replicas"] = tuple(
            Replica(url=hostile.url, id=f"r{n}", node=node)
            for n, (hostile, node) in enumerate(zip(hostiles, nodes, strict=True))
        )
        started: tuple[kit.Behaviour | kit.HostileReplica, ...] = tuple(hostiles)
    else:
        started = behaviours
    async with kit.running(*started, **rules) as router:
        yield router


async def both_asked(*acts: Act) -> None:
    for act in acts:
        await act.asked.wait()


async def counts(router: kit.Router) -> tuple[int, int, int, int]:
    """Numbers of copies that were sent, won, lost and failed."""
    for client in router.clients:
        client.close()
    await router.quiet()
    found = router.app.parts.context.hedger.metrics
    return found.fired, found.won, found.lost, found.failed


@pytest.mark.parametrize("first", [0, 1])
@kit.virtual_scenario
async def test_both_answer_in_the_same_moment(first: int) -> None:
    acts = says("from 0"), says("from 1")
    async with racing(*acts) as router:
        client = await router.send(kit.chat(URGENT, stream=True))
        await both_asked(*acts)
        acts[first].go.set()
        acts[1 - first].go.set()
        got = await client.recv_response("POST")
        assert got.events()[-1] == "[DONE]"
        said = "".join(got.events())
        assert ("from 0" in said) != ("from 1" in said)
        fired, won, lost, failed = await counts(router)
        assert (fired, won + lost, failed) == (1, 1, 0)


SAYS_NO = b'data: {"error":{"message":"no","type":"x","code":500}}\n\n'
FAILURES: dict[str, Callable[[], Act]] = {
    "500": lambda: Act(refusal("no", 500)),
    "400": lambda: Act(refusal("no", 400)),
    "429": lambda: Act(refusal("no", 429)),
    "error inside a stream": lambda: Act(
        kit.SSE_HEAD, kit.chunk(kit.role()), kit.chunk(SAYS_NO), kit.chunk(kit.DONE), kit.LAST_CHUNK
    ),
    "death": lambda: Act(rst=True),
}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("who", [0, 1])
@kit.virtual_scenario
async def test_what_fails_first_does_not_win(who: int, failure: str) -> None:
    acts = [says("content"), says("content")]
    acts[who] = FAILURES[failure]()
    async with racing(*acts) as router:
        client = await router.send(kit.chat(URGENT, stream=True))
        await both_asked(*acts)
        acts[who].go.set()
        await kit.eventually(lambda: len(live(router)) == 1, "it is put aside")
        acts[1 - who].go.set()
        got = await client.recv_response("POST")
        assert (got.status, got.events()[-1]) == (200, "[DONE]")
        assert "content" in "".join(got.events())
        assert "error" not in "".join(got.events())
        assert (await router.log())[0]["reason"] == "ok"


def live(router: kit.Router) -> list[object]:
    (exchange,) = router.app.parts.dispatcher.exchanges
    return [a for a in exchange.driver.state.attempts if a.held]


@pytest.mark.parametrize("early", [0, 1])
@kit.virtual_scenario
async def test_both_refuse_and_the_first_ones_answer_is_relayed(early: int) -> None:
    acts = [Act(refusal("the first", 500)), Act(refusal("the second", 400))]
    async with racing(*acts, spare=kit.json_ok) as router:
        client = await router.send(kit.chat(URGENT))
        await both_asked(*acts)
        acts[early].go.set()
        await kit.eventually(lambda: len(live(router)) == 1, "put aside")
        acts[1 - early].go.set()
        got = await client.recv_response("POST")
        assert (got.status, got.error()["message"]) == (500, "the first")
        assert await router.reason() == "server_error"
        assert not router.replicas[2].requests, "and on a third nobody calls"


@kit.virtual_scenario
async def test_both_streams_report_an_error_behind_an_early_200() -> None:
    acts = [FAILURES["error inside a stream"]() for _ in range(2)]
    hedging = Hedging(policy="fixed", options={"delay_s": 0.02}, budget=1.0)
    timeouts = {"commit_after_s": 0.05}
    async with kit.running(*acts, hedging=hedging, timeouts=timeouts) as router:
        client = await router.send(kit.chat(URGENT, stream=True))
        await both_asked(*acts)
        await router.answers_early()
        for act in acts:
            act.go.set()
        kit.assert_error_event(await client.recv_response("POST"), Reason.STREAM_ERROR)
        assert await router.reason() == "stream_error"


@kit.virtual_scenario
async def test_a_retry_that_hangs_gets_a_copy() -> None:
    dies, hangs, answers = Act(rst=True), Act(), says("from the copy")
    dies.go.set()
    answers.go.set()
    async with racing(dies, hangs, answers, delay_s=0.5) as router:
        got = await router.ask(kit.chat(URGENT, stream=True), "POST")
        assert "from the copy" in "".join(got.events())
        assert hangs.asked.is_set() and (await router.log())[0]["attempts"] == 3
        assert await counts(router) == (1, 1, 0, 0)


@kit.virtual_scenario
async def test_both_fail_and_it_counts_as_one_failure() -> None:
    acts = [Act(rst=True), Act(rst=True)]
    async with racing(*acts, spare=kit.json_ok) as router:
        client = await router.send(kit.chat(URGENT))
        await both_asked(*acts)
        acts[0].go.set()
        await kit.eventually(lambda: len(live(router)) == 1, "one is dead")
        acts[1].go.set()
        kit.assert_error(await client.recv_response("POST"), Reason.REPLICA_RESET)
        assert not router.replicas[2].requests, "what kills two is not tried on a third"
        assert (await counts(router))[3] == 1


@kit.virtual_scenario
async def test_both_engines_are_freed_when_the_client_disconnects() -> None:
    acts = [says("a"), says("b")]
    async with racing(*acts) as router:
        client = await router.send(kit.chat(URGENT, stream=True))
        await both_asked(*acts)
        client.rst()
        for act in acts:
            await act.gone.wait()
        assert await router.reason() == "client_gone"
        await router.quiet()


@kit.virtual_scenario
async def test_the_loser_is_cancelled_at_its_engine() -> None:
    slow, fast = Act(), says("b")
    async with racing(slow, fast) as router:
        client = await router.send(kit.chat(URGENT, stream=True))
        await both_asked(slow, fast)
        fast.go.set()
        assert (await client.recv_response("POST")).events()[-1] == "[DONE]"
        await slow.gone.wait()


@pytest.mark.parametrize(
    "nothing",
    [b"", kit.chunk(kit.role()), kit.chunk(b": waiting\n\n"), kit.chunk(b"\n\n")],
    ids=["a head", "a role", "a comment", "an empty event"],
)
@kit.virtual_scenario
async def test_an_event_without_content_does_not_win(nothing: bytes) -> None:
    mute, fast = Act(kit.SSE_HEAD, nothing), says("content")
    async with racing(mute, fast) as router:
        client = await router.send(kit.chat(URGENT, stream=True))
        await both_asked(mute, fast)
        mute.go.set()
        await asyncio.sleep(0.05)
        fast.go.set()
        got = await client.recv_response("POST")
        assert "content" in "".join(got.events())
        assert (await router.log())[0]["replica"] == "r1"


@pytest.mark.parametrize(
    "broken", [kit.response(body=b'{"choices": ['), kit.response(body=b"")], ids=["cut", "empty"]
)
@kit.virtual_scenario
async def test_an_invalid_answer_does_not_win(broken: bytes) -> None:
    first, second = Act(broken), Act(kit.completion())
    async with racing(first, second) as router:
        client = await router.send(kit.chat(URGENT))
        await both_asked(first, second)
        first.go.set()
        await kit.eventually(lambda: len(live(router)) == 1, "it does not count")
        second.go.set()
        got = await client.recv_response("POST")
        assert got.status == 200
        assert got.json()["choices"]


@kit.virtual_scenario
async def test_after_content_nothing_is_hedged() -> None:
    begun = Act(kit.SSE_HEAD, kit.chunk(kit.token("a")))
    other = kit.HostileReplica(kit.sse_tokens())
    async with racing(begun, other, delay_s=0.5, by_header=True) as router:
        client = await router.client()
        begun.go.set()
        await client.send(kit.chat(URGENT, stream=True))
        await client.recv_until(b'"a"')
        await asyncio.sleep(0.6)  # longer than the delay of a hedge
        assert not other.requests
        client.rst()
        await router.quiet()


@pytest.mark.parametrize(
    ("lines", "extra"),
    [
        ((), {}),
        (("x-priority: low",), {}),
        ((URGENT, "x-hedge: off"), {}),
        (("x-hedge: on",), {}),  # the client has no permission for `x-hedge: on`
        ((URGENT,), {"n": 2}),
    ],
    ids=["no class", "low", "declined", "asked", "two choices"],
)
@kit.virtual_scenario
async def test_which_requests_get_no_second_copy(
    lines: tuple[str, ...], extra: dict[str, Any]
) -> None:
    first = Act(kit.completion())
    other = kit.HostileReplica(kit.json_ok)
    async with racing(first, other) as router:
        client = await router.send(kit.chat(*lines, **extra))
        await first.asked.wait()
        await asyncio.sleep(0.1)
        assert not other.requests
        first.go.set()
        assert (await client.recv_response("POST")).status == 200


@kit.virtual_scenario
async def test_a_header_asks_for_a_copy_where_it_may() -> None:
    fast = kit.HostileReplica(kit.sse_tokens())
    async with racing(kit.hang, fast, by_header=True) as router:
        got = await router.ask(kit.chat("x-hedge: on", stream=True))
        assert got.events()[-1] == "[DONE]"
        assert len(fast.requests) == 1


@kit.virtual_scenario
async def test_with_one_replica_no_copy_is_sent() -> None:
    only = says("content")
    async with racing(only) as router:
        client = await router.send(kit.chat(URGENT, stream=True))
        await only.asked.wait()
        await asyncio.sleep(0.1)
        only.go.set()
        assert (await client.recv_response("POST")).events()[-1] == "[DONE]"
        assert (await counts(router))[0] == 0


@kit.virtual_scenario
async def test_a_winner_that_breaks_is_cut_though_another_would_have_answered() -> None:
    first = Act(kit.SSE_HEAD, kit.chunk(kit.token("a")), rst=True)
    second = says("b")
    async with racing(first, second) as router:
        client = await router.send(kit.chat(URGENT, stream=True))
        await both_asked(first, second)
        first.go.set()
        kit.assert_cut_stream(await client.recv_response("POST"), Reason.REPLICA_RESET)
        await second.gone.wait()
