"""Changes of the fleet by Kubernetes, under load: no request fails."""

import asyncio
from pathlib import Path
from random import Random

import pytest

from router.addons.kubernetes import client as _imported_early  # noqa: F401  (slow)
from router.config.model import Discovery, KubernetesReplicas
from tests.faults.replicas.test_discovery_changes_under_load import (
    FAST_S,
    Members,
    under_load,
    with_engines,
)
from tests.harness import kit


class Published:
    """Members as objects of Kubernetes. Each member is a pod; its port names its engine.

    A pod that leaves is terminating first, and its name is never used again. At random, the server
    ends all watches, sends a bookmark, or forgets its history.
    """

    def __init__(self, server: kit.ApiServer, resource: str) -> None:
        self._server = server
        self._resource = resource
        self._pods: dict[str, str] = {}  # The names of the pods by URL.
        self._made = 0
        self._rng = Random(3)

    async def __call__(self, members: Members) -> None:
        for url in [url for url in self._pods if url not in members]:
            name = self._pods.pop(url)
            self._put(name, url, members, terminating=True)
            if self._rng.random() < 0.5:
                await asyncio.sleep(FAST_S)
            self._server.delete(self._resource, name)
        for url in members:
            if url not in self._pods:
                self._made += 1
                self._pods[url] = f"p{self._made}"
            self._put(self._pods[url], url, members)
        act = self._rng.choice((*[None] * 4, "disconnect", "bookmark", "forget"))
        if act is not None:
            getattr(self._server, act)()

    def _put(self, name: str, url: str, members: Members, *, terminating: bool = False) -> None:
        port = int(url.rsplit(":", 1)[1])
        marks = {"hedgerow.dev/type": f"w{members.get(url, 1)}"}
        if self._resource == kit.PODS:
            gone = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if terminating else {}
            one = kit.pod_of(name, "127.0.0.1", port=port, annotations=marks, **gone)
        else:
            # The second endpoint is never ready.
            both = (
                kit.endpoint("127.0.0.1", name, terminating=terminating),
                kit.endpoint("127.0.0.2", f"never-{name}", ready=False),
            )
            one = kit.slice_of(name, *both, port=port, annotations=marks)
        self._server.put(self._resource, one)


@pytest.mark.parametrize("resource", [kit.SLICES, kit.PODS])
@kit.long_scenario
async def test_no_request_fails_when_kubernetes_changes(resource: str, tmp_path: Path) -> None:
    async with kit.api_server() as server:
        publish = Published(server, resource)

        async def test(engines: list[kit.Emulated]) -> None:
            members = {engine.url: 1 for engine in engines}
            await publish(members)
            what = {"pods": "app=vllm"} if resource == kit.PODS else {"service": "vllm"}
            source = KubernetesReplicas(kubeconfig=kit.kubeconfig(tmp_path, server.url), **what)
            rules = Discovery(kubernetes=(source,), ttl_min_s=FAST_S, retry_max_s=FAST_S)
            async with kit.running(discovery=rules, health={"slow_start_s": 0.0}) as router:
                await under_load(router, engines, publish, members)
                assert server.count(watch="true") > 1

        await with_engines(test)
