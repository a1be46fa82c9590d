"""The admin API adds, removes, cordons and drains replicas of a running router."""

import asyncio
from typing import Any

import pytest

from router.config.model import Discovery
from tests.harness.behaviours import chat_either, json_ok
from tests.harness.client import RawClient
from tests.harness.messages import DONE, LAST_CHUNK, SSE_HEAD, chat, chunk, token
from tests.harness.replica import HostileReplica, ReplicaConnection, eventually
from tests.harness.running import Router, running, scenario


def states(router: Router) -> dict[str, str]:
    return {shown["id"]: shown["state"] for shown in router.app.replicas()}


async def post(router: Router, path: str, body: Any = None) -> dict[str, Any]:
    answer = await router.admin(path, "POST", body=body)
    assert answer.status in (200, 201, 202), answer
    found: dict[str, Any] = answer.json()
    return found


class Streams:
    """A replica whose streams end when the test lets them."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def __call__(self, connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            await connection.send(SSE_HEAD, chunk(token("a")))
            await self.go.wait()
            await connection.send(chunk(token("b", "stop")), chunk(DONE), LAST_CHUNK)


async def begun(router: Router) -> RawClient:
    """A client whose stream has begun."""
    client = await router.client()
    await client.send(chat(stream=True))
    await client.recv_until(b"data:")
    return client


@scenario
async def test_an_added_replica_is_probed_and_serves() -> None:
    async with (
        HostileReplica(json_ok) as other,
        running(json_ok, policy="round_robin", health={"slow_start_s": 0.0}) as router,
    ):
        entry = {"url": other.url, "id": "new", "max_inflight": 7}
        answer = await router.admin("/replicas", "POST", body=entry)
        assert answer.status == 201
        shown = answer.json()
        assert (shown["id"], shown["origin"], shown["max_inflight"]) == ("new", "api", 7)
        await eventually(lambda: states(router).get("new") == "ready", "the first probe")
        for _ in range(4):
            assert (await router.ask()).status == 200
        assert len(other.requests) == 2
        assert router.app.census()["probes"] == 2
        assert (await router.admin("/replicas/new")).json()["origin"] == "api"
        assert (await router.admin("/replicas/r0")).json()["origin"] == "file"


@scenario
async def test_a_removed_replica_finishes_its_stream() -> None:
    streams = Streams()
    async with running(streams, json_ok, policy="round_robin") as router:
        client = await begun(router)
        gone = await router.admin("/replicas/r0", "DELETE")
        assert (gone.status, gone.json()["state"], gone.json()["inflight"]) == (202, "draining", 1)
        # A second removal has no effect while the replica finishes its requests.
        assert (await router.admin("/replicas/r0", "DELETE")).status == 202
        assert (await router.admin("/replicas/r0")).json()["state"] == "draining"
        for _ in range(3):
            assert (await router.ask()).status == 200
        streams.go.set()
        assert (await client.recv_response()).complete
        await eventually(lambda: list(states(router)) == ["r1"], "the end of the removed one")
        assert (await router.admin("/replicas/r0")).status == 404
        assert (await router.admin("/replicas/r0", "DELETE")).status == 404
        await eventually(lambda: router.app.census()["probes"] == 1, "the end of its probes")
        labels = {replica for replica, _, _ in router.app.metrics.attempts}
        assert labels == {"r1", "other"}  # the removed replica has no label value again


@scenario
async def test_a_cordoned_replica_gets_no_new_request() -> None:
    async with running(json_ok, json_ok, policy="round_robin") as router:
        for _ in range(2):  # the second call changes nothing
            shown = await post(router, "/replicas/r0/cordon")
            assert (shown["state"], shown["up"]) == ("cordoned", True)
        for _ in range(4):
            assert (await router.ask()).status == 200
        first, second = router.replicas
        assert (len(first.requests), len(second.requests)) == (0, 4)
        assert router.app.census()["probes"] == 2
        for _ in range(2):
            assert (await post(router, "/replicas/r0/uncordon"))["state"] == "ready"
        await router.ask()
        await router.ask()
        assert len(first.requests) == 1


@scenario
async def test_a_draining_replica_tells_when_it_is_empty() -> None:
    streams = Streams()
    async with running(streams, json_ok, policy="round_robin") as router:
        client = await begun(router)
        shown = await post(router, "/replicas/r0/drain")
        assert (shown["state"], shown["inflight"]) == ("draining", 1)
        assert (await router.ask()).status == 200
        streams.go.set()
        assert (await client.recv_response()).complete
        await eventually(lambda: states(router)["r0"] == "drained", "drained")
        assert (await post(router, "/replicas/r0/drain"))["state"] == "drained"
        assert (await post(router, "/replicas/r0/cordon"))["state"] == "drained"
        assert (await post(router, "/replicas/r0/uncordon"))["state"] == "ready"


@scenario
async def test_requests_wait_for_a_cordoned_fleet() -> None:
    async with running(json_ok) as router:
        await post(router, "/replicas/r0/cordon")
        assert not router.app.parts.fleet.serving.ready
        assert (await router.admin("/readyz")).status == 200  # Requests wait.
        client = await router.client()
        await client.send(chat())
        await eventually(lambda: router.app.census()["queued"] == 1, "a waiting request")
        await post(router, "/replicas/r0/uncordon")
        assert (await client.recv_response()).status == 200


@scenario
async def test_an_id_with_slashes() -> None:
    async with HostileReplica(chat_either) as other, running(json_ok) as router:
        name = f"127.0.0.1:{other.port}/a/cordon"
        shown = await post(router, "/replicas", {"url": f"{other.url}/a/cordon"})
        assert shown["id"] == name
        assert (await post(router, f"/replicas/{name}/cordon"))["state"] == "cordoned"
        assert (await router.admin(f"/replicas/{name}")).json()["id"] == name
        assert (await router.admin(f"/replicas/{name}", "DELETE")).status == 202


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/replicas/x", None, 404, "replica_not_found"),
        ("DELETE", "/replicas/x", None, 404, "replica_not_found"),
        ("POST", "/replicas/x/cordon", None, 404, "replica_not_found"),
        ("POST", "/replicas/x/uncordon", None, 404, "replica_not_found"),
        ("POST", "/replicas/x/drain", None, 404, "replica_not_found"),
        ("POST", "/replicas/x/reclaim", None, 404, "replica_not_found"),
        ("POST", "/replicas/r0/reclaim", {"seconds": -1}, 422, "bad_reclaim"),
        ("POST", "/replicas/r0/reclaim", {"second": 1}, 422, "bad_reclaim"),
        ("POST", "/replicas/r0/reclaim", b"soon", 400, "bad_json"),
        ("POST", "/replicas/r0/explode", None, 405, "method_not_allowed"),
        ("PUT", "/replicas/r0", None, 405, "method_not_allowed"),
        ("GET", "/replicas/r0/drain", None, 405, "method_not_allowed"),
        ("HEAD", "/replicas/r0/cordon", None, 405, ""),
        ("DELETE", "/replicas/r0/uncordon", None, 405, "method_not_allowed"),
        ("GET", "/replicas/r0/reclaim", None, 405, "method_not_allowed"),
        ("GET", "/replicas/r0/explode", None, 404, "replica_not_found"),
        ("POST", "/replicas", b"{", 400, "bad_json"),
        ("POST", "/replicas", b"", 400, "bad_json"),
        ("POST", "/replicas", {"url": "gpu-1"}, 422, "bad_replica"),
        ("POST", "/replicas", {"url": "http://gpu-1", "id": "r0"}, 409, "conflict"),
    ],
)
@scenario
async def test_a_refusal(method: str, path: str, body: Any, status: int, code: str) -> None:
    async with running(json_ok) as router:
        answer = await router.admin(path, method, body=body)
        found = answer.json()["error"]["code"] if answer.body else ""
        assert (answer.status, found) == (status, code), answer
        if method == "GET" and status == 405:
            assert answer.header("allow") == "POST"
            assert answer.json()["error"]["message"] == "this path allows only POST"
        assert states(router) == {"r0": "ready"}


@scenario
async def test_a_refusal_has_the_texts_of_the_configuration() -> None:
    async with running(json_ok) as router:
        body = {"url": router.replica.url, "id": "other"}
        answer = await router.admin("/replicas", "POST", body=body)
        assert answer.status == 409
        assert answer.json()["error"]["message"] == "url: is the same engine as the replica 'r0'"
        answer = await router.admin("/replicas", "POST", body={"url": "gpu-1", "weight": 0})
        assert answer.json()["error"]["problems"] == [
            "weight: must be above 0",
            "url: 'gpu-1' has no scheme; write http://gpu-1",
        ]


@scenario
async def test_a_web_page_cannot_change_the_fleet() -> None:
    async with running(json_ok) as router:
        for path, method in (("/replicas/r0", "DELETE"), ("/drain", "POST")):
            answer = await router.admin(path, method, "Origin: http://evil.example")
            assert (answer.status, answer.json()["error"]["code"]) == (403, "forbidden")
        assert states(router) == {"r0": "ready"}
        assert not router.app.draining.has_begun


@scenario
async def test_the_replicas_of_the_admin_api_have_a_maximum() -> None:
    async with running(json_ok, discovery=Discovery(replicas_max=2)) as router:
        for number in (1, 2):
            await post(
                router, "/replicas", {"url": f"http://127.0.0.9:{number}", "id": f"n{number}"}
            )
        answer = await router.admin("/replicas", "POST", body={"url": "http://127.0.0.9:3"})
        assert (answer.status, answer.json()["error"]["code"]) == (409, "too_many_replicas")
        await router.admin("/replicas/n1", "DELETE")
        await post(router, "/replicas", {"url": "http://127.0.0.9:3", "id": "n3"})
        assert set(states(router)) == {"r0", "n2", "n3"}


@scenario
async def test_a_dead_replica_is_asked_rarely_and_returns() -> None:
    """At an interval of 50 ms, a replica that is down is probed and polled every 150 ms."""
    async with HostileReplica(json_ok) as dead:
        dead.control.status = 500
        rules = {"interval_s": 0.05}
        async with running(json_ok, health=rules, polling=rules) as router:
            await post(router, "/replicas", {"url": dead.url, "id": "dead"})
            health = router.app.parts.fleet.replicas["dead"].health
            await eventually(lambda: health.probe_streak < -12, "it has been down for long")
            began, probes = asyncio.get_running_loop().time(), health.probe_streak
            await eventually(lambda: health.probe_streak <= probes - 10, "ten more probes")
            assert asyncio.get_running_loop().time() - began > 9 * 0.1  # a sleep is never shorter
            dead.control.status = 200
            await eventually(lambda: states(router)["dead"] == "ready", "it is repaired")


@pytest.mark.parametrize(
    "entry",
    [
        {"url": "http://a", **{f"weigh{n}": 1 for n in range(4000)}},
        {"url": "http://a", "models": [1] * 20_000},
    ],
)
@scenario
async def test_an_entry_full_of_errors_gets_the_first_of_them(entry: dict[str, Any]) -> None:
    async with running(json_ok) as router:
        answer = await router.admin("/replicas", "POST", body=entry)
        problems = answer.json()["error"]["problems"]
        assert (answer.status, 90 <= len(problems) <= 110) == (422, True)
        assert sum("did you mean" in line for line in problems) <= 10
        answer = await router.admin("/replicas", "POST", body={**entry, "id": "x" * 70_000})
        assert answer.status == 413
