"""The wall clock may jump by an hour: timers and streams are not affected, and dates follow it."""

import time
from email.utils import parsedate_to_datetime

import pytest

from router.core import clock
from router.core.errors import Reason
from tests.harness.behaviours import hang, json_ok, stream_then_hang
from tests.harness.messages import chat, request, role, token
from tests.harness.reading import Response
from tests.harness.replica import eventually
from tests.harness.running import Router, assert_cut_stream, assert_error, routed, running, scenario

JUMPS = pytest.mark.parametrize("jump_s", [3600.0, -3600.0, -1e9], ids=["on", "back", "to 1990"])
NEAR_S = 30.0  # seconds: far more than a test takes, far less than a jump of the clock


def jump(monkeypatch: pytest.MonkeyPatch, by_s: float) -> float:
    """Move the wall clock and return its new time. Monotonic clocks are not changed."""
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + by_s)
    monkeypatch.setattr(clock, "wall", time.time)
    return time.time()


def dated(answer: Response) -> float:
    date = answer.header("date")
    assert date is not None
    assert date.endswith(" GMT")
    return parsedate_to_datetime(date).timestamp()


@JUMPS
@routed(stream_then_hang(role(), token("a")))
async def test_no_timer_follows_it(
    router: Router, jump_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = await router.send(chat(stream=True))
    await stream.recv_until(b'"a"')
    jump(monkeypatch, jump_s)
    second = await router.send(chat(stream=True))
    await second.recv_until(b'"a"')
    assert stream.ended is None
    assert router.busy()["leases"] == 2
    stream.rst()
    second.rst()
    await eventually(lambda: len(router.lines()) == 2, "both requests logged")
    assert {line["reason"] for line in router.lines()} == {"client_gone"}


@JUMPS
@scenario
async def test_deadlines_come_when_they_are_due(
    jump_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deadlines that were set before and after the jump: neither waits an hour longer."""
    due = {"whole_s": 0.4, "token_gap_s": 0.4, "head_s": 0.4, "keep_alive_s": 0.4}
    async with running(
        hang, stream_then_hang(token("a")), timeouts=due, policy="round_robin"
    ) as router:
        waits, streams, silent = [await router.client() for _ in range(3)]
        await waits.send(chat())
        await router.replica.wait_for_requests(1)
        await streams.send(chat(stream=True))
        while b'"a"' not in streams.unread:
            assert await streams.fill()
        jump(monkeypatch, jump_s)
        assert_error(await waits.recv_response(), Reason.WHOLE_TIMEOUT)
        assert_cut_stream(await streams.recv_response(), Reason.TOKEN_GAP_TIMEOUT)
        await silent.expect_close()
        assert_error(await router.ask(chat()), Reason.WHOLE_TIMEOUT)


@JUMPS
@routed(json_ok)
async def test_dates_and_the_log_show_the_clock_as_it_is(
    router: Router, jump_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await router.client()
    before = time.time()
    await client.send(chat())
    assert abs(dated(await client.recv_response()) - before) < NEAR_S
    after = jump(monkeypatch, jump_s)
    await client.send(chat())
    # The router writes the date, because the replica sent none.
    assert abs(dated(await client.recv_response()) - after) < NEAR_S
    await client.send(request("/metrics"))
    assert abs(dated(await client.recv_response()) - after) < NEAR_S  # the router's own answer
    first, second, refused = await router.log(3)
    assert abs(first["ts"] - before) < NEAR_S
    assert abs(second["ts"] - after) < NEAR_S
    assert abs(refused["ts"] - after) < NEAR_S


@JUMPS
@routed(stream_then_hang(role(), token("a")))
async def test_no_duration_holds_the_jump(
    router: Router, jump_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await router.send(chat(stream=True))
    await client.recv_until(b'"a"')
    after = jump(monkeypatch, jump_s)
    client.rst()
    (line,) = await router.log(1)
    assert 0 <= line["duration_ms"] < NEAR_S * 1e3
    assert 0 <= line["ttft_ms"] <= line["duration_ms"]
    assert 0 <= line["tried"][0][3] <= line["duration_ms"]
    assert abs(line["ts"] - after) < NEAR_S


@JUMPS
@routed(json_ok)
async def test_pooled_connections_do_not_age(
    router: Router, jump_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await router.client()
    for turn in range(3):
        await client.send(chat())
        assert (await client.recv_response()).status == 200
        if turn == 0:
            jump(monkeypatch, jump_s)
    assert len(router.replica.sessions) == 1
