"""Kubernetes adds none of the router's own listeners as a replica."""

from pathlib import Path

import pytest

from router.addons.kubernetes import client as _imported_early  # noqa: F401  (slow)
from router.config.model import Admin
from tests.addons.kubernetes.app import test_kubernetes as kubernetes
from tests.app.discovery.test_own_listeners import is_refused
from tests.app.members.test_changes import states
from tests.harness.api_server import PODS, SLICES, api_server, endpoint, pod_of, slice_of
from tests.harness.behaviours import json_ok
from tests.harness.ports import free_port
from tests.harness.running import running, scenario


@pytest.mark.parametrize("kind", [PODS, SLICES])
@scenario
async def test_kubernetes_adds_none_of_them(kind: str, tmp_path: Path) -> None:
    async with api_server() as server:
        source = (kubernetes.pods if kind == PODS else kubernetes.service)(server, tmp_path)
        first = free_port(3)
        if kind == PODS:
            marks = {"hedgerow.dev/port": str(first)}
            server.put(PODS, pod_of("own", "127.0.0.1", annotations=marks))
            server.put(PODS, pod_of("b", "127.0.0.3", annotations=marks))
        else:
            own, b = endpoint("127.0.0.1", "own"), endpoint("127.0.0.3", "b")
            server.put(SLICES, slice_of("s1", own, b, port=first))
        admin = Admin(listen=f"127.0.0.1:{first}")
        rules = kubernetes.rules(source)
        async with running(json_ok, discovery=rules, admin=admin) as router:
            assert {*states(router)} == {"r0", f"default/b:{first}"}
            await is_refused(router, source.name)
