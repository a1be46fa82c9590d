"""The SLOs of requests and their gain, as reported by a running router."""

from pathlib import Path

from router.config.model import (
    Classes,
    ClassSettings,
    CriticalClass,
    HighClass,
    LowClass,
    Priority,
)
from router.core.errors import Reason
from tests.app.pages import by_class, samples
from tests.app.tenants.acme import ACME, keys
from tests.harness.behaviours import sse_tokens
from tests.harness.messages import chat, json_response
from tests.harness.queueing import ONE, Turnstile, queue, send
from tests.harness.replica import ReplicaConnection
from tests.harness.running import Router, assert_error, running, scenario


async def by_slo(router: Router, family: str) -> dict[tuple[str, str], float]:
    return await samples(router, family, "class", "slo")


@scenario
async def test_slos_and_gain_by_class() -> None:
    """Class critical has SLOs that no answer can meet, and class batch those as shipped."""
    classes = Classes(critical=CriticalClass(ttft_slo_s=1e-6, tpot_slo_s=1e-6, weight=3.0))
    rules = Priority(ceiling="critical")
    async with running(sse_tokens(5), classes=classes, priority=rules) as router:
        for priority in ("critical", "batch", "batch"):
            answer = await router.ask(chat(stream=True, priority=priority), "POST")
            assert answer.complete
        lines = await router.log(3)
        assert [line["output_tokens"] for line in lines] == [5, 5, 5]
        # Without the field all tokens were on time.
        assert [line.get("tokens_on_time") for line in lines] == [0, None, None]
        slos = ("ttft", "tpot", "all")
        assert await by_slo(router, "hedgerow_slo_requests_total") == {
            (name, slo): n for name, n in (("critical", 1.0), ("batch", 2.0)) for slo in slos
        }
        assert await by_slo(router, "hedgerow_slo_met_total") == {
            (name, slo): n for name, n in (("critical", 0.0), ("batch", 2.0)) for slo in slos
        }
        achieved = await by_class(router, "hedgerow_gain_achieved_total")
        assert achieved == {"critical": 0.0, "batch": 2 * 5.0}
        attainable = await by_class(router, "hedgerow_gain_attainable_total")
        assert attainable == {"critical": 3.0 * 5.0, "batch": 2 * 5.0}
        assert await by_class(router, "hedgerow_slo_ttft_seconds") == {
            name: rules.ttft_slo_s for name, rules in classes.by_name.items()
        }
        assert await by_class(router, "hedgerow_slo_tpot_seconds") == {
            name: rules.tpot_slo_s for name, rules in classes.by_name.items()
        }


IMPOSSIBLE, EASY = "x-slo-ttft-ms: 0.001", "x-slo-tpot-ms: 60000"


@scenario
async def test_the_first_token_of_a_stream_can_be_late_alone() -> None:
    async with running(sse_tokens(5), priority=Priority(ceiling="critical")) as router:
        fields = ("x-priority: critical", IMPOSSIBLE, EASY)
        assert (await router.ask(chat(*fields, stream=True), "POST")).complete
        (line,) = await router.log()
        assert (line["ttft_slo_ms"], line["tpot_slo_ms"]) == (0.001, 60_000.0)
        assert (line["tokens_on_time"], line["output_tokens"]) == (4, 5)
        met = await by_slo(router, "hedgerow_slo_met_total")
        assert met == {("critical", slo): float(slo == "tpot") for slo in ("ttft", "tpot", "all")}


@scenario
async def test_a_client_states_an_slo_within_its_class() -> None:
    """The SLO of class high then applies, and the log has the client's."""
    classes = Classes(high=HighClass(ttft_slo_s=60.0), normal=ClassSettings(ttft_slo_s=60.0))
    async with running(sse_tokens(5), classes=classes) as router:
        assert (await router.ask(chat(IMPOSSIBLE, stream=True), "POST")).complete
        (line,) = await router.log()
        assert line["ttft_slo_ms"] == 0.001
        assert "tokens_on_time" not in line and "tpot_slo_ms" not in line


@scenario
async def test_whole_and_failed_answers_have_an_slo() -> None:
    async def refuses(connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            await connection.send(json_response({"error": {"message": "no"}}, 400))

    turnstile = Turnstile()
    turnstile.open(1)
    async with running(
        turnstile, replica=ONE, queue=queue(), classes=Classes(low=LowClass(depth=1))
    ) as router:
        assert (await router.ask(chat(priority="low"), "POST")).status == 200
        first = await send(router, "first", queued=False)
        second = await send(router, "second", priority="low")
        assert_error(await router.ask(chat(priority="low"), "POST"), Reason.QUEUE_FULL)
        for client in (first, second):
            client.close()
        lines = await router.log(4)
        refused = next(line for line in lines if line["reason"] == "queue_full")
        assert refused["tokens_on_time"] == 0
        # The client that left did so before its deadline.
        assert (await by_slo(router, "hedgerow_slo_requests_total"))["low", "all"] == 2.0
        assert (await by_slo(router, "hedgerow_slo_met_total"))["low", "all"] == 1.0
    async with running(refuses) as router:
        assert (await router.ask()).status == 400
        assert await by_slo(router, "hedgerow_slo_requests_total") == {}


@scenario
async def test_an_unreadable_slo_is_refused() -> None:
    async with running(sse_tokens(5)) as router:
        for field in ("x-slo-ttft-ms: soon", "x-slo-tpot-ms: 0"):
            answer = await router.ask(chat(field), "POST")
            assert_error(answer, Reason.BAD_HEADER, 400)
            assert field.partition(":")[0].encode() in answer.body


@scenario
async def test_a_key_may_have_a_tighter_slo_than_its_class(tmp_path: Path) -> None:
    rules = keys(tmp_path, ttft_slo_ms=0.001, tpot_slo_ms=60_000.0)
    async with running(sse_tokens(5), keys=rules) as router:
        for priority in ("low", "batch"):
            data = chat(ACME, stream=True, priority=priority)
            assert (await router.ask(data, "POST")).complete
        low, batch = await router.log(2)
        assert (low["ttft_slo_ms"], low["tpot_slo_ms"]) == (0.001, 60_000.0)
        assert low["tokens_on_time"] == 4
        # The key's SLOs are not for batch requests.
        assert not {"ttft_slo_ms", "tpot_slo_ms", "tokens_on_time"} & set(batch)
