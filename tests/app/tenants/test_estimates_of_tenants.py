"""What a tenant is charged if its engine reports no counts, or odd ones."""

import json
import struct
from base64 import b64encode
from pathlib import Path
from random import Random
from typing import Any

import pytest

from router.config.keys import KeyLine, hash_of, line_of
from router.config.model import Keys, Pool, Replica
from tests.app.pages import page
from tests.harness.behaviours import hang, stream_then_hang
from tests.harness.messages import (
    DONE,
    LAST_CHUNK,
    SSE_HEAD,
    chat,
    chunk,
    event,
    json_response,
    post_json,
    role,
    token,
)
from tests.harness.replica import Behaviour, HostileReplica, ReplicaConnection, eventually
from tests.harness.running import Router, running, scenario

NAMES = ("acme", "zeta")
ACME = "Authorization: Bearer acme-key"
ZETA = "Authorization: Bearer zeta-key"


def keys(folder: Path, **limits: Any) -> Keys:
    path = folder / "keys.jsonl"
    lines = [KeyLine(name=name, hash=hash_of(f"{name}-key".encode()), **limits) for name in NAMES]
    path.write_text("".join(line_of(line) + "\n" for line in lines))
    return Keys(file=str(path))


async def used_by(router: Router, name: str) -> dict[str, Any]:
    dispatcher = router.app.parts.dispatcher
    await eventually(lambda: not dispatcher.exchanges, "all requests have ended")
    tenants = {each["tenant"]: each for each in (await page(router, "/usage"))["tenants"]}
    found: dict[str, Any] = tenants[name]
    return found


# -- media --------------------------------------------------------------------------------------


def png(width: int, height: int, size: int) -> str:
    head = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", width, height)
    return b64encode(head + Random(1).randbytes(size)).decode()


def wav(size: int) -> str:
    form = struct.pack("<IHHIIHH", 16, 1, 1, 16_000, 32_000, 2, 16)
    return b64encode(b"RIFF\0\0\0\0WAVEfmt " + form + b"data" + Random(1).randbytes(size)).decode()


PHOTO = png(1_568, 1_000, 1_100_000)  # 2,000 tokens
SPEECH = wav(1_430_000)  # 44.7 s, so 1,117 tokens
URL = f"data:image/png;base64,{PHOTO}"


def said(part: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [part]}]}


MEDIA: list[tuple[str, dict[str, Any], int]] = [
    ("/v1/chat/completions", said({"type": "image_url", "image_url": {"url": URL}}), 2_000),
    ("/v1/chat/completions", said({"input_audio": {"data": SPEECH, "format": "wav"}}), 1_117),
    ("/v1/chat/completions", said({"type": "image_url", "image_url": {"url": "http://a"}}), 1_024),
    ("/v1/messages", said({"type": "image", "source": {"data": PHOTO}}), 2_000),
    ("/v1/responses", {"input": [{"role": "user", "content": [{"image_url": URL}]}]}, 2_000),
    ("/v1/embeddings", {"input": PHOTO}, 2_000),
    ("/pooling", {"data": PHOTO}, 2_000),
    ("/v1/rerank", {"query": "a", "documents": [PHOTO]}, 2_000),
    ("/generate", {"text": "what is it?", "image_data": PHOTO}, 2_000),
    ("/v1/images/edits", {"prompt": "a cat", "image": PHOTO}, 2_000),
    ("/v1/audio/speech", {"input": "hello", "ref_audio": SPEECH}, 1_117),
    ("/v1/chat/completions", {"messages": [{"role": "tool", "content": PHOTO}]}, 2_000),
    # A body that is too large to be read.
    ("/v1/chat/completions", said({"image_url": {"url": png(1_568, 1_000, 7_000_000)}}), 2_000),
]


@pytest.mark.parametrize(("path", "body", "tokens"), MEDIA)
@scenario
async def test_media_have_one_number_for_limits_and_charges(
    tmp_path: Path, path: str, body: dict[str, Any], tokens: int
) -> None:
    rules = keys(tmp_path, tokens_per_minute=1e6)
    async with running(hang, keys=rules) as router:
        client = await router.client()
        await client.send(post_json(path, {"model": "m", "max_tokens": 1, **body}, ACME))
        await router.replica.wait_for_requests(1)
        account = router.app.parts.dispatcher.tenants._accounts["acme"]
        assert account._all.tokens is not None
        taken = 1e6 - account._all.tokens._level
        # Without a limit of the output, a part for the output is taken, too.
        assert 0 <= (taken - tokens) % 1_024 <= 100
        client.rst()
        assert tokens <= (await used_by(router, "acme"))["prompt_tokens"] <= tokens + 100
        (line,) = await router.log()
        assert tokens <= line["estimated_tokens"] <= tokens + 100


@pytest.mark.parametrize("part", [{"image_url": {"url": URL}}, {"input_audio": {"data": SPEECH}}])
@scenario
async def test_media_keep_no_request_from_a_replica_with_a_short_context(part: Any) -> None:
    engines = HostileReplica(hang), HostileReplica(hang)
    for engine in engines:
        engine.start()
    replicas = tuple(
        Replica(url=engine.url, id=f"r{number}", max_model_len=length)
        for number, (engine, length) in enumerate(zip(engines, (4_096, 131_072), strict=True))
    )
    async with running(*engines, replicas=replicas, policy="round_robin") as router:
        clients = [await router.client() for _ in range(4)]
        for client in clients:
            await client.send(chat(messages=said(part)["messages"], max_tokens=100))
        for engine in engines:
            await engine.wait_for_requests(1)
        for client in clients:
            client.rst()


# -- counts without a report --------------------------------------------------------------------

MERGED = "the old lighthouse keeper tells his story"
EVENTS = 50


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@scenario
async def test_events_with_many_tokens_are_not_one_token_each(tmp_path: Path, path: str) -> None:
    behave = stream_then_hang(role(), *[token(MERGED)] * (EVENTS - 1), token("end"))
    async with running(behave, keys=keys(tmp_path)) as router:
        client = await router.client()
        body = {"model": "m", "stream": True, "prompt": "a", **said("a")}
        await client.send(post_json(path, body, ACME))
        await client.recv_until(b'"end"')
        client.rst()
        output = (await used_by(router, "acme"))["output_tokens"]
        assert output == pytest.approx((EVENTS - 1) * len(MERGED) / 4, rel=0.05)


def counts(prompt_bytes_per_token: float) -> Behaviour:
    """Whole answers report counts of the prompt; streams report none, and hang."""

    async def behave(connection: ReplicaConnection) -> None:
        while asked := await connection.recv_request():
            if asked.method == "POST" and asked.json().get("stream"):
                await connection.send(SSE_HEAD, chunk(role()), chunk(token("a")))
                await connection.expect_close()
                return
            size = len(asked.body) / prompt_bytes_per_token
            usage = {"prompt_tokens": int(size), "completion_tokens": 1}
            await connection.send(json_response({"choices": [{"index": 0}], "usage": usage}))

    return behave


@pytest.mark.parametrize("taught", [1.1, 15.0])
@scenario
async def test_no_tenant_hides_tokens_of_another_by_the_bytes_of_a_token(
    tmp_path: Path, taught: float
) -> None:
    text = [{"role": "user", "content": "a word of the text " * 200}]
    async with running(counts(taught), keys=keys(tmp_path)) as router:
        for _ in range(20):
            await router.ask(chat(ZETA, messages=text), "POST")
        await used_by(router, "zeta")
        charged: dict[str, int] = {}
        for name, key in zip(NAMES, (ACME, ZETA), strict=True):
            before = 0
            if name == "zeta":
                before = (await used_by(router, name))["prompt_tokens"]
            client = await router.client()
            await client.send(chat(key, messages=text, stream=True))
            await client.recv_until(b'"a"')
            client.rst()
            charged[name] = (await used_by(router, name))["prompt_tokens"] - before
        size = len(json.dumps(text))
        # A new tenant begins with the ratio of the model, and at most with 4.
        assert charged["acme"] == pytest.approx(size / min(taught, 4.0), rel=0.1)
        # A tenant's own ratio has an upper limit.
        assert charged["zeta"] == pytest.approx(size / min(taught, 5.0), rel=0.1)


# -- odd counts ---------------------------------------------------------------------------------

START = {"input_tokens": 9, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 1}


@pytest.mark.parametrize("told", [{}, dict.fromkeys(START, 0), {"input_tokens": 0}])
@scenario
async def test_the_end_of_a_stream_does_not_erase_its_beginning(
    tmp_path: Path, told: dict[str, Any]
) -> None:
    async def behave(connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            text = {"type": "text_delta", "text": "a"}
            events = [
                {"type": "message_start", "message": {"usage": {**START, "output_tokens": 0}}},
                *[{"type": "content_block_delta", "index": 0, "delta": text}] * 7,
                {"type": "message_delta", "delta": {}, "usage": {**told, "output_tokens": 7}},
                {"type": "message_stop"},
            ]
            lines = [f"event: {each['type']}\n".encode() + event(each) for each in events]
            await connection.send(SSE_HEAD, *map(chunk, lines), LAST_CHUNK)

    async with running(behave, keys=keys(tmp_path)) as router:
        body = {"model": "m", "stream": True, "max_tokens": 9, **said("a")}
        assert (await router.ask(post_json("/v1/messages", body, ACME), "POST")).complete
        used = await used_by(router, "acme")
        found = [used[name] for name in ("prompt_tokens", "cached_tokens", "output_tokens")]
        assert (*found, used["estimated"]) == (100, 90, 7, 0)


@pytest.mark.parametrize(
    ("usage", "found"),
    [
        ({"prompt_tokens": 28.0, "completion_tokens": "4"}, (28, 4)),
        ({"prompt_tokens": 28, "completion_tokens": 4, "prompt_tokens_details": []}, (28, 4)),
        ({"prompt_tokens": 28, "completion_tokens": 4, "total_tokens": 3_032}, (28, 3_004)),
        ({"prompt_tokens": 28, "completion_tokens": [], "total_tokens": "32"}, (28, 4)),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
@scenario
async def test_one_odd_member_hides_no_other(
    tmp_path: Path, usage: Any, found: tuple[int, int], stream: bool
) -> None:
    async def behave(connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            if stream:
                events = (role(), token("a"), event({"choices": [], "usage": usage}), DONE)
                await connection.send(SSE_HEAD, *map(chunk, events), LAST_CHUNK)
            else:
                await connection.send(json_response({"choices": [{"index": 0}], "usage": usage}))

    async with running(behave, keys=keys(tmp_path)) as router:
        assert (await router.ask(chat(ACME, stream=stream), "POST")).complete
        used = await used_by(router, "acme")
        assert (used["prompt_tokens"], used["output_tokens"]) == found
        assert used["estimated"] == 0


# -- providers ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pool", "asked"),
    [
        ({"external": True}, True),
        ({"external": True, "include_usage": False}, False),
        ({"include_usage": True}, True),
        ({}, False),
    ],
)
@scenario
async def test_streams_of_an_external_pool_are_asked_for_usage(
    pool: dict[str, Any], asked: bool
) -> None:
    told = {"prompt_tokens": 25, "completion_tokens": 3_000}

    async def behave(connection: ReplicaConnection) -> None:
        while request := await connection.recv_request():
            if request.method != "POST":
                await connection.send(json_response({}, 404))
                continue
            options = request.json().get("stream_options") or {}
            events = [role(), token("a"), DONE]
            if options.get("include_usage"):
                events.insert(2, event({"choices": [], "usage": told}))
            await connection.send(SSE_HEAD, *map(chunk, events), LAST_CHUNK)

    provider = HostileReplica(behave)
    provider.start()
    replica = Replica(url=provider.url, id="r0", pool="cloud", models=("m",), engine="other")
    async with running(provider, replicas=(replica,), pools={"cloud": Pool(**pool)}) as router:
        for options in (None, {"include_usage": 0}):
            body = {} if options is None else {"stream_options": options}
            answer = await router.ask(chat(stream=True, **body), "POST")
            assert answer.complete and b"usage" not in answer.body
        used = await used_by(router, "(none)")
        assert (used["output_tokens"] == 6_000) is asked
