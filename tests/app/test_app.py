"""The whole router: start and stop under traffic, and its admin port."""

import pytest
from msgspec.structs import replace

from router.app import App
from router.config.model import AccessLog, Admin, Config, Replica, Tls
from router.core.errors import ConfigError
from router.observe.families.collector import Collector
from tests.harness.behaviours import chat_either, hang, json_ok, stream_then_hang
from tests.harness.control import HEALTH
from tests.harness.messages import LAST_CHUNK, chat, request, response, token
from tests.harness.replica import HostileReplica, eventually
from tests.harness.running import Router, running, scenario
from tests.places import CERT, CERTIFICATES


@scenario
async def test_start_and_stop_leave_nothing() -> None:
    async with running(chat_either, chat_either) as router:
        for _ in range(4):
            assert (await router.ask()).status == 200
            assert (await router.ask(chat(stream=True))).events()[-1] == "[DONE]"
        assert router.app.census()["replica_idle"]


@scenario
async def test_stop_ends_whatever_is_under_way() -> None:
    async with running(hang, stream_then_hang(token("a")), policy="round_robin") as router:
        clients = [await router.client() for _ in range(6)]
        for client in clients[:4]:
            await client.send(chat(stream=True))
        await clients[4].send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Le")
        await eventually(lambda: sum(len(r.requests) for r in router.replicas) == 4, "requests")
        await clients[1].recv_until(b"data:")
        await router.app.stop()
        assert sum(router.app.census().values()) == 0
        for client in clients:
            await client.expect_close()
        texts = [bytes(client.received) for client in clients[:4]]
        assert all(b'"draining"' in text for text in texts)
        assert not any(text.endswith(LAST_CHUNK) for text in texts)
        for client in clients:
            client.close()
        again = App(router.config)
        await again.start()
        await again.stop()
        assert sum(again.census().values()) == 0


@scenario
async def test_nothing_is_begun_while_it_stops() -> None:
    """A pipelined request waits behind the request that the stop ends; it must not begin."""
    async with running(hang) as router:
        client = await router.client()
        await client.send(chat() + request("/second"))
        await router.replicas[0].wait_for_requests(1)
        await router.app.stop()
        await client.expect_close()
        client.close()
        assert [r.target for r in router.replicas[0].requests] == ["/v1/chat/completions"]
        text = (await Collector(router.app.metrics).render())[0].decode()
        made = [line for line in text.splitlines() if line.startswith("hedgerow_attempts_total{")]
        assert sum(float(line.rpartition(" ")[2]) for line in made) == 1, made


@scenario
async def test_a_port_that_is_taken_leaves_nothing() -> None:
    async with running(json_ok) as router:
        free, taken = "127.0.0.1:0", f"127.0.0.1:{router.port}"
        for listeners in (
            {"listen": taken},
            {"admin": Admin(listen=taken)},
            {"admin": Admin(listen=free, probes_listen=taken)},
        ):
            other = App(replace(router.config, **listeners))
            with pytest.raises(OSError):
                await other.start()
            assert sum(other.census().values()) == 0


@scenario
async def test_a_certificate_that_cannot_be_used_leaves_nothing() -> None:
    config = Config(
        listen="127.0.0.1:0",
        admin=Admin(listen="127.0.0.1:0"),
        replicas=(Replica(url="http://127.0.0.1:9", id="r"),),
        access_log=AccessLog(path=""),
        tls=Tls(cert=CERT, key=str(CERTIFICATES / "other.key")),
    )
    app = App(config)
    with pytest.raises(ConfigError) as refused:
        await app.start()
    assert refused.value.problems[0].startswith("tls.key: ")
    assert sum(app.census().values()) == 0


# -- the admin port --------------------------------------------------------------------------------


@scenario
async def test_the_admin_port_answers() -> None:
    async with running(json_ok, json_ok) as router:
        await router.ask()
        assert bytes((await router.admin("/livez")).body) == b"ok\n"
        assert (await router.admin("/readyz")).status == 200
        shown = (await router.admin("/replicas")).json()
        assert [r["state"] for r in shown] == ["ready", "ready"]
        assert sum(r["served"] for r in shown) == 1
        assert {r["url"] for r in shown} == {r.url for r in router.replicas}
        reloaded = await router.admin("/reload", "POST")
        assert reloaded.json() == {"ok": True, "hash": router.app.metrics.reloads.config_hash}
        assert (await router.admin("/nothing")).status == 404
        assert (await router.admin("/reload")).status == 405


async def readiness(router: Router) -> tuple[int, str, int]:
    """The status and the text of /readyz, and the status of /health on the data port."""
    found = await router.admin("/readyz")
    return found.status, found.body.decode(), (await router.ask(request("/health"))).status


NO_REPLICA = (503, "no replica is up\n", 503)
QUEUES = (200, "ready, and no replica is up\n", 200)
READY = (200, "ready\n", 200)


@pytest.mark.parametrize(
    ("rule", "at_first", "while_down"),
    [
        (None, NO_REPLICA, QUEUES),
        ("when_any_replica", NO_REPLICA, NO_REPLICA),
        ("always", QUEUES, QUEUES),
    ],
)
@scenario
async def test_ready_says_what_the_data_port_does_without_a_replica(
    rule: str | None, at_first: tuple[int, str, int], while_down: tuple[int, str, int]
) -> None:
    replica = HostileReplica(json_ok)
    replica.control.at[HEALTH] = lambda connection: connection.send(response(500))
    config = {} if rule is None else {"ready": rule}
    async with running(replica, health={"fall": 1, "rise": 1}, **config) as router:
        ready = router.app.parts.fleet.serving
        assert await readiness(router) == at_first
        for _ in range(2):
            del replica.control.at[HEALTH]
            await eventually(lambda: bool(ready.ready), "the replica is up")
            assert await readiness(router) == READY
            replica.control.at[HEALTH] = lambda connection: connection.send(response(500))
            await eventually(lambda: not ready.ready, "the replica is down")
            assert await readiness(router) == while_down
        lines = (await router.admin("/metrics")).body.decode()
        assert f"hedgerow_ready {float(while_down[0] == 200)}\n" in lines
        client = await router.client()
        await client.send(chat())
        await eventually(lambda: router.app.census()["queued"] == 1, "a request that waits")
        del replica.control.at[HEALTH]
        assert (await client.recv_response()).status == 200
        router.app.drain()
        assert (await router.admin("/readyz")).body == b"draining\n"


FAMILIES = (
    "hedgerow_requests_total",
    "hedgerow_attempts_total",
    "hedgerow_replicas",
    "hedgerow_config_",
    "hedgerow_client_connections",
    "hedgerow_draining",
    "hedgerow_ready",
    "hedgerow_loop_lag",
    "hedgerow_open_file",
    "hedgerow_build_info",
    "process_start_time_seconds",
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "process_virtual_memory_bytes",
    "process_max_fds",
)


@scenario
async def test_metrics_after_traffic() -> None:
    async with running(chat_either, chat_either) as router:
        for _ in range(3):
            await router.ask()
        await router.ask(chat(stream=True))
        await router.ask(request("/v1/chat/completions", method="POST", body=b"{"))
        text = bytes((await router.admin("/metrics")).body).decode()
        missing = [family for family in FAMILIES if f"\n{family}" not in f"\n{text}"]
        assert not missing
        counts = [
            float(line.rpartition(" ")[2])
            for line in text.splitlines()
            if line.startswith("hedgerow_requests_total{") and 'reason="ok"' in line
        ]
        assert sum(counts) == 4
        for family in ("client_connections_accepted", "replica_connections_opened"):
            (line,) = [x for x in text.splitlines() if x.startswith(f"hedgerow_{family}_total")]
            assert float(line.rpartition(" ")[2]) > 0, line
        bad = [line for line in text.splitlines() if 'reason="bad_json"' in line]
        assert any(line.endswith(" 1.0") for line in bad)
