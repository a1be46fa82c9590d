"""Reloading the whole router: changed, unchanged and refused settings, without failed requests."""

import asyncio
import threading
from pathlib import Path
from types import ModuleType

import pytest

from policies.contract import make_policy
from router.config.load import load
from router.config.model import (
    AccessLog,
    Admin,
    AdminTls,
    Continuation,
    Limits,
    Replica,
    Routing,
    Tls,
)
from router.core import addons
from router.core.errors import ConfigError
from router.dispatch.addon import Addon
from tests.app.members.test_changes import Streams, begun
from tests.harness.behaviours import json_ok
from tests.harness.clocks import NEVER_S
from tests.harness.listeners import blackhole
from tests.harness.messages import chat
from tests.harness.replica import HostileReplica, eventually
from tests.harness.running import running, scenario
from tests.places import CERT, CERTIFICATES, KEY


@scenario
async def test_a_reload_changes_the_replicas() -> None:
    health = {"interval_s": NEVER_S, "slow_start_s": 0.0}
    async with running(json_ok, json_ok, health=health, policy="round_robin") as router:
        first, second = router.replicas
        router.change(replicas=(router.at(0),))
        assert await router.app.reload() == router.app.metrics.reloads.config_hash
        for _ in range(4):
            assert (await router.ask()).status == 200
        assert (len(first.requests), len(second.requests)) == (4, 0)
        router.change(replicas=(router.at(1), router.at(0)))
        await router.app.reload()
        await eventually(lambda: len(router.app.parts.fleet.serving.ready) == 2, "the first probe")
        for _ in range(4):
            await router.ask()
        assert (len(first.requests), len(second.requests)) == (6, 2)
        assert router.app.census()["probes"] == 2


@scenario
async def test_a_reload_lets_streams_of_a_removed_replica_finish() -> None:
    streams = Streams()
    async with running(streams, json_ok, policy="round_robin") as router:
        client = await begun(router)
        streaming = router.replicas[0] if router.replicas[0].requests else router.replicas[1]
        assert streaming is router.replicas[0]
        router.change(replicas=(router.at(1),))
        await router.app.reload()
        states = {r["id"]: r["state"] for r in router.app.replicas()}
        assert sorted(states.values()) == ["draining", "ready"]
        assert (await router.ask()).status == 200
        streams.go.set()
        found = await client.recv_response()
        assert found.complete
        await eventually(lambda: len(router.app.replicas()) == 1, "the end of the removed one")
        client.close()


@scenario
async def test_a_reload_keeps_what_is_known_of_replicas_that_stay() -> None:
    async with running(json_ok) as router:
        await router.ask()
        kept = next(iter(router.app.parts.fleet.replicas.values()))
        router.change(replicas=(router.at(0, weight=3.0, max_inflight=7),))
        await router.app.reload()
        assert next(iter(router.app.parts.fleet.replicas.values())) is kept
        (shown,) = router.app.replicas()
        assert (shown["weight"], shown["max_inflight"], shown["served"]) == (3.0, 7, 1)
        await router.ask()
        assert kept.pool.opened == 1


@scenario
async def test_a_reload_changes_the_policy() -> None:
    async with running(json_ok, json_ok) as router:
        router.change(routing=Routing(policy="random"))
        await router.app.reload()
        assert type(router.app.parts.context.chooser.policies.default) is type(
            make_policy("random")
        )
        assert (await router.ask()).status == 200


@scenario
async def test_a_reload_changes_how_many_clients_there_may_be() -> None:
    async with running(json_ok) as router:
        router.change(limits=Limits(connections=1))
        await router.app.reload()
        first = await router.client()
        await first.send(chat())
        assert (await first.recv_response()).status == 200
        second = await router.client()
        found = await second.recv_response()
        assert (found.status, found.error()["code"]) == (503, "no_files")
        first.close()
        second.close()


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("replicas: [", "line 1"),
        ("replicas: []\n", "replicas"),
        ("replicas: [{url: http://a, wieght: 1}]\n", "replicas[0].wieght"),
        ("replicas: [http://a, http://a]\n", "replicas[1]"),
        ("replicas: 5\n", "replicas"),
        ("replicas: [http://a]\nrouting: {policy: nonsense}\n", "routing"),
        ("", "is empty"),
        ("# no settings\n", "replicas"),
        (None, "cannot be read"),
    ],
)
@scenario
async def test_a_broken_configuration_keeps_the_old(
    text: str | None, path: str, tmp_path: Path
) -> None:
    file = tmp_path / "hedgerow.yaml"
    if text is not None:
        file.write_text(text)
    async with running(json_ok) as router:
        before = (router.app.config, router.app.metrics.reloads.config_hash)
        router.app.read_again = lambda: load(file)
        with pytest.raises(ConfigError) as refused:
            await router.app.reload()
        assert path in str(refused.value)
        assert (router.app.config, router.app.metrics.reloads.config_hash) == before
        assert (await router.ask()).status == 200
        answer = await router.admin("/reload", "POST")
        assert answer.status == 400
        assert answer.json()["error"]["problems"] == refused.value.problems


FIXED = {
    "listen": {"listen": "127.0.0.1:1"},
    "admin.listen": {"admin": Admin(listen="127.0.0.1:1")},
    "admin.probes_listen": {"admin": Admin(listen="127.0.0.1:0", probes_listen="127.0.0.1:1")},
    "admin.tls": {"admin": Admin(listen="127.0.0.1:0", tls=AdminTls(cert=CERT, key=KEY))},
    "tls": {"tls": Tls(cert=CERT, key=KEY)},
}


@pytest.mark.parametrize("field", FIXED)
@scenario
async def test_what_is_fixed_is_refused(field: str) -> None:
    async with running(json_ok) as router:
        before = router.app.config
        router.change(**FIXED[field], replicas=())
        with pytest.raises(ConfigError) as refused:
            await router.app.reload()
        assert refused.value.problems == [f"{field}: cannot change without a restart"]
        assert router.app.config is before
        assert (await router.ask()).status == 200


@scenario
async def test_a_refused_reload_leaves_nothing_open(tmp_path: Path) -> None:
    """A new access log is opened before the certificate is found to be invalid."""
    async with running(json_ok, tls=Tls(cert=CERT, key=KEY)) as router:
        router.app.parts.log.reopen()  # Starts the thread of the log.
        await router.app.reload()  # Starts the thread that reads files.
        threads = threading.active_count()
        router.change(
            access_log=AccessLog(path=str(tmp_path / "new.log")),
            tls=Tls(cert=CERT, key=str(CERTIFICATES / "other.key")),
        )
        for _ in range(3):
            with pytest.raises(ConfigError) as refused:
                await router.app.reload()
            assert refused.value.problems[0].startswith("tls.key: ")
        assert threading.active_count() == threads


@scenario
async def test_reloads_at_once_follow_each_other() -> None:
    """The files are read in a thread. The replica of the admin API joins meanwhile, and stays."""
    async with HostileReplica(json_ok) as other, running(json_ok) as router:
        reloads = [asyncio.ensure_future(router.app.reload()) for _ in range(3)]
        await asyncio.sleep(0)
        router.app.members.add({"url": other.url, "id": "other"})
        router.change(limits=Limits(body=1000))
        assert (await asyncio.gather(*reloads))[-1] == router.app.metrics.reloads.config_hash
        assert router.app.config.limits.body == 1000
        assert set(router.app.parts.fleet.replicas) == {"r0", "other"}


@scenario
async def test_a_stop_during_a_reload() -> None:
    async with running(json_ok) as router:
        router.change(replicas=(*router.config.replicas, Replica(url="http://127.0.0.9:1", id="n")))
        reload = asyncio.ensure_future(router.app.reload())
        await asyncio.sleep(0)
        await router.app.stop()
        with pytest.raises(ConfigError):
            await reload
        assert set(router.app.parts.fleet.replicas) == {"r0"}


@scenario
async def test_requests_that_wait_for_a_connection_survive_a_moved_replica() -> None:
    """A replica gets another address under the same ID while requests wait for a connection."""
    with blackhole() as hole:
        async with running(json_ok) as router:
            router.change(replicas=(router.at(0, url=hole, id="engine"),))
            await router.app.reload()
            fleet = router.app.parts.fleet
            fleet.probes.probed(
                fleet.replicas["engine"], True
            )  # as if it had been healthy until now
            clients = [await router.client() for _ in range(4)]
            for client in clients:
                await client.send(chat())
            await eventually(lambda: router.app.census()["replica_waiting"] == 4, "requests")
            router.change(replicas=(router.at(0, id="engine"),))
            await router.app.reload()
            for client in clients:
                found = await client.recv_response()
                assert found.status == 200, found
                client.close()


@scenario
async def test_a_reload_that_needs_a_missing_addon_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(name: str) -> ModuleType:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(addons, "import_module", missing)
    async with running(json_ok) as router:
        before = router.app.config
        router.change(continuation=Continuation(enabled=True))
        with pytest.raises(ConfigError) as caught:
            await router.app.reload()
        text = "continuation.enabled: needs the addon continuation, which is not installed"
        assert caught.value.problems == [text]
        assert router.app.config is before
        assert (await router.ask()).status == 200


class Unstarted(Addon):
    async def start(self, *, waits: bool = False) -> None:
        raise ConfigError(["spot.notice_file: cannot be used"])


@scenario
async def test_an_addon_that_does_not_start_leaves_the_reload_in_force(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The addon starts after the settings are in force, so the log must not say "refused"."""
    async with running(json_ok) as router:
        made = {"unstarted": Unstarted()}
        monkeypatch.setattr(router.app.parts, "new_addons", lambda *_: made)
        router.change(replicas=(router.at(0),), log_level="debug")
        assert await router.app.reload() == router.app.metrics.reloads.config_hash
        assert router.app.config.log_level == "debug"
        assert (await router.ask()).status == 200
    assert "an addon has not started" in caplog.text and "refused" not in caplog.text
