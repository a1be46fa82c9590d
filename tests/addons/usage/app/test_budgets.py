"""Budgets of keys over sockets: refused before the queue, charged once for what the tenant got."""

import asyncio
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from router.addons.usage.budgets import WallClock
from router.config.keys import KeyLine, hash_of, line_of
from router.config.model import (
    AccessLog,
    Classes,
    CriticalClass,
    Hedging,
    Price,
    Usage as UsageConfig,
)
from router.core import clock
from router.core.errors import ConfigError, Reason
from router.core.periods import DAY_S, NAMES, seconds_to_next
from tests.addons.usage.app.helpers import budgets_of, used
from tests.app.pages import page
from tests.app.tenants.acme import ACME, USED, keys, tells
from tests.faults.attempts.test_two_copies import both_asked, says
from tests.faults.process.metrics import number, scrape
from tests.harness import kit

PRICES = UsageConfig(prices={"*": Price(input=1000.0, cached=0.0, output=10_000.0)})
COST = 400 * 1000.0 / 1e6 + 100 * 10_000.0 / 1e6  # cost of each answer of `tells`


def assert_over(answer: kit.Response, left_s: float) -> None:
    kit.assert_error(answer, Reason.INSUFFICIENT_QUOTA, 429)
    assert answer.error()["type"] == "insufficient_quota"
    header = answer.header("retry-after")
    assert header is not None
    assert 0 <= int(header) - left_s <= 20  # the time of the test, and less than a second
    # Within a minute, clients may wait and retry.
    assert answer.header("x-should-retry") == ("false" if int(header) > 60 else None)


@pytest.mark.parametrize("period", NAMES)
@pytest.mark.parametrize("unit", ["tokens", "cost"])
@kit.scenario
async def test_over_budget_is_a_429_until_the_budget_renews(
    tmp_path: Path, unit: str, period: str
) -> None:
    each = USED if unit == "tokens" else COST
    limits = {f"{unit}_per_{period}": each * 1.5}
    async with kit.running(tells, keys=keys(tmp_path, **limits), usage=PRICES) as router:
        for _ in range(2):
            assert (await router.ask(kit.chat(ACME), "POST")).status == 200
        answer = await router.ask(kit.chat(ACME), "POST")
        assert_over(answer, seconds_to_next(NAMES.index(period), time.time()))
        assert f"{unit} per {period}" in answer.error()["message"]
        assert len(router.replica.requests) == 2
        assert (await router.ask(kit.chat(), "POST")).status == 200  # another tenant
        name = f"{unit}_per_{period}"
        assert await used(router, name) == pytest.approx(each * 2)
        ratio = await number(
            router.app.admin_port,
            "hedgerow_tenant_budget_used_ratio",
            tenant="acme",
            unit=unit,
            period=period,
        )
        assert ratio == pytest.approx(2 / 1.5)


@kit.scenario
async def test_the_next_day_the_budget_is_whole_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = keys(tmp_path, tokens_per_day=10)
    async with kit.running(tells, keys=rules) as router:
        assert (await router.ask(kit.chat(ACME), "POST")).status == 200
        kit.assert_error(await router.ask(kit.chat(ACME), "POST"), Reason.INSUFFICIENT_QUOTA)
        real = time.time
        budgets_of(router)._clock = WallClock()  # It has not jumped.
        monkeypatch.setattr(clock, "wall", lambda: real() + DAY_S)
        assert (await router.ask(kit.chat(ACME), "POST")).status == 200
        kit.assert_error(await router.ask(kit.chat(ACME), "POST"), Reason.INSUFFICIENT_QUOTA)
        budgets_of(router)._clock = WallClock()
        monkeypatch.setattr(clock, "wall", real)
        kit.assert_error(await router.ask(kit.chat(ACME), "POST"), Reason.INSUFFICIENT_QUOTA)


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Pago_Pago"])
@kit.scenario
async def test_a_day_begins_at_midnight_of_the_time_zone(tmp_path: Path, zone: str) -> None:
    usage = UsageConfig(time_zone=zone, file=str(tmp_path / "usage.db"))
    local = datetime.now(ZoneInfo(zone))
    tomorrow = (local + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    async with kit.running(tells, keys=keys(tmp_path, tokens_per_day=10), usage=usage) as router:
        assert (await router.ask(kit.chat(ACME), "POST")).status == 200
        answer = await router.ask(kit.chat(ACME), "POST")
        assert_over(answer, tomorrow.timestamp() - time.time())
        assert zone in answer.error()["message"]
        told = await page(router, "/usage")
        renews_at = told["tenants"][0]["budgets"]["tokens_per_day"]["renews_at"]
        assert abs(renews_at - tomorrow.timestamp()) < 30
        assert abs(told["since"] - (tomorrow - timedelta(days=1)).timestamp()) < 30
        rows = (await router.admin("/usage?format=csv")).body.decode().splitlines()
        assert rows[1].startswith(local.strftime("%Y-%m-%d"))


@pytest.mark.parametrize("zone", ["Europe/Bonn", "", "../passwd", "/etc/passwd"])
def test_an_unknown_time_zone_is_refused(zone: str) -> None:
    from router.config.load import parse
    from router.core.errors import ConfigError

    with pytest.raises(ConfigError, match=r"usage.time_zone: .* is not a time zone"):
        parse(f"replicas: [http://a:1]\nusage: {{time_zone: '{zone}'}}\n")


@kit.scenario
async def test_priority_costs_more(tmp_path: Path) -> None:
    rules = keys(tmp_path, cost_per_day=1e6, ceiling="critical")
    classes = Classes(critical=CriticalClass(price_factor=4.0))
    async with kit.running(tells, keys=rules, usage=PRICES, classes=classes) as router:
        await router.ask(kit.chat(ACME), "POST")
        assert await used(router, "cost_per_day") == pytest.approx(COST)
        await router.ask(kit.chat(ACME, "x-priority: critical"), "POST")
        assert await used(router, "cost_per_day") == pytest.approx(COST * 5)


@kit.scenario
async def test_the_budget_is_checked_before_the_queue(tmp_path: Path) -> None:
    turnstile = kit.Turnstile()
    rules = keys(tmp_path, tokens_per_day=1)
    one = {"max_inflight": 1}
    async with kit.running(turnstile, keys=rules, replica=one) as router:
        client = await router.send(kit.chat(ACME))
        await kit.eventually(lambda: len(turnstile.tags) == 1, "the first is served")
        # The first request holds the whole budget.
        held = await router.ask(kit.chat(ACME), "POST")
        kit.assert_error(held, Reason.KEY_BUDGET_HELD, 429)
        assert held.header("x-should-retry") is None
        assert held.header("retry-after") == "1"
        turnstile.open()
        assert (await client.recv_response("POST")).status == 200
        await client.send(kit.chat())
        await kit.eventually(lambda: len(turnstile.tags) == 2, "another tenant's is served")
        kit.assert_error(await router.ask(kit.chat(ACME), "POST"), Reason.INSUFFICIENT_QUOTA)
        assert kit.waiting(router) == 0
        turnstile.open()
        assert (await client.recv_response("POST")).status == 200


def stream_of(tokens: int) -> bytes:
    """A stream without usage."""
    events = [*[kit.token("a")] * tokens, kit.DONE]
    return kit.SSE_HEAD + b"".join(map(kit.chunk, events)) + kit.LAST_CHUNK


@kit.scenario
async def test_concurrent_streams_below_the_budget_exceed_it_by_little(tmp_path: Path) -> None:
    """Twenty streams of 50 tokens at once, with a budget of 400 of which 50 are used."""
    release = asyncio.Event()
    fifty = kit.answer_after(release, stream_of(50))
    async with kit.running(fifty, keys=keys(tmp_path, tokens_per_day=400)) as router:
        release.set()
        assert (await router.ask(kit.chat(ACME, stream=True, max_tokens=60), "POST")).complete
        release.clear()
        clients = [await router.client() for _ in range(20)]
        for client in clients:
            # A huge limit of output does not matter, and neither does `n`.
            await client.send(kit.chat(ACME, stream=True, max_tokens=60, n=1))
        await kit.eventually(
            lambda: len(router.lines()) + len(router.replica.requests) >= 21, "all have come"
        )
        release.set()
        statuses = [(await client.recv_response("POST")).status for client in clients]
        assert set(statuses) == {200, 429}
        assert 300 <= await used(router, "tokens_per_day") <= 500
        assert router.app.census()["budget_holds"] == 0


@pytest.mark.parametrize("body", [{"max_tokens": 1 << 30}, {"n": 128}, {"max_tokens": -1}, {}])
@kit.scenario
async def test_a_client_cannot_hide_its_tokens(tmp_path: Path, body: dict[str, Any]) -> None:
    """A stream without usage is charged by its events, whatever the body states."""
    silent = kit.answer(stream_of(30))
    rules, no_usage = keys(tmp_path, tokens_per_day=25), UsageConfig(inject=False)
    async with kit.running(silent, keys=rules, usage=no_usage) as router:
        assert (await router.ask(kit.chat(ACME, stream=True, **body), "POST")).complete
        assert await used(router, "tokens_per_day") >= 30
        over = await router.ask(kit.chat(ACME, stream=True, **body), "POST")
        kit.assert_error(over, Reason.INSUFFICIENT_QUOTA)


@kit.scenario
async def test_what_was_not_served_costs_nothing_and_holds_nothing(tmp_path: Path) -> None:
    refuses = kit.answer(kit.json_response({"error": {"message": "no"}}, 400))
    rules = keys(tmp_path, tokens_per_day=100, requests_per_minute=2)
    async with kit.running(refuses, keys=rules) as router:
        for _ in range(2):
            assert (await router.ask(kit.chat(ACME), "POST")).status == 400
        # The budget admits this request, and the limit per minute refuses it.
        kit.assert_error(await router.ask(kit.chat(ACME), "POST"), Reason.KEY_REQUESTS)
        assert await used(router, "tokens_per_day") == 0
        assert router.app.census()["budget_holds"] == 0


@kit.scenario
async def test_a_client_that_leaves_pays_for_what_it_got(tmp_path: Path) -> None:
    behave = kit.stream_then_hang(kit.role(), kit.token("a"), kit.token("b"), kit.token("c"))
    async with kit.running(behave, keys=keys(tmp_path, tokens_per_day=2)) as router:
        client = await router.send(kit.chat(ACME, stream=True))
        await client.recv_until(b'"c"')
        client.rst()
        (line,) = await router.log()
        paid = await used(router, "tokens_per_day")
        assert paid == line["estimated_tokens"] + 3
        kit.assert_error(await router.ask(kit.chat(ACME), "POST"), Reason.INSUFFICIENT_QUOTA)
        assert await used(router, "tokens_per_day") == paid


@kit.scenario
async def test_a_hedged_request_is_charged_once(tmp_path: Path) -> None:
    """Both copies answer in the same moment, each with its token counts."""
    acts = [says("one"), says("two")]
    rules = keys(tmp_path, tokens_per_day=10_000)
    hedging = Hedging(policy="fixed", options={"delay_s": 0.02}, budget=1.0)
    async with kit.running(*acts, keys=rules, hedging=hedging, policy="round_robin") as router:
        client = await router.send(kit.chat(ACME, "x-priority: high", stream=True))
        await both_asked(*acts)
        for act in acts:
            act.go.set()
        assert (await client.recv_response("POST")).complete
        (line,) = await router.log()
        assert line["attempts"] == 2
        assert await used(router, "tokens_per_day") == line["estimated_tokens"] + 1


@kit.scenario
async def test_a_broken_stream_is_charged_once(tmp_path: Path) -> None:
    async def breaks(connection: kit.ReplicaConnection) -> None:
        await connection.recv_request()
        await connection.send(kit.SSE_HEAD, kit.chunk(kit.role()), kit.chunk(kit.token("a")))
        connection.close()

    async with kit.running(breaks, keys=keys(tmp_path, tokens_per_day=10_000)) as router:
        await router.ask(kit.chat(ACME, stream=True), "POST")
        (line,) = await router.log()
        assert await used(router, "tokens_per_day") == line["estimated_tokens"] + 1


@kit.scenario
async def test_every_api_family_gets_the_429(tmp_path: Path) -> None:
    async with kit.running(tells, keys=keys(tmp_path, tokens_per_month=1)) as router:
        await router.ask(kit.chat(ACME), "POST")
        body = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}]}
        answer = await router.ask(kit.post_json("/v1/messages", body, ACME), "POST")
        assert answer.status == 429
        assert answer.json()["error"]["code"] == "insufficient_quota"
        assert answer.json()["error"]["type"] == "rate_limit_error"


@kit.scenario
async def test_a_budget_that_a_reload_adds_counts_what_was_used_before(tmp_path: Path) -> None:
    async with kit.running(tells, keys=keys(tmp_path)) as router:
        await router.ask(kit.chat(ACME), "POST")
        keys(tmp_path, tokens_per_month=USED)
        await router.app.reload()
        kit.assert_error(await router.ask(kit.chat(ACME), "POST"), Reason.INSUFFICIENT_QUOTA)
        keys(tmp_path, tokens_per_month=USED + 1)
        await router.app.reload()
        assert (await router.ask(kit.chat(ACME), "POST")).status == 200
        keys(tmp_path)
        await router.app.reload()
        assert (await router.ask(kit.chat(ACME), "POST")).status == 200
        found = await scrape(router.app.admin_port)
        assert "hedgerow_tenant_budget_used_ratio" not in {name for name, _ in found}


@kit.routed(tells)
async def test_a_reload_that_adds_the_first_keys_and_fails_changes_nothing(
    router: kit.Router, tmp_path: Path
) -> None:
    before, log = router.app.parts.dispatcher.completion.accounts, router.config.access_log
    added = keys(tmp_path, tokens_per_month=USED)
    router.change(keys=added, access_log=AccessLog(path="/proc/none/log"))
    with pytest.raises(ConfigError, match="cannot be written"):
        await router.app.reload()
    assert router.app.parts.dispatcher.completion.accounts is before
    router.change(access_log=log)
    await router.app.reload()
    await router.ask(kit.chat(ACME), "POST")
    found = await scrape(router.app.admin_port)
    assert "hedgerow_tenant_budget_used_ratio" in {name for name, _ in found}


@kit.scenario
async def test_a_reload_while_a_request_runs_releases_its_hold(tmp_path: Path) -> None:
    async with kit.running(kit.hang, keys=keys(tmp_path, tokens_per_day=5000)) as router:
        client = await router.send(kit.chat(ACME))
        await router.replica.wait_for_requests(1)
        assert router.app.census()["budget_holds"] == 1
        keys(tmp_path, "umbrella")
        await router.app.reload()
        client.rst()
        await router.log()
        assert router.app.census()["budget_holds"] == 0


def test_a_budget_of_money_needs_prices(tmp_path: Path) -> None:
    from router.config.load import parse
    from router.core.errors import ConfigError

    path = keys(tmp_path, cost_per_day=5.0).file
    text = f"replicas: [http://a:1]\nkeys: {{file: {path}}}\n"
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert caught.value.problems == [
        "keys.file: acme has a budget of money, which needs usage.prices"
    ]
    for prices, models, missing in (
        ("m: {input: 1}", None, "a price for every model"),
        ("m: {input: 1}", ("m", "n"), "the price of n, or of "),
        ("m: {input: 1}", ("m", "alias"), "the price of other, or of "),
        ("m: {input: 1}", ("m",), ""),
        ("m: {input: 1}, other: {input: 1}", ("alias",), ""),
        ("'*': {input: 1}", None, ""),
    ):
        keys(tmp_path, cost_per_week=5.0, models=models)
        routes = "models: {alias: {targets: [{model: m}], fallbacks: [{model: other}]}}\n"
        whole = text + routes + f"usage: {{prices: {{{prices}}}}}\n"
        if not missing:
            parse(whole)
            continue
        with pytest.raises(ConfigError, match=f"acme has a budget of money, which needs {missing}"):
            parse(whole)


@kit.scenario
async def test_a_model_without_a_price_is_an_event_and_a_metric(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Possible only if an engine serves another model than the configuration states."""
    rules = keys(tmp_path, cost_per_day=1.0)
    usage = UsageConfig(prices={"other": Price(input=1.0)})
    async with kit.running(tells, keys=rules, usage=usage) as router:
        for _ in range(2):
            assert (await router.ask(kit.chat(ACME), "POST")).status == 200
        assert (await router.ask(kit.chat(), "POST")).status == 200
        name = "hedgerow_budget_unpriced_requests_total"
        assert await number(router.app.admin_port, name) == 2
        assert "a key with a budget of money uses a model without a price" in caplog.text


@pytest.mark.parametrize("value", ["0", "-1", "1e16", "NaN", "1e999", '"much"'])
def test_an_impossible_budget_is_refused(tmp_path: Path, value: str) -> None:
    from router.config.keys import KeysProblem, parse_keys

    line = line_of(KeyLine(name="acme", hash=hash_of(b"k")))
    with pytest.raises(KeysProblem):
        parse_keys(line.replace("}", f',"tokens_per_day":{value}}}').encode())
