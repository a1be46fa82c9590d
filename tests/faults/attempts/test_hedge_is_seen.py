"""Hedging as shown to an operator: the access log, /metrics, /hedging, and suspect replicas."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from router.config.model import Hedging
from router.dispatch.hedging.ttft_prior import STREAMS
from router.fleet.health import RACES
from tests.harness.behaviours import hang, sse_tokens, stream_then_hang
from tests.harness.messages import chat, role
from tests.harness.replica import Behaviour, HostileReplica, eventually
from tests.harness.running import Router, running, virtual_scenario

URGENT = "x-priority: high"


@asynccontextmanager
async def hedged(*behaviours: Behaviour | HostileReplica, **rules: Any) -> AsyncIterator[Router]:
    hedging = Hedging(policy="fixed", options={"delay_s": 0.02}, budget=1.0, **rules)
    # No late first token makes a replica suspect.
    health = {"slow_start_s": 0.0, "suspect_min_s": 60.0}
    async with running(*behaviours, hedging=hedging, health=health, policy="round_robin") as router:
        yield router


async def admin(router: Router, path: str) -> Any:
    url = f"http://127.0.0.1:{router.app.admin_port}{path}"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        assert answer.status == 200
        if answer.content_type == "application/json":
            return await answer.json()
        return await answer.text()


async def metrics(router: Router) -> dict[str, float]:
    """Every sample by its name and labels as written, without `hedgerow_`."""
    found = {}
    for line in (await admin(router, "/metrics")).splitlines():
        if line.startswith("hedgerow_"):
            name, _, value = line.rpartition(" ")
            found[name.removeprefix("hedgerow_")] = float(value)
    return found


async def ask_slow_first(router: Router) -> None:
    """One urgent stream whose first attempt goes to the first replica, independent of
    earlier ones.
    """
    fleet = router.app.parts.fleet
    slow = fleet.replicas["r0"]
    while True:
        before = sum(len(r.requests) for r in router.replicas[:1])
        got = await router.ask(chat(URGENT, stream=True))
        assert (got.status, got.events()[-1]) == (200, "[DONE]")
        if len(router.replicas[0].requests) > before or slow not in fleet.serving.ready:
            return


@pytest.mark.parametrize("slow", [hang, stream_then_hang(role())], ids=["silent", "a role only"])
@virtual_scenario
async def test_the_log_line_of_a_request_shows_its_hedge(slow: Behaviour) -> None:
    async with hedged(slow, sse_tokens()) as router:
        got = await router.ask(chat(URGENT, stream=True))
        assert got.events()[-1] == "[DONE]"
        (line,) = await router.log()
        assert (line["reason"], line["replica"], line["class"]) == ("ok", "r1", "high")
        assert [record[:3] for record in line["tried"]] == [
            ["r0", "primary", "hedge_lost"],
            ["r1", "hedge", "ok"],
        ]
        found = await metrics(router)
        assert found["hedges_fired_total"] == 1
        assert found['hedges_ended_total{outcome="won"}'] == 1
        assert found['hedge_causes_total{cause="late"}'] == found["hedges_idle_total"] == 1
        assert found["hedge_idle_tokens_total"] == found["hedge_tokens_total"] > 0
        assert found['attempts_total{attempt="hedge",reason="ok",replica="r1"}'] == 1
        lost = 'attempts_total{attempt="primary",reason="hedge_lost",replica="r0"}'
        assert found[lost] == 1
        assert found['class_ttft_seconds_count{class="high"}'] == 1
        assert 'class_ttft_seconds_count{class="none"}' not in found


@virtual_scenario
async def test_the_hedging_page_shows_the_policy_and_its_effect() -> None:
    async with hedged(hang, sse_tokens()) as router:
        await router.ask(chat(URGENT, stream=True))
        page = await admin(router, "/hedging")
        assert (page["policy"], page["options"]) == ("fixed", {"delay_s": 0.02})
        assert (page["dry_run"], page["budget_share"]) == (False, 1.0)
        assert page["classes"] == ["critical", "high"]
        assert page["utilisation"] is None  # no replica was polled
        counts = page["counts"]
        assert (counts["fired"], counts["won"], counts["dry_run"]["fired"]) == (1, 1, 0)
        assert (counts["causes"], counts["idle"]["fired"]) == ({"late": 1}, 1)
        assert 0 < counts["idle"]["tokens"] == counts["tokens"]
        (model,) = page["models"]
        assert (model["model"], model["stream"], model["is_warm"]) == ("m", True, False)
        assert model["delay_s"] == 0.02
        # After one quick answer, the predicted times are still the assumed ones.
        assert model["predicted_s"]["1000"] == pytest.approx(STREAMS.base_s + STREAMS.token_s * 1e3)


@virtual_scenario
async def test_a_replica_that_is_removed_is_forgotten() -> None:
    async with hedged(sse_tokens(), sse_tokens()) as router:
        for _ in range(4):
            await router.ask(chat(stream=True))
        parts = router.app.parts
        known = parts.context.hedger.times._speeds
        assert sorted(replica.id for replica in known) == ["r0", "r1"]
        parts.fleet.remove("r1")
        assert [replica.id for replica in known] == ["r0"]


@virtual_scenario
async def test_a_dry_run_is_counted_and_sends_nothing() -> None:
    replica = HostileReplica(sse_tokens())
    go = HostileReplica(sse_tokens())
    async with hedged(replica, go, dry_run=True) as router:
        for _ in range(3):
            await router.ask(chat(URGENT, stream=True))
        page = await admin(router, "/hedging")
        assert page["dry_run"] is True
        assert page["counts"]["fired"] == 0
        assert len(replica.requests) + len(go.requests) == 3


@virtual_scenario
async def test_a_replica_that_loses_repeatedly_is_suspect_for_all_requests() -> None:
    async with hedged(hang, sse_tokens()) as router:
        for _ in range(RACES):
            await ask_slow_first(router)
        await eventually(lambda: len(router.app.parts.fleet.serving.ready) == 1, "passed over")
        slow, _ = router.app.replicas()
        assert (slow["breaker"], slow["races_lost_in_a_row"]) == ("suspect", RACES)
        before = len(router.replicas[0].requests)
        for _ in range(6):  # requests without a class are never hedged
            assert (await router.ask(chat(stream=True))).status == 200
        assert len(router.replicas[0].requests) == before
        found = await metrics(router)
        assert found["hedge_suspects_total"] == 1
        assert found['breakers{state="suspect"}'] == 1
        assert found['replica_breaker{replica="r0"}'] == 1
