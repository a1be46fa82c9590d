"""A router whose members come from a real DNS server: answers change, vanish and fail."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from router.config.model import Discovery, DnsName
from tests.app.discovery.test_files import Engines
from tests.app.members.test_changes import states
from tests.harness.behaviours import json_ok
from tests.harness.name_server import NameServer, name_server, needs_nsd
from tests.harness.replica import eventually
from tests.harness.running import Router, running, scenario

pytestmark = needs_nsd
# The server's TTLs are whole seconds. The shortest is used, and not more than this.
TTL_S = 0.05
PORT = 8000


@asynccontextmanager
async def discovering(
    server: NameServer, *names: DnsName, timeout_s: float = 2.0, **config: Any
) -> AsyncIterator[Router]:
    rules = Discovery(
        dns=names,
        nameservers=(server.address,),
        ttl_min_s=TTL_S,
        ttl_max_s=TTL_S,
        retry_max_s=TTL_S,
        timeout_s=timeout_s,
        **config.pop("rules", {}),
    )
    async with running(discovery=rules, **config) as router:
        yield router


def at(host: str, **fields: Any) -> DnsName:
    return DnsName(url=f"http://{host}:{PORT}", **fields)


def members(router: Router) -> set[str]:
    """The hosts of the members; all of them have the port `PORT`."""
    return {name.removesuffix(f":{PORT}") for name in router.app.parts.fleet.replicas}


async def become(router: Router, *hosts: str) -> None:
    await eventually(lambda: members(router) == set(hosts), f"members {hosts}")


def looks(router: Router, source: str, result: str) -> int:
    return router.app.discovered.looks.get((source, result), 0)


async def keeps(router: Router, source: str, result: str = "failed") -> None:
    """Wait until several looks have this result; the fleet must not change."""
    before, fleet = looks(router, source, result), dict(router.app.parts.fleet.replicas)
    await eventually(lambda: looks(router, source, result) > before + 2, f"{result} looks")
    assert dict(router.app.parts.fleet.replicas) == fleet


@scenario
async def test_addresses_change() -> None:
    async with name_server() as server:
        await server.serve("vllm A 127.0.0.2", "vllm A 127.0.0.3", "vllm AAAA ::2")
        async with discovering(server, at("vllm.test", zone="z")) as router:
            assert members(router) == {"127.0.0.2", "127.0.0.3", "[::2]"}
            stays = router.app.parts.fleet.replicas["127.0.0.2:8000"]
            assert stays.config.zone == "z"
            await server.serve("vllm A 127.0.0.2", "vllm A 127.0.0.4", "vllm AAAA ::2")
            await become(router, "127.0.0.2", "127.0.0.4", "[::2]")
            await server.serve("vllm AAAA ::2", "vllm AAAA ::3", "vllm A 127.0.0.2")
            await become(router, "127.0.0.2", "[::2]", "[::3]")
            assert router.app.parts.fleet.replicas["127.0.0.2:8000"] is stays
            await server.serve("vllm A 127.0.0.2")
            await become(router, "127.0.0.2")
            assert looks(router, "dns:vllm.test:8000", "ok") > 0


@scenario
async def test_a_name_without_records_has_no_replicas() -> None:
    """The addresses of pods are reused, so the last replica must not stay."""
    source = "dns:vllm.test:8000"
    async with name_server() as server:
        await server.serve("vllm A 127.0.0.2")
        async with discovering(server, at("vllm.test"), timeout_s=0.5) as router:
            for records in ("other A 127.0.0.9", "vllm TXT empty"):  # NXDOMAIN, NODATA
                assert members(router) == {"127.0.0.2"}
                await server.serve(records)
                await become(router)
                await keeps(router, source, "ok")
                await server.fail()
                await keeps(router, source)
                await server.serve("vllm A 127.0.0.2")
                await become(router, "127.0.0.2")
            await server.serve("vllm A 0.0.0.0")  # A filter of names answers this.
            await keeps(router, source)


@scenario
async def test_a_name_that_fails_keeps_the_fleet() -> None:
    source = "dns:vllm.test:8000"
    async with name_server() as server:
        await server.serve("vllm A 127.0.0.2", "vllm A 127.0.0.3")
        async with discovering(server, at("vllm.test"), timeout_s=0.5) as router:
            await server.fail()  # SERVFAIL
            await keeps(router, source)
            await server.serve("vllm A 127.0.0.3", "vllm A 127.0.0.4")
            await become(router, "127.0.0.3", "127.0.0.4")
            server.freeze()  # no answer
            await keeps(router, source)
            server.thaw()
            await server.serve("vllm A 127.0.0.4", "vllm A 127.0.0.5")
            await become(router, "127.0.0.4", "127.0.0.5")
            await server.stop()  # nothing listens
            await keeps(router, source)
            await server.serve("vllm A 127.0.0.5")
            await become(router, "127.0.0.5")


@scenario
async def test_a_chain_of_aliases() -> None:
    async with name_server() as server:
        chain = [f"c{n} CNAME c{n + 1}" for n in range(7)]
        await server.serve("vllm CNAME c0", *chain, "c7 A 127.0.0.2")
        async with discovering(server, at("vllm.test")) as router:
            assert members(router) == {"127.0.0.2"}
            await server.serve("vllm CNAME c7", "c7 A 127.0.0.3")
            await become(router, "127.0.0.3")
            await server.serve("vllm CNAME other", "other CNAME vllm")  # a circle
            await keeps(router, "dns:vllm.test:8000")
            await server.serve("vllm A 127.0.0.4")
            await become(router, "127.0.0.4")
            await server.serve("vllm CNAME gone")
            await become(router)


@scenario
async def test_many_addresses_come_over_tcp() -> None:
    async with name_server() as server:
        many = [f"vllm A 127.1.{n // 250}.{n % 250 + 1}" for n in range(400)]
        await server.serve(*many)
        quiet = {"quiet_control_plane": "400 replicas that do not exist"}
        async with discovering(
            server, at("vllm.test", records="a"), timeout_s=15.0, **quiet
        ) as router:
            assert len(members(router)) == 400
            await server.serve(*many[200:])
            await eventually(lambda: len(members(router)) == 200, "half of the members")


@scenario
async def test_services_have_ports_and_weights() -> None:
    async with name_server() as server, Engines(json_ok, json_ok, json_ok) as (a, b, c):
        await server.serve(
            f"_h._tcp.vllm SRV 1 30 {a.port} gpu-1",
            f"_h._tcp.vllm SRV 1 10 {b.port} gpu-1",
            "gpu-1 A 127.0.0.1",
        )
        source = DnsName(url="http://_h._tcp.vllm.test", records="srv")
        async with discovering(server, source, health={"slow_start_s": 0.0}) as router:
            weights = {
                r.endpoint.address.port: r.weight for r in router.app.parts.fleet.serving.ready
            }
            assert weights == {a.port: 1.5, b.port: 0.5}
            await server.serve(
                f"_h._tcp.vllm SRV 1 10 {b.port} gpu-1",
                f"_h._tcp.vllm SRV 1 10 {c.port} gpu-2",
                "gpu-1 A 127.0.0.1",
                "gpu-2 A 127.0.0.1",
            )
            await eventually(
                lambda: (
                    {
                        r.endpoint.address.port: r.weight
                        for r in router.app.parts.fleet.serving.ready
                    }
                    == {b.port: 1.0, c.port: 1.0}
                ),
                "the new services",
            )
            # The target "." of a service that is not available, and a target without an address.
            # The other addresses stay, because a look may be in progress.
            addresses = "gpu-1 A 127.0.0.1", "gpu-2 A 127.0.0.1"
            await server.serve("_h._tcp.vllm SRV 0 0 0 .", *addresses)
            await eventually(lambda: states(router) == {}, "no services")
            await server.serve(f"_h._tcp.vllm SRV 1 10 {b.port} gpu-1", *addresses)
            await eventually(lambda: len(states(router)) == 1, "a service")
            await server.serve(f"_h._tcp.vllm SRV 1 10 {b.port} gpu-3", *addresses)
            await eventually(lambda: states(router) == {}, "no address")


@scenario
async def test_a_service_of_a_higher_priority_number_waits() -> None:
    async with name_server() as server, Engines(json_ok, json_ok) as (first, second):
        await server.serve(
            f"_h._tcp.vllm SRV 1 0 {first.port} gpu",
            f"_h._tcp.vllm SRV 2 0 {second.port} gpu",
            "gpu A 127.0.0.1",
        )
        one, two = f"127.0.0.1:{first.port}", f"127.0.0.1:{second.port}"
        source = DnsName(url="http://_h._tcp.vllm.test", records="srv")
        async with discovering(server, source) as router:
            assert states(router) == {one: "ready", two: "standby"}
            for _ in range(4):
                assert (await router.ask()).status == 200
            assert (len(first.requests), len(second.requests)) == (4, 0)
            await router.admin(f"/replicas/{one}/cordon", "POST")
            await eventually(lambda: states(router)[two] == "ready", "the second priority")
            assert (await router.ask()).status == 200
            assert len(second.requests) == 1
            await router.admin(f"/replicas/{one}/uncordon", "POST")
            await eventually(lambda: states(router)[two] == "standby", "the first is back")
            await server.serve(f"_h._tcp.vllm SRV 2 0 {second.port} gpu", "gpu A 127.0.0.1")
            await eventually(lambda: states(router) == {two: "ready"}, "the first has left")
