"""A client that disconnects stops its generation, wherever the request is.

Checked at the engine itself: its running and waiting counts return to zero, and no request finishes
normally in the meantime, as an unstopped generation would. The delay is counted in tokens, not in
seconds, because load on the machine slows the delay and the tokens alike.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import astuple

import httpx
import pytest

from router.core.errors import Reason
from tests.engine.loads import bodies
from tests.engine.loads.raw_client import RawClient
from tests.engine.machine.fleet import SLOTS, Engines, EngineState, Hedgerow
from tests.engine.machine.processes import eventually

CHAT = "/v1/chat/completions"
LONG = 3500  # output tokens; half a minute of an otherwise idle engine
WITHIN_S = 30.0

Leave = Callable[[RawClient], None]

both_ways_to_leave = pytest.mark.parametrize(
    "leave", [RawClient.leave, RawClient.vanish], ids=["fin", "reset"]
)


def states(engines: Engines) -> tuple[EngineState, EngineState]:
    return engines[0].state(), engines[1].state()


def total(engines: Engines) -> EngineState:
    one, other = (astuple(state) for state in states(engines))
    return EngineState(*(a + b for a, b in zip(one, other, strict=True)))


def wait_until_running(engines: Engines, count: int) -> None:
    eventually(
        lambda: total(engines).running == count, WITHIN_S, lambda: f"{count} run: {states(engines)}"
    )


def queued(hedgerow: Hedgerow) -> int:
    """Requests that wait in the router."""
    waiting: int = httpx.get(f"{hedgerow.admin}/queue").json()["waiting"]
    return waiting


def assert_stopped(engines: Engines, start: EngineState, left: EngineState, requests: int) -> None:
    """All requests since `start` were aborted, soon after the scrape `left`."""
    eventually(lambda: total(engines).is_idle, WITHIN_S, lambda: f"idle: {states(engines)}")
    now = total(engines)
    assert now.finished == start.finished
    assert now.generated_tokens - left.generated_tokens < requests * LONG / 3


def assert_logged(hedgerow: Hedgerow, requests: int) -> None:
    """The access log has a disconnect for every cancelled request."""

    def reasons() -> list[str]:
        return [record["reason"] for record in hedgerow.records()]

    eventually(lambda: len(reasons()) >= requests, WITHIN_S, lambda: f"logged: {reasons()}")
    assert reasons() == [Reason.CLIENT_GONE] * requests


@both_ways_to_leave
def test_stream_after_some_tokens(engines: Engines, hedgerow: Hedgerow, leave: Leave) -> None:
    start = total(engines)
    with RawClient(hedgerow.url, CHAT, bodies.chat("leaves early", LONG, stream=True)) as client:
        client.read_events(5)
        left = total(engines)
        leave(client)
        assert_stopped(engines, start, left, requests=1)
    assert_logged(hedgerow, requests=1)


@both_ways_to_leave
def test_whole_answer_under_way(engines: Engines, hedgerow: Hedgerow, leave: Leave) -> None:
    start = total(engines)
    with RawClient(hedgerow.url, CHAT, bodies.chat("will not wait", LONG)) as client:
        wait_until_running(engines, 1)
        left = total(engines)
        leave(client)
        assert_stopped(engines, start, left, requests=1)
    assert_logged(hedgerow, requests=1)


@both_ways_to_leave
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_before_the_first_token(
    engines: Engines, hedgerow: Hedgerow, stream: bool, leave: Leave
) -> None:
    """While every slot of both engines is taken, the request waits in an engine's own queue."""
    with ExitStack() as stack:
        for engine in engines:
            for number in range(SLOTS):
                body = bodies.chat(f"takes slot {number}", LONG, stream=True)
                stack.enter_context(RawClient(engine.url, CHAT, body))
        wait_until_running(engines, 2 * SLOTS)
        start = total(engines)
        body = bodies.chat("never served", LONG, stream=stream)
        client = stack.enter_context(RawClient(hedgerow.url, CHAT, body))
        eventually(lambda: total(engines).waiting == 1, WITHIN_S, "one waits")
        leave(client)
        eventually(lambda: total(engines).waiting == 0, WITHIN_S, "none waits")
        # The cancelled request got no slot: the same sixteen requests hold all slots, and none of
        # them has ended.
        now = total(engines)
        assert (now.running, now.finished) == (2 * SLOTS, start.finished)
    assert_logged(hedgerow, requests=1)


def test_a_crowd_leaves_at_once(engines: Engines, hedgerow: Hedgerow) -> None:
    """Requests run, wait at an engine and wait in the router, as streams and whole answers.

    After all clients disconnect, every slot is free, and no waiting request is sent.
    """
    crowd = 30
    start = total(engines)
    with ExitStack() as stack:
        clients = [
            stack.enter_context(
                RawClient(hedgerow.url, CHAT, bodies.chat(f"number {n}", LONG, stream=n % 2 == 0))
            )
            for n in range(crowd)
        ]
        wait_until_running(engines, 2 * SLOTS)
        eventually(
            lambda: 0 < total(engines).waiting == crowd - 2 * SLOTS - queued(hedgerow),
            WITHIN_S,
            lambda: f"the rest waits: {states(engines)}, {queued(hedgerow)} in the router",
        )
        left = total(engines)
        for client in clients:
            client.leave()
        assert_stopped(engines, start, left, requests=2 * SLOTS)
    assert_logged(hedgerow, requests=crowd)
