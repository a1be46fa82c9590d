"""The metadata services of three clouds, emulated by a local server."""

import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from router.addons.spot_notices.watcher import SpotWatcher
from router.config.model import Spot, SpotMetadata
from router.fleet.notice import UNSTATED, Notice
from tests.app.fleet.servers import Answers, Engine, serving
from tests.harness.messages import response
from tests.harness.reading import Request
from tests.harness.replica import ReplicaConnection, eventually
from tests.harness.running import scenario

AWS = "/latest/meta-data/spot/instance-action"
AZURE = "/metadata/scheduledevents?api-version=2020-07-01"


class Heard:
    """What a watcher reports."""

    def __init__(self) -> None:
        self.notices: list[tuple[Notice, str]] = []
        self.withdrawn: list[tuple[Notice, str]] = []
        self.problems: list[tuple[str, str]] = []

    def watcher(self, **rules: Any) -> SpotWatcher:
        return SpotWatcher(
            Spot(interval_s=0.01, **rules),
            lambda notice, source: self.notices.append((notice, source)),
            lambda notice, source: self.withdrawn.append((notice, source)),
            lambda source, why: self.problems.append((source, why)),
        )


@asynccontextmanager
async def watching(
    provider: Any, url: str, *, timeout_s: float = 2.0, **target: str
) -> AsyncIterator[Heard]:
    heard = Heard()
    source = SpotMetadata(provider=provider, url=url, **target)
    watcher = heard.watcher(metadata=(source,), timeout_s=timeout_s)
    await watcher.start()
    try:
        yield heard
    finally:
        await watcher.stop()
        assert watcher.running == 0


def body(value: str) -> bytes:
    return response(200, "Connection: close", body=value.encode())


class Imds:
    """AWS's metadata service, version 2: it requires a session token, which may expire."""

    def __init__(self) -> None:
        self.token = "t1"
        self.action = response(404, "Connection: close")
        self.asked: list[Request] = []

    async def __call__(self, connection: ReplicaConnection) -> None:
        while asked := await connection.recv_request():
            self.asked.append(asked)
            if asked.method == "PUT" and asked.target == "/latest/api/token":
                assert asked.header("x-aws-ec2-metadata-token-ttl-seconds") == "21600"
                await connection.send(body(self.token))
            elif asked.header("x-aws-ec2-metadata-token") != self.token:
                await connection.send(response(401, "Connection: close"))
            else:
                assert asked.target == AWS
                await connection.send(self.action)


@scenario
async def test_aws_with_a_session_token() -> None:
    imds = Imds()
    async with serving(imds) as cloud, watching("aws", f"{cloud.server.url}/", node="n") as heard:
        await eventually(lambda: len(imds.asked) > 3, "several looks")
        assert [asked.method for asked in imds.asked].count("PUT") == 1
        assert heard.notices == heard.problems == []
        imds.token = "t2"  # the first token has expired
        imds.action = body(json.dumps({"action": "terminate", "time": "2126-01-01T00:00:00Z"}))
        await eventually(lambda: len(heard.notices) > 0, "the notice")
        (notice, source), *more = heard.notices
        assert (source, more) == ("aws", [])
        assert (notice.replicas, notice.node) == ((), "n")
        assert notice.seconds > 3600.0
        assert all("answered 401" in why for _, why in heard.problems)


@scenario
async def test_gcp_once_for_each_notice() -> None:
    path = "/computeMetadata/v1/instance/preempted"
    answers: Answers = {path: body("FALSE")}
    async with serving(answers) as cloud, watching("gcp", cloud.server.url) as heard:
        await looks(cloud)
        assert heard.notices == []
        answers[path] = body("TRUE")
        await looks(cloud)
        assert heard.notices == [(Notice("preempted", UNSTATED), "gcp")]
        assert heard.withdrawn == []
        answers[path] = response(500, "Connection: close")
        await looks(cloud)
        assert heard.withdrawn == [], "a failed query withdraws nothing"
        answers[path] = body("FALSE")
        await looks(cloud)
        assert heard.withdrawn == heard.notices
        answers[path] = body("TRUE")
        await looks(cloud)
        assert len(heard.notices) == 2
        assert all(field["metadata-flavor"] == "Google" for field in cloud.fields)


@scenario
async def test_azure_for_one_machine() -> None:
    event = {"EventId": "1", "EventType": "Preempt", "Resources": ["vm-1"], "NotBefore": ""}
    answers: Answers = {AZURE: body(json.dumps({"Events": [event]}))}
    async with serving(answers) as cloud:
        async with watching("azure", cloud.server.url, machine="vm-2") as heard:
            await looks(cloud)
            assert heard.notices == []
        async with watching("azure", cloud.server.url, machine="vm-1", replica="r") as heard:
            await looks(cloud)
            assert heard.notices == [(Notice("1", 0.0, ("r",)), "azure")]
        assert all(field["metadata"] == "true" for field in cloud.fields)


@scenario
async def test_a_service_that_fails_is_asked_again() -> None:
    path = "/computeMetadata/v1/instance/preempted"
    answers: Answers = {path: response(500, "Connection: close")}
    async with serving(answers) as cloud, watching("gcp", cloud.server.url) as heard:
        await looks(cloud)
        answers[path] = body("<html>")
        await looks(cloud)
        answers[path] = body("TRUE")
        await eventually(lambda: len(heard.notices) == 1, "the notice")
        whys = " ".join(why for _, why in heard.problems)
        assert "answered 500" in whys and "neither TRUE nor FALSE" in whys


@scenario
async def test_a_compressed_answer_is_not_expanded() -> None:
    path = "/computeMetadata/v1/instance/preempted"
    bomb = gzip.compress(b" " * (1 << 22))
    answer = response(200, "Connection: close", "Content-Encoding: gzip", body=bomb)
    async with serving({path: answer}) as cloud, watching("gcp", cloud.server.url) as heard:
        await eventually(lambda: len(heard.problems) > 0, "a look")
        assert "neither TRUE nor FALSE" in heard.problems[0][1], "larger only when it is expanded"


async def looks(cloud: Engine, count: int = 3) -> None:
    asked = len(cloud.asked)
    await eventually(lambda: len(cloud.asked) >= asked + count, "looks at the service")


@scenario
async def test_an_answer_that_is_no_session_token_is_not_kept() -> None:
    imds = Imds()
    imds.token = "<html>\r\n</html>"
    async with serving(imds) as cloud, watching("aws", cloud.server.url) as heard:
        await eventually(lambda: len(heard.problems) > 1, "two failed looks")
        imds.token = "t1"
        imds.action = body(json.dumps({"action": "stop", "time": "2126-01-01T00:00:00Z"}))
        await eventually(lambda: len(heard.notices) == 1, "the notice")


def test_a_state_of_another_version_is_left_out() -> None:
    watcher = Heard().watcher()
    for state in (b'{"notices": []}', b'[["file", 1]]', b"[[]]"):
        watcher.continues(msgspec.Raw(state))
        assert watcher.state() is None
    watcher.continues(msgspec.Raw(b'[["/a", ["key", 1.0, ["r0"], ""]]]'))
    assert watcher.state() == [("/a", Notice("key", 1.0, ("r0",)))]
