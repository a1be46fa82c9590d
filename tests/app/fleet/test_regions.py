"""The preferred region of a client: by header, key or network, else the router's region."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from router.config.model import Regions, Replica
from tests.app.tenants.acme import ACME, keys
from tests.harness.behaviours import chat_either, echo, json_ok
from tests.harness.messages import chat, request
from tests.harness.replica import HostileReplica
from tests.harness.running import Router, running, scenario

SHOWS = "x-served-region: true"
NAMES = ("eu", "us", "asia")


@asynccontextmanager
async def regions(**config: Any) -> AsyncIterator[Router]:
    """One replica in each region; the router is in `eu`."""
    hostiles = [HostileReplica(chat_either) for _ in NAMES]
    for hostile in hostiles:
        hostile.start()
    replicas = tuple(
        Replica(url=hostile.url, id=f"{name}-1", region=name)
        for name, hostile in zip(NAMES, hostiles, strict=True)
    )
    try:
        async with running(replicas=replicas, **{"region": "eu", **config}) as router:
            yield router
    finally:
        for hostile in hostiles:
            await hostile.stop()


async def served(router: Router, *fields: str, **extra: Any) -> str | None:
    answer = await router.ask(chat(SHOWS, *fields, **extra), "POST")
    assert answer.status == 200
    return answer.header("x-served-region")


@scenario
async def test_the_header_goes_first_then_the_key_then_the_network(tmp_path: Path) -> None:
    rules = Regions(networks={"127.0.0.0/8": "asia"})
    async with regions(regions=rules, keys=keys(tmp_path, region="us")) as router:
        assert await served(router, ACME, "x-region: eu") == "eu"
        assert await served(router, ACME, "x-region: mars") == "us"
        assert await served(router, ACME) == "us"
        assert await served(router) == "asia"
        assert await served(router, stream=True) == "asia"


@scenario
async def test_the_default_is_the_region_of_the_router() -> None:
    async with regions() as router:
        assert {await served(router) for _ in range(6)} == {"eu"}
        router.change(region="us")
        await router.app.reload()
        assert {await served(router) for _ in range(6)} == {"us"}


@scenario
async def test_a_proxy_that_is_trusted_names_the_client() -> None:
    rules = Regions(networks={"10.0.0.0/8": "asia"})
    async with regions(regions=rules, trusted_proxies=("127.0.0.0/8",)) as router:
        assert await served(router, "x-forwarded-for: 10.1.2.3") == "asia"
        assert await served(router, "x-forwarded-for: 192.0.2.1") == "eu"


@scenario
async def test_the_response_names_the_region_only_if_asked() -> None:
    async with running(echo, replica={"region": "eu"}) as router:
        asked = await router.ask(chat(SHOWS, "x-region: eu"), "POST")
        assert asked.header("x-served-region") == "eu"
        (forwarded,) = router.replica.requests
        assert forwarded.all("x-region") == forwarded.all("x-served-region") == []
        for fields in ((), ("x-served-region: no",)):
            silent = await router.ask(chat(*fields), "POST")
            assert silent.header("x-served-region") is None
        assert [line["region"] for line in await router.log(3)] == ["eu"] * 3


@scenario
async def test_without_regions_nothing_is_named() -> None:
    async with running(json_ok) as router:
        answer = await router.ask(chat(SHOWS), "POST")
        assert answer.header("x-served-region") is None
        assert "region" not in (await router.log())[0]
        assert not router.app.parts.fleet.nearest.is_used


@pytest.mark.parametrize("path", ["/plain", "/v1/responses/resp_1"])
@scenario
async def test_other_requests_go_to_the_nearest_region(path: str) -> None:
    async with regions() as router:
        for _ in range(5):
            await router.ask(request(path))
        assert {line["region"] for line in await router.log(5)} == {"eu"}
