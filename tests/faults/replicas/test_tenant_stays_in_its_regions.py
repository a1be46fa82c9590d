"""Data residency over sockets: no failure in the allowed region moves a request out of it.

The same request without the limit is sent to another region. So each test has a failure that
another region would hide.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from router.config.keys import KeyLine, hash_of, line_of
from router.config.model import Classes, ClassSettings, Hedging, Keys, Replica
from router.intake.routes import POSTS
from tests.harness.behaviours import (
    chat_either,
    hang,
    rst_after_request,
)
from tests.harness.messages import chat, post_json, request
from tests.harness.replica import Behaviour, HostileReplica
from tests.harness.running import Router, running, scenario

LIMITED = "Authorization: Bearer acme-key"
FREE = "Authorization: Bearer umbrella-key"
PRIVATE, OPEN = "private text", "open text"


def keys(folder: Path) -> Keys:
    lines = (
        KeyLine(name="acme", hash=hash_of(b"acme-key"), allowed_regions=("eu",), may_hedge=True),
        KeyLine(name="umbrella", hash=hash_of(b"umbrella-key"), may_hedge=True),
    )
    path = folder / "keys.jsonl"
    path.write_text("".join(line_of(line) + "\n" for line in lines))
    return Keys(file=str(path))


@asynccontextmanager
async def two_regions(
    folder: Path, behave: Behaviour, **config: Any
) -> AsyncIterator[tuple[Router, HostileReplica, HostileReplica]]:
    """The engine in `eu` behaves as stated; the engine in `us` answers."""
    eu, us = HostileReplica(behave), HostileReplica(chat_either)
    for replica in (eu, us):
        replica.start()
    replicas = (
        Replica(url=eu.url, id="eu-1", region="eu", engine="vllm"),
        Replica(url=us.url, id="us-1", region="us", engine="vllm"),
    )
    brief = Classes(normal=ClassSettings(absent_s=0.3))
    settings = {"region": "eu", "classes": brief, "keys": keys(folder), **config}
    try:
        async with running(replicas=replicas, **settings) as router:
            yield router, eu, us
    finally:
        for replica in (eu, us):
            await replica.stop()


def texts(replica: HostileReplica) -> set[str]:
    """The prompts that a replica has received."""
    return {json.loads(one.body)["messages"][0]["content"] for one in replica.requests}


def asks(text: str, *fields: str, stream: bool = False, **extra: Any) -> bytes:
    return chat(*fields, stream=stream, messages=[{"role": "user", "content": text}], **extra)


def told(folder: Path, behave: Behaviour, *fields: str, stream: bool = False, **config: Any) -> int:
    """Sends a limited and an unlimited request. Returns the status of the limited request."""
    status = 0

    @scenario
    async def story() -> None:
        nonlocal status
        async with two_regions(folder, behave, **config) as (router, _, us):
            limited = await router.ask(asks(PRIVATE, LIMITED, *fields, stream=stream), "POST")
            free = await router.ask(asks(OPEN, FREE, *fields, stream=stream), "POST")
            assert free.status == 200 and free.complete, free
            assert texts(us) == {OPEN}
            status = limited.status
            tried = [{replica for replica, *_ in line["tried"]} for line in await router.log(2)]
            assert tried == [{"eu-1"}, {"eu-1", "us-1"}]

    story()
    return status


def test_a_reset_is_not_retried_elsewhere(tmp_path: Path) -> None:
    assert told(tmp_path, rst_after_request) == 502


def test_a_late_answer_gets_no_copy_elsewhere(tmp_path: Path) -> None:
    hedging = Hedging(policy="fixed", options={"delay_s": 0.05}, budget=1.0, by_header=True)
    status = told(
        tmp_path,
        hang,
        "x-hedge: on",
        stream=True,
        hedging=hedging,
        timeouts={"first_token_s": 1.0, "commit_after_s": 0.0},
    )
    assert status == 504


@scenario
async def test_a_preferred_region_is_no_way_out(tmp_path: Path) -> None:
    async with two_regions(tmp_path, chat_either) as (router, eu, us):
        answer = await router.ask(asks(PRIVATE, LIMITED, "x-region: us"), "POST")
        assert answer.status == 200
        light = post_json("/tokenize", {"model": "m", "prompt": PRIVATE}, LIMITED)
        for _ in range(4):
            await router.ask(light, "POST")
        assert us.requests == []
        assert len(eu.requests) == 5


@scenario
async def test_no_path_or_method_leaves_the_region(tmp_path: Path) -> None:
    """The only replica is elsewhere, so no request with a body may reach a replica."""
    body = {"model": "m", "prompt": PRIVATE, "input": PRIVATE, "messages": [], "max_tokens": 1}
    paths = {path.decode() for path in POSTS} | {"/v1/files", "/v1/batches", "/unknown", "/"}
    paths |= {"/v1/responses/resp_1/cancel", "/high/v1/chat/completions"}
    async with running(chat_either, replica={"region": "us"}, keys=keys(tmp_path)) as router:
        found: dict[str, int] = {}
        for path in sorted(paths):
            for method in ("POST", "PUT", "PATCH", "DELETE", "GET"):
                sent = request(path, LIMITED, "x-region: us", method=method, body=_json(body))
                answer = await router.ask(sent, method)
                found[f"{method} {path}"] = answer.status
        assert router.replica.requests == []
        assert set(found.values()) <= {400, 403, 404, 405, 415, 422}, found
        assert found["POST /v1/embeddings"] == found["PUT /v1/completions"] == 403
        assert found["POST /unknown"] == found["GET /unknown"] == 403


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
@scenario
async def test_a_region_without_the_model_is_refused_at_once(tmp_path: Path, path: str) -> None:
    async with running(chat_either, replica={"region": "us"}, keys=keys(tmp_path)) as router:
        body = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}]}
        answer = await router.ask(post_json(path, body, LIMITED), "POST")
        assert answer.status == 403
        error = answer.json()["error"]
        assert (error["type"], error["code"]) == ("permission_error", "region_not_allowed")
        assert "(eu)" in error["message"]
        assert router.replica.requests == []
        assert (await router.ask(asks(OPEN, FREE), "POST")).status == 200


@scenario
async def test_models_of_other_regions_are_not_listed(tmp_path: Path) -> None:
    async with two_regions(tmp_path, chat_either) as (router, eu, us):
        eu.control.models, us.control.models = ("both", "eu-only"), ("both", "us-only")
        everything = {"both", "eu-only", "us-only"}

        async def listed(*fields: str) -> set[str]:
            shown = (await router.ask(request("/v1/models", *fields))).json()["data"]
            return {entry["id"] for entry in shown}

        while await listed(FREE) != everything:  # the lists are read anew
            await asyncio.sleep(0.02)
        assert await listed(LIMITED) == {"both", "eu-only"}
        for name, status in (("both", 200), ("eu-only", 200), ("us-only", 403)):
            answer = await router.ask(request(f"/v1/models/{name}", LIMITED))
            assert answer.status == status
            assert (await router.ask(request(f"/v1/models/{name}", FREE))).status == 200
        refused = await router.ask(chat(LIMITED, model="unknown"), "POST")
        assert refused.status == 404
        assert b"eu-only" in refused.body and b"us-only" not in refused.body
