"""Demand and replicas by model, region, class and type, in the metrics and in the access log."""

from typing import Any

from router.config.model import Priority
from tests.app.pages import samples
from tests.harness.behaviours import json_ok
from tests.harness.messages import chat
from tests.harness.replica import HostileReplica
from tests.harness.running import Router, running, scenario

OPEN = Priority(ceiling="critical")


async def replicas(router: Router) -> dict[Any, float]:
    return await samples(router, "hedgerow_model_replicas", "model", "region", "type")


async def post(router: Router, path: str, **body: Any) -> None:
    answer = await router.admin(path, "POST", body=body or None)
    assert answer.status < 300, answer


@scenario
async def test_demand_counts_for_the_region_that_the_client_prefers() -> None:
    far = HostileReplica(json_ok)
    eu = {"region": "eu"}
    async with running(json_ok, far, region="eu", replica=eu, priority=OPEN) as router:
        router.change(replicas=(router.at(0, type="h100"), router.at(1, region="us", type="l40s")))
        await router.app.reload()
        for fields in (
            ("x-region: us", "x-priority: batch"),
            ("x-region: us", "x-priority: high"),
            (),
        ):
            assert (await router.ask(chat(*fields))).status == 200
        await post(router, "/replicas/r1/cordon")
        assert (await router.ask(chat("x-region: us", "x-priority: high"))).status == 200
        counted = await samples(router, "hedgerow_model_requests_total", "model", "region", "class")
        assert counted == {
            ("m", "us", "batch"): 1,
            ("m", "us", "high"): 2,
            ("m", "eu", "normal"): 1,
        }
        tokens = await samples(
            router, "hedgerow_model_tokens_total", "model", "region", "class", "kind"
        )
        assert {key[:3] for key in tokens} == counted.keys()
        lines = await router.log(4)
    told = [(line["region"], line.get("client_region"), line["replica_type"]) for line in lines]
    assert told == [
        ("us", None, "l40s"),
        ("us", None, "l40s"),
        ("eu", None, "h100"),
        ("eu", "us", "h100"),
    ]


@scenario
async def test_the_replicas_in_service_are_counted_by_region_and_type() -> None:
    async with running(json_ok, json_ok, json_ok, replica={"region": "eu"}) as router:
        assert await replicas(router) == {("m", "eu", ""): 3}
        router.change(
            replicas=(
                router.at(0, type="h100"),
                router.at(1, type="h100"),
                router.at(2, type="spot", region="us"),
            )
        )
        await router.app.reload()
        assert await replicas(router) == {("m", "eu", "h100"): 2, ("m", "us", "spot"): 1}
        await post(router, "/replicas/r0/cordon")
        await post(router, "/replicas/r2/drain")
        assert await replicas(router) == {("m", "eu", "h100"): 1, ("m", "us", "spot"): 0}
        await router.admin("/replicas/r2", "DELETE")
        assert await replicas(router) == {("m", "eu", "h100"): 1}


@scenario
async def test_names_that_no_replica_lists_have_the_same_label_as_their_requests() -> None:
    any_name = {"models": ("a", "*")}
    async with running(json_ok, json_ok, replica=any_name) as router:
        for model in ("a", "m", "x"):
            assert (await router.ask(chat(model=model))).status == 200
        counted = await samples(router, "hedgerow_model_requests_total", "model", "region", "class")
        assert {key[0] for key in counted} == {"a", "m", "*"}
        assert await replicas(router) == {(name, "", ""): 2 for name in ("a", "m", "*")}


@scenario
async def test_replicas_without_a_list_are_counted_for_each_requested_model() -> None:
    async with running(json_ok, json_ok) as router:
        for replica in router.app.parts.fleet.replicas.values():
            replica.models = None
        router.app.parts.fleet.rebuild()
        assert await replicas(router) == {}
        assert (await router.ask(chat(model="x"))).status == 200
        assert await replicas(router) == {("x", "", ""): 2}
