"""Changes of the fleet by a file and by DNS, under load: no request fails.

Members join, leave, move and get other settings at random, while at least one other replica is
ready. `HEDGEROW_CHANGES` sets the number of changes of each source.
"""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from router.config.model import Discovery, DnsName
from tests.faults.replicas.test_members_change_under_load import CLIENTS, ENGINES, Load
from tests.harness.emulated import Emulated, emulated
from tests.harness.name_server import name_server, needs_nsd
from tests.harness.replica import eventually
from tests.harness.running import Router, long_scenario, running

CHANGES = int(os.environ.get("HEDGEROW_CHANGES", "40"))
FAST_S = 0.02

Members = dict[str, int]  # The listed engines by URL, each with its weight.
Publish = Callable[[Members], Awaitable[None]]


def changed(members: Members, ready: set[str], urls: list[str], rng: Random) -> Members:
    """Change one member at random, or all that are not needed. A ready one remains listed."""
    after = dict(members)
    what = rng.choice(("join", "leave", "weight", "swap"))
    free = [url for url in urls if url not in after]
    removable = [url for url in after if ready - {url}]
    if what in ("join", "swap") and free:
        after[rng.choice(free)] = 1
    if what in ("leave", "swap") and removable and len(after) > 1:
        del after[rng.choice(removable)]
    if what == "weight":
        after[rng.choice(list(after))] = rng.randint(1, 9)
    return after


async def under_load(
    router: Router, engines: list[Emulated], publish: Publish, members: Members
) -> None:
    """Publish `CHANGES` changes, each after the one before is in force and requests were served."""
    app, rng, load = router.app, Random(11), Load()
    urls = [engine.url for engine in engines]
    clients = [asyncio.create_task(load.run(router, n % 2 == 1)) for n in range(CLIENTS)]
    done = 0
    while done < CHANGES:
        ready = {r.config.url for r in app.parts.fleet.serving.ready}
        after = changed(members, ready & set(members), urls, rng)
        if after == members:
            await asyncio.sleep(FAST_S)
            continue
        members, done, before = after, done + 1, load.served
        await publish(members)
        await eventually(partial(are_members, router, members), f"the members {members}")
        await eventually(lambda before=before: load.served > before, "a served request")  # type: ignore[misc]
    load.over.set()
    await asyncio.gather(*clients)
    assert load.failed == []
    assert load.served >= CHANGES
    await eventually(lambda: not app.parts.fleet.leaving, "the end of those that left")
    labels = {replica for replica, _, _ in app.metrics.attempts}
    assert labels <= {*app.parts.fleet.replicas, "other"}
    assert app.census()["probes"] == len(members)


def are_members(router: Router, members: Members) -> bool:
    fleet = router.app.parts.fleet
    present = {replica.config.url for replica in fleet.replicas.values()}
    return present == set(members) and bool(fleet.serving.ready)


async def with_engines(test: Callable[[list[Emulated]], Awaitable[None]]) -> None:
    async with AsyncExitStack() as stack:
        await test([await stack.enter_async_context(emulated("vllm")) for _ in range(ENGINES)])


def test_no_request_fails_when_a_file_changes(tmp_path: Path) -> None:
    file = tmp_path / "replicas.json"

    async def publish(members: Members) -> None:
        """Replace the file, at random by a rename or in place."""
        text = json.dumps([{"url": url, "weight": w} for url, w in members.items()])
        if len(members) % 2:
            (tmp_path / "new").write_text(text)
            (tmp_path / "new").rename(file)
        else:
            file.write_text(text)

    @long_scenario
    async def story() -> None:
        async def test(engines: list[Emulated]) -> None:
            members = {engine.url: 1 for engine in engines}
            await publish(members)
            rules = Discovery(files=(str(file),), interval_s=FAST_S)
            async with running(discovery=rules, health={"slow_start_s": 0.0}) as router:
                await under_load(router, engines, publish, members)

        await with_engines(test)

    story()


@needs_nsd
@long_scenario
async def test_no_request_fails_when_dns_changes() -> None:
    async with name_server() as server:

        async def publish(members: Members) -> None:
            ports: list[Any] = [url.rsplit(":", 1)[1] for url in members]
            services = [
                f"s SRV 0 {weight} {port} gpu"
                for port, weight in zip(ports, members.values(), strict=True)
            ]
            await server.serve(*services, "gpu A 127.0.0.1")

        async def test(engines: list[Emulated]) -> None:
            members = {engine.url: 1 for engine in engines}
            await publish(members)
            rules = Discovery(
                dns=(DnsName(url="http://s.test", records="srv"),),
                nameservers=(server.address,),
                ttl_min_s=FAST_S,
                ttl_max_s=FAST_S,
                retry_max_s=FAST_S,
            )
            async with running(discovery=rules, health={"slow_start_s": 0.0}) as router:
                await under_load(router, engines, publish, members)

        await with_engines(test)
