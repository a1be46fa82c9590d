"""The nearest region is used until it is full or lost, and again when it has recovered.

The emulated engines of two regions are behind links that delay the bytes.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from router.config.model import Replica
from tests.app.pages import page
from tests.faults.process.metrics import number
from tests.faults.replicas.link import Link, linked
from tests.harness.client import RawClient
from tests.harness.emulated import emulated
from tests.harness.messages import chat
from tests.harness.replica import eventually
from tests.harness.running import Router, long_scenario, running

SHOWS = "x-served-region: true"
NEAR_S, FAR_S = 0.01, 0.06  # the distances of the two regions, in seconds of round-trip time
SLOTS = 10  # attempts at one replica
TOKENS = 20_000  # output tokens of a stream that runs for the whole test


class TwoRegions:
    """A running router in region `eu`, with one engine in `eu` and one in `us`."""

    def __init__(self, router: Router, eu: Link, us: Link) -> None:
        self.router = router
        self.eu = eu
        self.us = us

    async def asks(self, *fields: str) -> str:
        """The region that served a short request."""
        answer = await self.router.ask(chat(SHOWS, *fields, max_tokens=2), "POST")
        assert answer.status == 200, answer
        return answer.header("x-served-region") or ""

    async def streams(self, count: int) -> list[tuple[RawClient, str]]:
        """Begins long streams, one after the other, and returns the region of each stream."""
        found = []
        for _ in range(count):
            client = await self.router.client()
            await client.send(chat(SHOWS, stream=True, max_tokens=TOKENS))
            head = (await client.recv_head()).decode()
            (line,) = [line for line in head.split("\r\n") if line.startswith("x-served-region")]
            found.append((client, line.partition(": ")[2]))
        return found

    def load(self, id: str) -> int:
        return self.router.app.parts.fleet.replicas[id].load


@asynccontextmanager
async def two_regions(
    *, near_s: float = NEAR_S, far_s: float = FAR_S, **config: Any
) -> AsyncIterator[TwoRegions]:
    async with (
        emulated("vllm", speed=1.0) as first,
        emulated("vllm", speed=1.0) as second,
        linked(first.url, near_s) as eu,
        linked(second.url, far_s) as us,
    ):
        replicas = (
            Replica(url=us.url, id="us-1", region="us", max_inflight=SLOTS),
            Replica(url=eu.url, id="eu-1", region="eu", max_inflight=SLOTS),
        )
        async with running(replicas=replicas, **{"region": "eu", **config}) as router:
            yield TwoRegions(router, eu, us)


@long_scenario
async def test_the_nearest_region_is_used_until_it_is_full() -> None:
    async with two_regions() as world:
        streams = await world.streams(9)
        assert [region for _, region in streams] == ["eu"] * 7 + ["us"] * 2
        for client, _ in streams[:2]:
            client.close()
        await eventually(lambda: world.load("eu-1") == 5, "two streams have ended")
        assert (await world.streams(1))[0][1] == "eu"
        port = world.router.app.admin_port
        used = await number(port, "hedgerow_region_utilisation_ratio", model="m", region="us")
        assert used == 0.2
        assert await number(port, "hedgerow_region_choices_total", preferred="eu", region="us") == 2


@long_scenario
async def test_the_distance_is_measured() -> None:
    """Without configured distances, a client of a third region gets the router's nearest region.

    The order of the replicas in the configuration does not matter.
    """
    async with two_regions(region="lab") as world:
        shown = {one["id"]: one for one in await page(world.router, "/replicas")}
        # The link accepts connections at once, so a probe shows half of the distance.
        assert NEAR_S * 0.45e3 <= shown["eu-1"]["rtt_ms"] < shown["us-1"]["rtt_ms"]
        assert shown["us-1"]["rtt_ms"] >= FAR_S * 0.45e3
        assert (shown["us-1"]["region"], shown["us-1"]["zone"]) == ("us", None)
        assert await world.asks() == "eu"
        assert await world.asks("x-region: us") == "us"
        port = world.router.app.admin_port
        far = await number(port, "hedgerow_replica_rtt_seconds", replica="us-1")
        assert far >= FAR_S * 0.45
    async with two_regions(region="lab", near_s=FAR_S, far_s=NEAR_S) as world:
        assert await world.asks() == "us"


@long_scenario
async def test_a_lost_region_is_replaced_and_comes_back() -> None:
    async with two_regions(retry={"attempts": 3}) as world:
        assert await world.asks() == "eu"
        await world.eu.cut()
        assert await world.asks() == "us"
        fleet = world.router.app.parts.fleet
        await eventually(
            lambda: "eu-1" not in fleet.serving.ready_ids, "the region is known to be lost"
        )
        assert {await world.asks() for _ in range(5)} == {"us"}
        await world.eu.open()
        await eventually(lambda: "eu-1" in fleet.serving.ready_ids, "the region is back")
        assert {await world.asks() for _ in range(5)} == {"eu"}
        lines = await world.router.log(12)
        assert [line["region"] for line in lines] == ["eu"] + ["us"] * 6 + ["eu"] * 5
        assert {line["reason"] for line in lines} == {"ok"}
