"""A router whose members come from an API server of Kubernetes, through the official client."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from router.addons.kubernetes import client as _imported_early  # noqa: F401  (slow)
from router.config.keys import KeyLine, hash_of
from router.config.model import Discovery, Keys, KubernetesReplicas, Replica
from router.core.errors import Reason
from tests.app.discovery.test_files import Engines
from tests.app.members.test_changes import Streams, states
from tests.harness import kit

FAST_S = 0.02
SERVICE = "kubernetes:vllm"


def rules(*sources: KubernetesReplicas, **fields: Any) -> Discovery:
    times = {"ttl_min_s": FAST_S, "retry_max_s": FAST_S, "timeout_s": 15.0, **fields}
    return Discovery(kubernetes=sources, **times)


def service(server: kit.ApiServer, folder: Path, **fields: Any) -> KubernetesReplicas:
    return KubernetesReplicas(
        **{"service": "vllm", **fields}, kubeconfig=kit.kubeconfig(folder, server.url)
    )


def pods(server: kit.ApiServer, folder: Path, **fields: Any) -> KubernetesReplicas:
    return KubernetesReplicas(
        pods="app=vllm", **fields, kubeconfig=kit.kubeconfig(folder, server.url)
    )


@asynccontextmanager
async def discovering(*sources: KubernetesReplicas, **config: Any) -> AsyncIterator[kit.Router]:
    times = config.pop("times", {})
    async with kit.running(discovery=rules(*sources, **times), **config) as router:
        yield router


def hosts(router: kit.Router) -> set[str]:
    return {replica.endpoint.address.host for replica in router.app.parts.fleet.replicas.values()}


def ids(router: kit.Router) -> set[str]:
    return {*router.app.parts.fleet.replicas}


async def become(router: kit.Router, *expected: str) -> None:
    await kit.eventually(lambda: hosts(router) == set(expected), f"members {expected}")


def looks(router: kit.Router, source: str, result: str) -> int:
    return router.app.discovered.looks.get((source, result), 0)


@kit.scenario
async def test_endpoints_come_change_and_go(tmp_path: Path) -> None:
    async with kit.api_server() as server:
        a, b = (
            kit.endpoint("127.0.0.2", "a", nodeName="n1", zone="z1"),
            kit.endpoint("127.0.0.3", "b"),
        )
        server.put(kit.SLICES, kit.slice_of("s1", a, b))
        async with discovering(service(server, tmp_path, engine="vllm")) as router:
            assert ids(router) == {"default/a:8000", "default/b:8000"}
            stays = router.app.parts.fleet.replicas["default/a:8000"]
            config = stays.config
            assert (config.node, config.zone, config.engine) == ("n1", "z1", "vllm")
            await kit.eventually(lambda: server.watching == 1, "a watch")
            server.put(kit.SLICES, kit.slice_of("s2", kit.endpoint("127.0.0.4", "c", ready=None)))
            await become(router, "127.0.0.2", "127.0.0.3", "127.0.0.4")
            server.put(kit.SLICES, kit.slice_of("s1", a))
            await become(router, "127.0.0.2", "127.0.0.4")
            server.delete(kit.SLICES, "s2")
            await become(router, "127.0.0.2")
            assert router.app.parts.fleet.replicas["default/a:8000"] is stays
            assert server.count(watch="true") == 1
            assert server.count(labelSelector="kubernetes.io/service-name=vllm") == 2


@kit.scenario
async def test_pods_are_found_by_their_labels(tmp_path: Path) -> None:
    async with kit.api_server() as server:
        marks = {"hedgerow.dev/models": "m-1, org/m-2", "hedgerow.dev/spot": "true"}
        zone = {"topology.kubernetes.io/zone": "z2", "topology.kubernetes.io/region": "r2"}
        server.put(kit.PODS, kit.pod_of("a", "127.0.0.2", annotations=marks, labels=zone))
        server.put(kit.PODS, kit.pod_of("other", "127.0.0.9", labels={"app": "web"}))
        async with discovering(pods(server, tmp_path, weight=2.0)) as router:
            config = router.app.parts.fleet.replicas["default/a:8000"].config
            assert (config.models, config.spot) == (("m-1", "org/m-2"), True)
            assert (config.zone, config.region, config.node) == ("z2", "r2", "n1")
            assert config.weight == 2.0
            server.put(kit.PODS, kit.pod_of("b", "127.0.0.3", ready=False))
            server.put(kit.PODS, kit.pod_of("c", "127.0.0.4"))
            await become(router, "127.0.0.2", "127.0.0.4")
            server.put(kit.PODS, kit.pod_of("b", "127.0.0.3"))
            await become(router, "127.0.0.2", "127.0.0.3", "127.0.0.4")
            server.put(kit.PODS, kit.pod_of("c", "127.0.0.4", labels={"app": "web"}))
            await become(router, "127.0.0.2", "127.0.0.3")


@pytest.mark.parametrize("kind", [kit.PODS, kit.SLICES])
@kit.scenario
async def test_the_owner_of_a_pod_cannot_move_it_to_another_region(
    kind: str, tmp_path: Path
) -> None:
    """A pod in the US says that it is in the EU, before it joins and later."""
    keys = tmp_path / "keys"
    line = KeyLine(name="acme", hash=hash_of(b"key-0123456789-0123456789"), allowed_regions=("eu",))
    keys.write_bytes(msgspec.json.encode(line) + b"\n")
    sent = ("Authorization: Bearer key-0123456789-0123456789",)
    async with kit.api_server() as server, Engines(kit.json_ok) as (engine,):
        make = pods if kind == kit.PODS else service
        source = make(server, tmp_path, region="us")

        def claims(region: str, name: str = "hedgerow.dev/region") -> None:
            marks = {"annotations": {name: region}}
            if kind == kit.PODS:
                server.put(kit.PODS, kit.pod_of("a", "127.0.0.1", port=engine.port, **marks))
            else:
                one = kit.endpoint("127.0.0.1", "a")
                server.put(kit.SLICES, kit.slice_of("a", one, port=engine.port, **marks))

        claims("eu")
        times = {"ttl_max_s": 0.1}  # A report of each look.
        async with discovering(source, times=times, keys=Keys(file=str(keys))) as router:
            for region in ("eu", "us", "eu"):
                claims(region)
                await looks_again(router, source.name, "failed" if region == "eu" else "ok")
                (shown,) = router.app.replicas()
                assert (shown["region"], shown["state"]) == ("us", "ready")
                kit.assert_error(await router.ask(kit.chat(*sent)), Reason.REGION_NOT_ALLOWED)
            assert (await router.ask(kit.chat())).status == 200
            # If the source has no region, the pod decides, until a reload sets one again.
            router.change(discovery=rules(make(server, tmp_path), **times))
            assert (await router.admin("/reload", "POST")).status == 200
            await kit.eventually(lambda: router.app.replicas()[0]["region"] == "eu", "its region")
            router.change(discovery=rules(make(server, tmp_path, region="asia"), **times))
            assert (await router.admin("/reload", "POST")).status == 200
            assert router.app.replicas()[0]["region"] == "asia"
            kit.assert_error(await router.ask(kit.chat(*sent)), Reason.REGION_NOT_ALLOWED)
        assert len(engine.requests) == 1


async def looks_again(router: kit.Router, source: str, result: str) -> None:
    before = looks(router, source, result)
    await kit.eventually(lambda: looks(router, source, result) > before, f"a look that is {result}")


@kit.scenario
async def test_a_terminating_pod_is_drained_at_once(tmp_path: Path) -> None:
    """It finishes its requests. A pod that is only not ready stays."""
    streams = Streams()
    async with kit.api_server() as server, Engines(streams, kit.json_ok) as (a, b):
        first, second = pod("a", a), pod("b", b)
        server.put(kit.PODS, first)
        async with discovering(pods(server, tmp_path)) as router:
            one, two = f"default/a:{a.port}", f"default/b:{b.port}"
            client = await router.send(kit.chat(stream=True))
            await client.recv_until(b"data:")
            server.put(kit.PODS, second)
            await kit.eventually(lambda: states(router).get(two) == "ready", "the second")
            server.put(kit.PODS, {**first, "status": pod("a", a, ready=False)["status"]})
            server.put(kit.PODS, kit.pod_of("late", "127.0.0.9"))
            await kit.eventually(lambda: "127.0.0.9" in hosts(router), "a later change")
            assert states(router)[one] == "ready", "the router's probes decide"
            leaves = {**first["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
            server.put(kit.PODS, {**first, "metadata": leaves})
            await kit.eventually(lambda: states(router).get(one) == "draining", "the drain")
            assert (await router.ask()).status == 200
            assert len(b.requests) == 1
            streams.go.set()
            assert (await client.recv_response()).complete


def pod(name: str, engine: kit.HostileReplica, *, ready: bool = True) -> dict[str, Any]:
    return kit.pod_of(name, "127.0.0.1", port=engine.port, ready=ready)


@kit.scenario
async def test_a_watch_goes_on_after_each_kind_of_end(tmp_path: Path) -> None:
    async with kit.api_server() as server:
        server.put(kit.SLICES, kit.slice_of("s", kit.endpoint("127.0.0.2", "a")))
        async with discovering(service(server, tmp_path)) as router:
            await kit.eventually(lambda: server.watching == 1, "a watch")
            # Disconnected after a change: the watch goes on from its version.
            server.put(kit.SLICES, kit.slice_of("s", kit.endpoint("127.0.0.3", "b")))
            await become(router, "127.0.0.3")
            version = server.version
            server.disconnect()
            server.put(kit.SLICES, kit.slice_of("s", kit.endpoint("127.0.0.4", "c")))
            await become(router, "127.0.0.4")
            assert server.count(resourceVersion=str(version)) == 1
            assert server.count() - server.count(watch="true") == 1, "no second list"
            # The version is too old: a new list.
            server.disconnect()
            server.put(kit.SLICES, kit.slice_of("s", kit.endpoint("127.0.0.5", "d")))
            server.forget()
            await become(router, "127.0.0.5")
            assert server.count() - server.count(watch="true") == 2
            assert looks(router, SERVICE, "failed") == 0, "this is no failure"


@kit.scenario
async def test_a_bookmark_is_the_version_of_the_next_watch(tmp_path: Path) -> None:
    async with kit.api_server() as server:
        server.put(kit.SLICES, kit.slice_of("s", kit.endpoint("127.0.0.2", "a")))
        async with discovering(service(server, tmp_path)) as router:
            await kit.eventually(lambda: server.watching == 1, "a watch")
            server.put(kit.SLICES, kit.slice_of("s", kit.endpoint("127.0.0.3", "b")))
            await become(router, "127.0.0.3")
            # Changes that this watch does not report.
            for _ in range(9):
                server.put(kit.PODS, kit.pod_of("other", "127.0.0.9"))
            server.bookmark()
            source = router.app.parts.discovery._kubernetes[SERVICE]
            version = str(server.version)
            await kit.eventually(lambda: source._endpoints.version == version, "a bookmark")
            server.forget()
            server.disconnect()
            await kit.eventually(lambda: server.count(watch="true") == 2, "a watch")
            assert server.count(resourceVersion=str(server.version)) == 1
            server.put(kit.SLICES, kit.slice_of("s", kit.endpoint("127.0.0.4", "c")))
            await become(router, "127.0.0.4")
            assert server.count() - server.count(watch="true") == 1, "no second list"


@kit.scenario
async def test_a_list_of_several_pages(tmp_path: Path) -> None:
    quiet = "130 replicas that do not exist"
    async with kit.api_server() as server:
        for n in range(1, 131):
            server.put(kit.PODS, kit.pod_of(f"p{n}", f"127.1.0.{n}"))
        async with discovering(pods(server, tmp_path), quiet_control_plane=quiet) as router:
            assert len(ids(router)) == 130
            assert server.count(limit="50") == 3


@kit.scenario
async def test_a_reload_applies_at_once_and_keeps_who_has_joined(tmp_path: Path) -> None:
    """A pod that is no longer ready stays, although a reload lists the pods anew."""
    async with kit.api_server() as server:
        server.put(kit.PODS, kit.pod_of("a", "127.0.0.2"))
        server.put(kit.PODS, kit.pod_of("b", "127.0.0.3"))
        first = pods(server, tmp_path, weight=2.0, region="eu")
        async with discovering(first, region="us") as router:
            server.put(kit.PODS, kit.pod_of("a", "127.0.0.2", ready=False))
            server.put(kit.PODS, kit.pod_of("c", "127.0.0.4"))
            await become(router, "127.0.0.2", "127.0.0.3", "127.0.0.4")
            kept = router.app.parts.fleet.replicas["default/a:8000"]
            assert (kept.config.weight, kept.region) == (2.0, "eu")
            for weight in (3.0, 4.0, 5.0):
                router.change(discovery=rules(pods(server, tmp_path, weight=weight)))
                await router.app.reload()
                assert router.app.parts.fleet.replicas["default/a:8000"] is kept
                assert (kept.config.weight, kept.region) == (weight, "us")
            lists = server.count() - server.count(watch="true")
            assert lists <= 4
            server.put(kit.PODS, kit.pod_of("d", "127.0.0.5"))
            await become(router, "127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5")
            await kit.eventually(lambda: server.watching == 1, "one watch")
            assert router.app.parts.discovery.running == 1
            router.change(discovery=Discovery(), replicas=(Replica(url="http://127.0.0.9"),))
            await router.app.reload()
            assert hosts(router) == {"127.0.0.9"}
            await kit.eventually(lambda: server.watching == 0, "no watch")


@kit.scenario
async def test_a_reload_and_the_end_while_the_server_hangs(tmp_path: Path) -> None:
    """Neither waits for the server: its answer would need an hour."""
    async with kit.api_server() as server:
        hanging = 0

        async def hang(request: web.Request) -> None:
            nonlocal hanging
            hanging += 1
            try:
                await asyncio.sleep(3600.0)
            finally:
                hanging -= 1

        server.put(kit.SLICES, kit.slice_of("s", kit.endpoint("127.0.0.2", "a")))
        async with discovering(service(server, tmp_path)) as router:
            await kit.eventually(lambda: server.watching == 1, "a watch")
            server.fault = hang
            for weight in (2.0, 3.0, 4.0):
                source = service(server, tmp_path, weight=weight)
                router.change(discovery=rules(source, timeout_s=3600.0))
                await router.app.reload()
                await kit.eventually(lambda: hanging == 1, "one list that hangs")
            replica = router.app.parts.fleet.replicas["default/a:8000"]
            assert replica.config.weight == 4.0
            assert (await router.admin("/readyz")).status in (200, 503)
        await kit.eventually(lambda: hanging == 0, "the end of the list")


@kit.scenario
async def test_a_router_starts_before_it_may_read(tmp_path: Path) -> None:
    async with kit.api_server() as server, Engines(kit.json_ok) as (a,):
        server.put(kit.PODS, pod("a", a))
        server.verbs.clear()
        async with discovering(pods(server, tmp_path)) as router:
            assert (await router.admin("/readyz")).status == 503
            server.verbs |= {"list", "watch"}
            await kit.eventually(lambda: "ready" in states(router).values(), "the replica")
            assert (await router.ask()).status == 200


@kit.scenario
async def test_the_watch_is_renewed(tmp_path: Path) -> None:
    """After `ttl_max`: the server ends it, and it goes on where it ended."""
    async with kit.api_server() as server:
        server.put(kit.SLICES, kit.slice_of("s", kit.endpoint("127.0.0.2", "a")))
        times = {"ttl_max_s": 2.0}
        async with discovering(service(server, tmp_path), times=times) as router:
            await kit.eventually(lambda: server.count(watch="true") > 1, "the next watch")
            assert server.count(timeoutSeconds="2") == server.count(watch="true")
            assert server.count() - server.count(watch="true") == 1, "one list"
            assert looks(router, SERVICE, "failed") == 0
