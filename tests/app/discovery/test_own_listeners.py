"""The router's own listeners are replicas from no source. Otherwise clients would reach them."""

import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from router.app import App
from router.config.load import parse
from router.config.model import Admin, Discovery, DnsName, Replica
from router.core.errors import ConfigError
from tests.app.discovery import test_dns as dns, test_files as files
from tests.app.members.test_changes import states
from tests.harness.behaviours import json_ok
from tests.harness.messages import request
from tests.harness.name_server import name_server, needs_nsd
from tests.harness.ports import free_port
from tests.harness.replica import HostileReplica, eventually
from tests.harness.running import Router, running, scenario

LISTENERS = ("admin", "probes", "data")
BY_LISTENER = pytest.mark.parametrize("listener", LISTENERS)


def own_address() -> str:
    """An address of this machine that is not a loopback address, if it has one."""
    with socket.socket(type=socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


@asynccontextmanager
async def everywhere(*engines: Any, **config: Any) -> AsyncIterator[tuple[Router, dict[str, int]]]:
    """A router that listens on every address, and its ports."""
    first = free_port(3)
    ports = {name: first + n for n, name in enumerate(LISTENERS)}
    admin = Admin(listen=f"127.0.0.1:{ports['admin']}", probes_listen=f"0.0.0.0:{ports['probes']}")
    async with running(*(engines or (json_ok,)), admin=admin, **config) as router:
        ports["data"] = router.port
        yield router, ports


async def is_refused(router: Router, source: str) -> None:
    looks = router.app.discovered.looks
    await eventually(lambda: looks.get((source, "failed"), 0) > 0, "a refused replica")
    assert "own" not in states(router)
    await cannot_drain(router)


async def cannot_drain(router: Router) -> None:
    for path in ("/drain", "/replicas/r0/drain", "/replicas/r0/cordon"):
        await router.ask(request(path, "Connection: close", method="POST", body=b"{}"), "POST")
    assert not router.app.draining.has_begun
    assert states(router).get("r0", "ready") == "ready"


@BY_LISTENER
@scenario
async def test_the_admin_api_adds_none_of_them(listener: str) -> None:
    async with everywhere() as (router, ports):
        port = ports[listener]
        hosts = ["127.0.0.1", "localhost", "0.0.0.0", "[::ffff:127.0.0.1]", "LOCALHOST."]
        if listener == "probes":  # It listens on every address.
            hosts += ["127.0.0.2", own_address()]
        for host in hosts:
            entry = {"url": f"http://{host}:{port}/v1x", "id": "own"}
            answer = await router.admin("/replicas", "POST", body=entry)
            assert answer.status == 422, (host, answer)
            assert "is this router's own listener" in str(answer.json()["error"]["problems"])
        assert [*states(router)] == ["r0"]
        await cannot_drain(router)


@scenario
async def test_a_name_that_leads_to_one_of_them_gets_no_connection() -> None:
    """`0x7f000001` is a name for the parser, and 127.0.0.1 for the resolver."""
    async with everywhere(health={"interval_s": 0.02}) as (router, ports):
        for listener in LISTENERS:
            url = f"http://0x7f000001:{ports[listener]}"
            entry = {"url": url, "id": "own", "models": ["*"]}
            assert (await router.admin("/replicas", "POST", body=entry)).status == 201
            replica = router.app.parts.fleet.replicas["own"]
            await eventually(lambda replica=replica: bool(replica.why(0.0)), "a failed probe")  # type: ignore[misc]
            assert not replica.health.up
            with pytest.raises(OSError, match="is a listener of this router"):
                await replica.pool._connect()
            await cannot_drain(router)
            assert (await router.admin("/replicas/own", "DELETE")).status == 202


@scenario
async def test_another_port_of_the_same_address_is_a_replica() -> None:
    other = HostileReplica(json_ok)
    other.start()
    async with everywhere() as (router, _):
        entry = {"url": other.url, "id": "other"}
        assert (await router.admin("/replicas", "POST", body=entry)).status == 201
        await eventually(lambda: states(router).get("other") == "ready", "the replica")
    await other.stop()


@BY_LISTENER
@scenario
async def test_the_configuration_names_none_of_them(listener: str) -> None:
    first = free_port(3)
    listens = {name: f"127.0.0.1:{first + n}" for n, name in enumerate(LISTENERS)}
    admin = {"listen": listens["admin"], "probes_listen": listens["probes"]}
    url = f"http://{listens[listener]}"
    text = json.dumps({"listen": listens["data"], "admin": admin, "replicas": [url]})
    with pytest.raises(ConfigError) as caught:
        parse(text)
    (problem,) = caught.value.problems
    assert problem.startswith("replicas[0].url: is this router's own listener (")
    # The address may be known only at the start, such as that of a socket of systemd.
    config = parse(text.replace(f'"replicas": ["{url}"]', '"replicas": ["http://127.0.0.1:1"]'))
    app = App(msgspec.structs.replace(config, replicas=(Replica(url=url, id="own"),)))
    with pytest.raises(ConfigError, match="own listener"):
        await app.start()


@BY_LISTENER
@scenario
async def test_a_reload_adds_none_of_them(listener: str) -> None:
    async with everywhere() as (router, ports):
        own = Replica(url=f"http://127.0.0.1:{ports[listener]}", id="own")
        router.change(replicas=(*router.config.replicas, own))
        answer = await router.admin("/reload", "POST")
        assert (answer.status, answer.json()["error"]["code"]) == (400, "bad_config")
        assert [*states(router)] == ["r0"]


@BY_LISTENER
@scenario
async def test_a_file_adds_none_of_them(listener: str, tmp_path: Path) -> None:
    file = tmp_path / "replicas.json"
    files.write(file)
    async with everywhere(discovery=files.rules(file, retry_max_s=0.02)) as (router, ports):
        url = f"http://127.0.0.1:{ports[listener]}"
        files.write(file, {"url": url, "id": "own"}, {"url": "http://127.0.0.1:1", "id": "b"})
        await eventually(lambda: "b" in states(router), "the other replica of the file")
        await is_refused(router, f"file:{file}")


@needs_nsd
@scenario
async def test_a_name_of_dns_adds_none_of_them() -> None:
    async with name_server() as server:
        await server.serve("vllm A 127.0.0.1", "vllm A 127.0.0.3")
        first = free_port(3)
        name = DnsName(url=f"http://vllm.test:{first}")
        rules = Discovery(
            dns=(name,),
            nameservers=(server.address,),
            ttl_min_s=dns.TTL_S,
            ttl_max_s=dns.TTL_S,
            retry_max_s=dns.TTL_S,
        )
        admin = Admin(listen=f"127.0.0.1:{first}")
        async with running(json_ok, discovery=rules, admin=admin) as router:
            assert {*states(router)} == {"r0", f"127.0.0.3:{first}"}
            await is_refused(router, f"dns:vllm.test:{first}")
