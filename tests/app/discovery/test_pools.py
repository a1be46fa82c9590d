"""Replicas of files and DNS in pools: each gets its own credential, or does not join."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from router.config.model import Credential, Discovery, DnsName, Pool, Upstream
from router.core.errors import ConfigError
from tests.app.discovery.test_files import FAST_S, looks, rules, write
from tests.app.members.test_changes import states
from tests.faults.names.engines import Engine
from tests.faults.names.test_credentials import (
    CLIENT,
    FIRST,
    SECOND,
    SENT,
    USUAL,
    Provider,
    received,
)
from tests.harness.messages import chat
from tests.harness.name_server import name_server, needs_nsd
from tests.harness.replica import eventually
from tests.harness.running import Router, running, scenario
from tests.places import CERT

POOLS = {
    "first": Pool(credential=Credential(token=FIRST)),
    "second": Pool(credential=Credential(token=SECOND, header="api-key")),
}
FAST = {"ttl_min_s": FAST_S, "ttl_max_s": FAST_S, "retry_max_s": FAST_S}


@asynccontextmanager
async def engines(*models: str) -> AsyncIterator[list[Engine]]:
    """Engines that the router does not know at the start, each with one model."""
    found = [Engine(model) for model in models]
    for engine in found:
        engine.start()
    try:
        yield found
    finally:
        for engine in found:
            await engine.stop()


def secrets_of(*engines: Engine) -> list[set[str]]:
    """The secrets that each engine has received, also with probes and polls."""
    known = (FIRST, SECOND, USUAL, CLIENT)
    return [{one for one in known if one.encode() in received(engine)} for engine in engines]


async def become(router: Router, *ids: str) -> None:
    await eventually(lambda: states(router) == dict.fromkeys(ids, "ready"), f"ready members {ids}")


@scenario
async def test_each_replica_of_a_file_gets_the_credential_of_its_pool(tmp_path: Path) -> None:
    file = tmp_path / "replicas.json"
    async with engines("a", "b", "c") as (a, b, c):
        own = {"url": c.url, "id": "c", "credential": {"token": SECOND}}
        write(file, {"url": a.url, "id": "a", "pool": "first"}, {"url": b.url, "id": "b"}, own)
        settings = {"pools": POOLS, "upstream": Upstream(token=USUAL)}
        async with running(discovery=rules(file, **FAST), **settings) as router:
            await become(router, "a", "b", "c")
            for model in "abc":
                assert (await router.ask(chat(*SENT, model=model))).status == 200
            assert secrets_of(a, b, c) == [{FIRST}, {USUAL, CLIENT}, {SECOND}]
            # Another pool, and another credential: the same replica, from now on.
            replica = router.app.parts.fleet.replicas["a"]
            write(file, {"url": a.url, "id": "a", "pool": "second"}, {"url": b.url, "id": "b"})
            await eventually(lambda: replica.config.pool == "second", "the other pool")
            assert (await router.ask(chat(*SENT, model="a"))).status == 200
            assert a.last.header("api-key") == SECOND
            assert a.last.header("authorization") is None
            assert router.app.parts.fleet.replicas["a"] is replica
            # A pool that is missing changes nothing.
            bad = looks(router, file, "failed")
            write(file, {"url": a.url, "id": "a", "pool": "third"}, {"url": b.url, "id": "b"})
            await eventually(lambda: looks(router, file, "failed") > bad + 2, "failed looks")
            assert replica.config.pool == "second"
            assert (await router.ask(chat(*SENT, model="a"))).status == 200
            assert USUAL not in secrets_of(a)[0] | secrets_of(c)[0]
            # A replica that has left leaves no credential behind.
            write(file, {"url": b.url, "id": "b"})
            await become(router, "b")
            assert router.app.parts.upstream.access == {}


@scenario
async def test_a_reload_that_removes_a_pool_in_use_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "replicas.json"
    async with engines("a", "b") as (a, b):
        write(file, {"url": a.url, "id": "a", "pool": "first"}, {"url": b.url, "id": "b"})
        settings = {"pools": POOLS, "upstream": Upstream(token=USUAL)}
        slow = {"ttl_min_s": 60.0, "retry_max_s": 60.0}
        async with running(discovery=rules(file, **slow), **settings) as router:
            router.change(pools={"second": POOLS["second"]})
            with pytest.raises(ConfigError, match=r"pools\.first: is missing; .* replica 'a'"):
                await router.app.reload()
            router.change(pools={**POOLS, "first": Pool(external=True)})
            with pytest.raises(ConfigError, match=r"pools\.first: is external"):
                await router.app.reload()
            assert (await router.ask(chat(*SENT, model="a"))).status == 200
            assert secrets_of(a) == [{FIRST}]
            # The file waits for a pool, which a reload adds.
            write(file, {"url": a.url, "id": "a", "pool": "new"})
            bad = looks(router, file, "failed")
            await eventually(lambda: looks(router, file, "failed") > bad + 2, "failed looks")
            new = Pool(credential=Credential(token=SECOND))
            router.change(pools={**POOLS, "new": new})
            await router.app.reload()
            await become(router, "a")
            assert (await router.ask(chat(*SENT, model="a"))).status == 200
            assert secrets_of(a) == [{FIRST, SECOND}]


@scenario
async def test_a_secret_that_is_mounted_later(tmp_path: Path) -> None:
    """The content of the file does not change, but it becomes valid."""
    file, token = tmp_path / "replicas.json", tmp_path / "token"
    async with engines("a") as (a,):
        write(file, {"url": a.url, "id": "a", "credential": {"token_file": str(token)}})
        settings = {"upstream": Upstream(token=USUAL)}
        async with running(discovery=rules(file, **FAST), **settings) as router:
            assert states(router) == {}
            token.write_text(FIRST)
            await become(router, "a")
            assert (await router.ask(chat(*SENT, model="a"))).status == 200
            assert secrets_of(a) == [{FIRST}]


@scenario
async def test_a_provider_of_a_file_over_tls(tmp_path: Path) -> None:
    file = tmp_path / "replicas.json"
    rule = Pool(
        external=True,
        credential=Credential(token=SECOND),
        ca_file=CERT,
        server_name="one.test",
    )
    provider = Provider()
    provider.start()
    try:
        entry = {"url": provider.url + "/api", "id": "cloud", "models": ["gpt"]}
        write(file)
        wrong = msgspec.structs.replace(rule, server_name="other.test")
        settings = {
            "pools": {"cloud": rule, "wrong": wrong},
            "upstream": Upstream(token=USUAL),
        }
        async with running(discovery=rules(file), region="eu", **settings) as router:
            write(file, {**entry, "pool": "cloud"})
            await become(router, "cloud")
            assert (await router.ask(chat(*SENT, model="gpt"))).status == 200
            assert len(provider.asked) == 1
            seen = b"".join(bytes(each.received) for each in provider.connections)
            assert SECOND.encode() in seen
            assert not [s for s in (CLIENT, USUAL, "hedgerow") if s.encode() in seen]
            # The connections of another pool have other TLS settings.
            replica = router.app.parts.fleet.replicas["cloud"]
            write(file, {**entry, "pool": "wrong"})
            await eventually(lambda: provider.refused > 0, "a refused handshake")
            assert replica.removed
            (shown,) = router.app.replicas()
            assert shown["region"] is None, "a provider has only the region that it states"
    finally:
        await provider.stop()


@needs_nsd
@scenario
async def test_replicas_of_dns_share_a_credential(tmp_path: Path) -> None:
    token = tmp_path / "token"
    async with name_server() as server, engines("a", "b") as (a, b):

        async def serve(*found: Engine) -> None:
            records = [f"s SRV 0 1 {engine.port} gpu" for engine in found]
            await server.serve(*records, "gpu A 127.0.0.1")

        def discovery(**fields: Any) -> Discovery:
            name = DnsName(url="http://s.test", records="srv", **fields)
            return Discovery(dns=(name,), nameservers=(server.address,), **FAST)

        token.write_text(FIRST)
        secret = Credential(token_file=str(token))
        ids = [f"127.0.0.1:{engine.port}" for engine in (a, b)]
        await serve(a)
        settings = {"upstream": Upstream(token=USUAL), "pools": POOLS}
        async with running(discovery=discovery(credential=secret), **settings) as router:
            await become(router, ids[0])
            # A replica whose credential cannot be read does not join, and is tried again.
            token.unlink()
            await serve(a, b)
            found = router.app.discovered
            failed = ("srv:s.test", "failed")
            await eventually(lambda: found.looks.get(failed, 0) > 2, "failed looks")
            assert states(router) == {ids[0]: "ready"}
            router.change(debug_headers=True)
            with pytest.raises(ConfigError, match="token_file"):
                await router.app.reload()
            token.write_text(FIRST)
            await become(router, *ids)
            for model in "ab":
                assert (await router.ask(chat(*SENT, model=model))).status == 200
            assert secrets_of(a, b) == [{FIRST}, {FIRST}]
            # New settings of the name apply at the reload, although the server is silent.
            server.freeze()
            router.change(discovery=discovery(pool="second", region="us"))
            await router.app.reload()
            replicas = router.app.replicas()
            assert [(one["id"], one["region"]) for one in replicas] == [
                (name, "us") for name in ids
            ]
            assert (await router.ask(chat(*SENT, model="a"))).status == 200
            assert a.last.header("api-key") == SECOND
            server.thaw()
