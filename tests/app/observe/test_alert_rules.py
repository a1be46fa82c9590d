"""The alert rules in deploy/prometheus match the metrics of a running router.

promtool, if it is installed, checks the results of the rules.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml

from router.config.model import BatchClass, Config, Credential, Discovery, HighClass, Queue
from router.core.errors import ConfigError, Reason
from router.observe.metrics import BOUNDS_S
from tests.app.observe.expressions import Samples, problems
from tests.app.observe.promtool import RULES, Page, evaluate, needs_promtool, promtool
from tests.faults.process.metrics import scrape
from tests.harness.behaviours import json_ok
from tests.harness.control import MODELS
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
from tests.harness.replica import HostileReplica, ReplicaConnection, eventually
from tests.harness.running import Router, assert_error, running, scenario

TESTS = RULES.with_name("hedgerow.test.yml")


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def texts(rule: dict[str, Any]) -> str:
    return " ".join(rule["annotations"].values())


@scenario
async def test_a_running_router_exposes_all_that_they_speak_of() -> None:
    queue, discovery = Queue(enabled=True), Discovery(files=("/nonexistent",))
    refusing = {"credential": Credential(token="wrong")}
    async with running(either_key, queue=queue, discovery=discovery, replica=refusing) as router:
        answer = await router.ask(chat(stream=True, priority="high"), "POST")
        assert_error(answer, Reason.CREDENTIAL_REFUSED)
        router.change(replicas=(router.at(0, credential=None),))
        await router.app.reload()
        answer = await router.ask(chat(stream=True, priority="high"), "POST")
        assert answer.complete
        await router.log(2)
        samples = set(await scrape(router.app.admin_port))
    for rule in rules():
        assert problems(rule["expr"], samples, texts(rule)) == [], rule["alert"]


async def either_key(connection: ReplicaConnection) -> None:
    """Refuse every key, and serve clients without one."""
    while request := await connection.recv_request():
        if request.header("authorization"):
            await connection.send(json_response({"error": "Unauthorized"}, 401))
        else:
            await connection.send(SSE_HEAD, chunk(role()), chunk(token("a")), chunk(token("b")))
            await connection.send(chunk(DONE), LAST_CHUNK)


@pytest.mark.parametrize(
    ("expr", "text", "wanted"),
    [
        ("hedgerow_ready == 0", "", []),
        ('up{job="x"} == 0', "", []),
        ("hedgerow_readiness == 0", "", ["hedgerow_readiness{}"]),
        ('hedgerow_queue_depth{class="low"} > 1', "{{ $labels.class }}", []),
        (
            'hedgerow_queue_depth{class="lowest"} > 1',
            "",
            ['hedgerow_queue_depth{class="lowest"}'],
        ),
        ("sum by (job, tenant) (hedgerow_queue_depth)", "", ["tenant"]),
        ("sum by (job) (hedgerow_queue_depth)", "{{ $labels.class }}", ["class"]),
    ],
)
def test_what_is_not_there_would_be_noticed(expr: str, text: str, wanted: list[str]) -> None:
    samples: Samples = {
        ("hedgerow_ready", frozenset()),
        ("hedgerow_queue_depth", frozenset({("class", "low")})),
    }
    assert problems(expr, samples, text) == wanted


def test_bounds_are_those_of_the_configuration() -> None:
    bounds = {rule["alert"]: rule["expr"].split(">")[-1].strip() for rule in rules()}
    assert float(bounds["HedgerowBatchStarving"]) == BatchClass().starvation_s
    assert float(bounds["HedgerowHighFirstTokenLate"]) == HighClass().ttft_slo_s
    # A threshold must be a bucket bound, because a quantile is only as exact as its bucket.
    assert float(bounds["HedgerowHighFirstTokenLate"]) in BOUNDS_S


# These alerts depend on times, which are longer on a busy machine.
OF_TIMES = ("HedgerowSloMissed", "HedgerowHighFirstTokenLate", "HedgerowInteractiveSilent")


def assert_fires(before: Page, after: Page, wanted: set[str], folder: Path) -> None:
    """Check which alerts fire if counters grow for 20 minutes as between two scrapes."""
    ignored = "|".join(set(OF_TIMES) - wanted)
    expr = f'group by (alertname) (ALERTS{{alertstate="firing",alertname!~"{ignored}"}})'
    evaluate(before, after, {expr: [f'{{alertname="{name}"}}' for name in wanted]}, folder)


async def traffic(router: Router, count: int = 5) -> Page:
    """Send requests that state no class, and return the page afterwards."""
    known = len(router.lines())
    await asyncio.gather(*(router.ask() for _ in range(count)))
    await router.log(known + count)
    return await scrape(router.app.admin_port)


@needs_promtool
@scenario
async def test_nothing_fires_while_all_is_well(tmp_path: Path) -> None:
    async with running(json_ok, json_ok) as router:
        before = await traffic(router)
        assert_fires(before, await traffic(router), set(), tmp_path)


@needs_promtool
@scenario
async def test_a_total_outage_fires(tmp_path: Path) -> None:
    async with running(json_ok, json_ok) as router:
        await traffic(router)
        for replica in router.replicas:
            await replica.stop_listening()
        await eventually(lambda: not router.app.parts.fleet.serving.ready, "both are down")

        def unreadable() -> Config:
            raise ConfigError(["replicas[0].url: not a URL"])

        router.app.read_again = unreadable
        assert (await router.admin("/reload", "POST")).status == 400
        before = await traffic(router)
        after = await traffic(router)
        outage = {"HedgerowNoReplica", "HedgerowFewReplicas", "HedgerowReplicaDown"}
        of_clients = {"HedgerowErrors", "HedgerowSloMissed", "HedgerowReloadFailed"}
        assert_fires(before, after, outage | of_clients, tmp_path)


@needs_promtool
@scenario
async def test_a_wrong_key_fires(tmp_path: Path) -> None:
    """Of one of three replicas, in its model list only."""
    one = HostileReplica(json_ok)

    async def refuse(connection: ReplicaConnection) -> None:
        await connection.send(json_response({"error": "Unauthorized"}, 401))

    one.control.at[MODELS] = refuse
    async with running(one, json_ok, json_ok) as router:
        before = await traffic(router)
        assert_fires(before, await traffic(router), {"HedgerowKeyRefused"}, tmp_path)


@needs_promtool
@pytest.mark.parametrize(("verb", "file"), [("check", RULES), ("test", TESTS)])
def test_promtool_agrees(verb: str, file: Path) -> None:
    promtool(verb, "rules", str(file))


def test_each_rule_is_tried_when_it_fires_and_when_it_does_not() -> None:
    tests = yaml.safe_load(TESTS.read_text())["tests"]
    tried: dict[str, set[bool]] = {}
    for test in tests:
        for case in test["alert_rule_test"]:
            tried.setdefault(case["alertname"], set()).add(bool(case["exp_alerts"]))
    assert tried == {rule["alert"]: {True, False} for rule in rules()}
