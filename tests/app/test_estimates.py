"""The estimated time to first token, as shown by a running router."""

import asyncio
import re
from typing import Any

from router.config.model import Classes, CriticalClass, Priority
from router.core.conformal import LEAST as SCORES
from router.core.errors import Reason
from router.core.speed_learner import LEAST as SAMPLES
from tests.app.pages import by_class, page
from tests.harness.behaviours import sse_tokens
from tests.harness.messages import DONE, LAST_CHUNK, SSE_HEAD, chat, chunk, role, token
from tests.harness.queueing import counts
from tests.harness.reading import Response
from tests.harness.replica import ReplicaConnection
from tests.harness.running import Router, assert_error, running, scenario

ASKS = "x-ttft-estimate: true"
# Streams until the speed of the engine is known, and then the errors of its predictions.
KNOWN = SAMPLES + SCORES
ROUNDED_MS = 0.002  # difference of two logged times due to rounding, at most, in milliseconds
_VALUE = re.compile(r"(\d+); low=(\d+); high=(\d+)")


async def streams(router: Router, count: int, *fields: str) -> list[Response]:
    found = []
    for _ in range(count):
        found.append(await router.ask(chat(*fields, stream=True), "POST"))
        assert found[-1].complete
    return found


def estimate(answer: Response) -> tuple[int, int, int] | None:
    """The estimate and its interval in milliseconds; None: no such header."""
    value = answer.header("x-ttft-estimate-ms")
    if value is None:
        return None
    found = _VALUE.fullmatch(value)
    assert found is not None, value
    middle, low, high = map(int, found.groups())
    return middle, low, high


def kept(lines: list[dict[str, Any]], margin_ms: float) -> int:
    """The number of first tokens within their intervals, after a margin is added to each bound."""
    return sum(
        line["ttft_low_ms"] - margin_ms <= line["ttft_ms"] <= line["ttft_high_ms"] + margin_ms
        for line in lines
    )


@scenario
async def test_a_response_has_the_estimate_if_the_client_asks_for_it() -> None:
    async with running(sse_tokens(3)) as router:
        before = await streams(router, KNOWN, ASKS)
        assert {estimate(answer) for answer in before} == {None}, "nothing was known"
        (asked,) = await streams(router, 1, ASKS)
        found = estimate(asked)
        assert found is not None and found[1] <= found[0] <= found[2]
        (silent,) = await streams(router, 1)
        assert estimate(silent) is None
        whole = await router.ask(chat(ASKS), "POST")
        assert estimate(whole) is None
        lines = await router.log(KNOWN + 3)
        given = [line for line in lines if "ttft_estimate_ms" in line]
        assert len(given) == 2
        for line in given:
            assert line["ttft_low_ms"] <= line["ttft_estimate_ms"] <= line["ttft_high_ms"]
        assert round(given[0]["ttft_estimate_ms"]) == found[0]


@scenario
async def test_the_metrics_and_the_page_have_the_coverage() -> None:
    async with running(sse_tokens(3)) as router:
        await streams(router, KNOWN + 40, "x-priority: low")
        lines = await router.log(KNOWN + 40)
        given = [line for line in lines if "ttft_estimate_ms" in line]
        assert await by_class(router, "hedgerow_ttft_estimates_total") == {"low": 40.0}
        counted = (await by_class(router, "hedgerow_ttft_estimates_kept_total"))["low"]
        # The log rounds times and bounds to microseconds, so a time near a bound may count
        # differently.
        assert kept(given, -ROUNDED_MS) <= counted <= kept(given, ROUNDED_MS)
        widths_s = (await by_class(router, "hedgerow_ttft_estimate_width_seconds_total"))["low"]
        logged_s = sum(line["ttft_high_ms"] - line["ttft_low_ms"] for line in given) / 1000.0
        assert abs(widths_s - logged_s) < 0.001 * 40
        shown = (await page(router, "/queue"))["ttft_estimates"]
        assert shown["coverage"]["low"]["estimates"] == 40
        ratios = shown["classes"]["low"]["at_once"]
        assert 0.0 < ratios["ratio_low"] <= ratios["ratio_median"] <= ratios["ratio_high"]
        assert shown["classes"]["high"]["at_once"] is None


@scenario
async def test_an_early_200_has_the_estimate() -> None:
    release = asyncio.Event()
    release.set()

    async def engine(connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            await release.wait()
            await connection.send(SSE_HEAD, chunk(role()), chunk(token("t")), chunk(DONE))
            await connection.send(LAST_CHUNK)

    async with running(engine, timeouts={"commit_after_s": 0.05}) as router:
        await streams(router, KNOWN)
        release.clear()
        client = await router.client()
        await client.send(chat(ASKS, stream=True))
        await router.answers_early()
        release.set()
        assert estimate(await client.recv_response("POST")) is not None
        client.close()


@scenario
async def test_a_class_may_refuse_a_request_that_would_be_late() -> None:
    """No answer can meet the SLO of class critical here, not even that of an idle replica."""
    classes = Classes(critical=CriticalClass(ttft_slo_s=1e-6, late="refuse"))
    rules = Priority(ceiling="critical")
    async with running(sse_tokens(3), classes=classes, priority=rules) as router:
        await streams(router, KNOWN, "x-priority: critical")
        answer = await router.ask(chat("x-priority: critical", stream=True), "POST")
        assert_error(answer, Reason.TTFT_UNREACHABLE, 429)
        assert b"the first token is expected in" in answer.body
        assert answer.header("retry-after") is None
        await streams(router, 1, "x-priority: high")
        (line, *_) = [line for line in await router.log(KNOWN + 2) if line["status"] == 429]
        assert line["reason"] == "ttft_unreachable"
        assert not line["attempts"] and "replica" not in line
        assert counts(router, "ttft_unreachable") == [1, 0, 0, 0, 0]
        assert counts(router, "passed") == [KNOWN, 1, 0, 0, 0]
