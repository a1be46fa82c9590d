"""A request body with a Content-Encoding: the router decodes it, within its limits of bytes.

The client compresses with the reference libraries. The replica gets the decoded body without the
field, since no engine decodes bodies.
"""

import gzip
import json
import zlib
from collections.abc import Callable
from time import monotonic
from typing import Any

import brotli
import pytest
from backports import zstd

from router.core.errors import Reason
from tests.harness.behaviours import json_ok
from tests.harness.messages import LAST_CHUNK, chunk, post_json, request
from tests.harness.reading import Response
from tests.harness.running import Router, assert_error, routed, running, scenario

CHAT = "/v1/chat/completions"
MiB = 1024 * 1024
SMALL = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
LARGE = {"messages": [{"role": "user", "content": "word " * MiB}], "model": "m"}


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def deflate_stored(data: bytes) -> bytes:
    packer = zlib.compressobj(level=0, wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


PACK: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "x-gzip": ("X-GZIP", gzip.compress),
    "zlib": ("deflate", zlib.compress),
    "raw deflate": ("deflate", raw_deflate),
    "stored deflate": ("deflate", deflate_stored),
    "zstd": ("zstd", zstd.compress),
    "zstd, best": ("zstd", lambda data: zstd.compress(data, 19)),
    "br": ("br", brotli.compress),
    "nothing": ("identity", bytes),
}
CODED = pytest.mark.parametrize(("coding", "pack"), PACK.values(), ids=PACK)


def packed(coding: str, body: bytes, path: str = CHAT) -> bytes:
    return post_json(path, body, f"Content-Encoding: {coding}")


async def ask(router: Router, coding: str, body: bytes, path: str = CHAT) -> Response:
    return await router.ask(packed(coding, body, path), "POST")


@CODED
@pytest.mark.parametrize("value", [SMALL, LARGE], ids=["small", "large"])
@scenario
async def test_the_replica_gets_it_decoded(
    coding: str, pack: Callable[[bytes], bytes], value: Any
) -> None:
    data = pack(json.dumps(value).encode())
    async with running(json_ok) as router:
        client = await router.client()
        for _ in range(2):  # the second time from a remembered head
            await client.send(packed(coding, data))
            assert (await client.recv_response("POST")).status == 200
        field = f"Content-Encoding: {coding}"
        await client.send(request(CHAT, field, "Transfer-Encoding: chunked", method="POST"))
        pieces = [data[:1], data[1:9], data[9:-1], data[-1:]]
        await client.send_pieces([*map(chunk, pieces), LAST_CHUNK])
        assert (await client.recv_response("POST")).status == 200
        for seen in router.replica.requests:
            assert {name: json.loads(seen.body)[name] for name in value} == value
            assert seen.header("content-encoding") in (None, "identity")
        assert {line["bytes_in"] for line in await router.log(3)} == {len(json.dumps(value))}


@pytest.mark.parametrize("coding", ["gzip", "deflate", "zstd", "br"])
@scenario
async def test_a_bomb_is_refused_at_the_limit(coding: str) -> None:
    """The limit is of the decoded body, and the loop answers others in between."""
    bomb = PACK[coding if coding != "deflate" else "zlib"][1](b'{"a":"' + bytes(100 * MiB))
    async with running(json_ok, limits={"body": 48 * MiB}) as router:
        client = await router.send(packed(coding, bomb))
        others = 0
        while not client.unread and others < 20:
            began = monotonic()
            assert (await router.ask(request("/v1/models"))).status == 200
            assert monotonic() - began < 10.0
            others += 1
        assert_error(await client.recv_response("POST"), Reason.BODY_TOO_LARGE)
        assert not router.replica.requests
        assert router.app.parts.front.held_bytes == 0


@scenario
async def test_decoded_bodies_count_in_the_memory_of_all() -> None:
    limits = {"body": 8 * MiB, "bodies_total": 8 * MiB}
    async with running(json_ok, limits=limits) as router:
        body = json.dumps({**SMALL, "pad": "x" * 6 * MiB}).encode()
        assert_error(await ask(router, "zstd", zstd.compress(body)), Reason.MEMORY_LIMIT)
        assert router.app.parts.front.held_bytes == 0


def long_window(data: bytes) -> bytes:
    named = zstd.CompressionParameter
    options = {named.window_log: 27, named.content_size_flag: 0}
    packer = zstd.ZstdCompressor(options=options)
    return packer.compress(data) + packer.flush()


WHOLE = json.dumps(SMALL).encode()
INVALID = {
    "cut gzip": ("gzip", gzip.compress(WHOLE)[:-1]),
    "cut zlib": ("deflate", zlib.compress(WHOLE)[:-3]),
    "cut zstd": ("zstd", zstd.compress(WHOLE)[:-1]),
    "cut br": ("br", brotli.compress(WHOLE)[:-1]),
    "rest after gzip": ("gzip", gzip.compress(WHOLE) + b"x"),
    "rest after zlib": ("deflate", zlib.compress(WHOLE) + WHOLE),
    "rest after zstd": ("zstd", zstd.compress(WHOLE) + b"x"),
    "rest after br": ("br", brotli.compress(WHOLE) + b"x"),
    "wrong sum": ("gzip", gzip.compress(WHOLE)[:-8] + bytes(8)),
    "zstd is not gzip": ("gzip", zstd.compress(WHOLE)),
    "gzip is not zstd": ("zstd", gzip.compress(WHOLE)),
    "one byte": ("gzip", b"\x1f"),
    "window of 128 MiB": ("zstd", long_window(WHOLE * 10_000)),
}


@pytest.mark.parametrize(("coding", "body"), INVALID.values(), ids=INVALID)
@routed(json_ok)
async def test_invalid_data_is_refused(router: Router, coding: str, body: bytes) -> None:
    answer = await ask(router, coding, body)
    assert_error(answer, Reason.BAD_ENCODING, 400)
    assert coding in answer.error()["message"]
    assert not router.replica.requests


@pytest.mark.parametrize(
    "coding", ["compress", "lz4", "gzip, zstd", "gzip\r\ncontent-encoding: br"]
)
@routed(json_ok)
async def test_another_coding_is_named(router: Router, coding: str) -> None:
    answer = await ask(router, coding, gzip.compress(gzip.compress(WHOLE)))
    assert_error(answer, Reason.UNSUPPORTED_ENCODING, 415)
    message = answer.error()["message"]
    assert coding.replace("\r\ncontent-encoding: ", ", ") in message
    assert "gzip, deflate, zstd, br" in message
    assert answer.header("accept-encoding") == "gzip, deflate, zstd"
    # On a path that the router does not know, the engine decides.
    assert (await ask(router, coding, b"\x01\x02", "/custom")).status == 200
    assert router.replica.requests[-1].all("content-encoding") == coding.split(
        "\r\ncontent-encoding: "
    )


@scenario
async def test_without_its_package_br_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "brotli", None)
    async with running(json_ok) as router:
        answer = await ask(router, "br", brotli.compress(WHOLE))
        assert_error(answer, Reason.UNSUPPORTED_ENCODING, 415)
        assert "pip install '.[br]'" in answer.error()["message"]


@scenario
async def test_forms_are_decoded_and_pipelined_requests_wait() -> None:
    form = b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n--b--\r\n'
    kind = "content-type: multipart/form-data; boundary=b"
    data = zstd.compress(form)
    async with running(json_ok) as router:
        client = await router.client()
        asked = request(
            "/v1/audio/transcriptions", kind, "Content-Encoding: zstd", method="POST", body=data
        )
        await client.send(asked, packed("gzip", gzip.compress(json.dumps(LARGE).encode())), asked)
        for _ in range(3):
            assert (await client.recv_response("POST")).status == 200
        assert [bytes(seen.body) for seen in router.replica.requests][::2] == [form, form]


@pytest.mark.parametrize("cut", [1, 100, -1])
@routed(json_ok)
async def test_a_client_that_leaves_in_between_leaves_nothing(router: Router, cut: int) -> None:
    for coding in ("gzip", "zstd", "br"):
        client = await router.client()
        asked = packed(coding, PACK[coding][1](json.dumps(LARGE).encode()))
        await client.send(asked[:cut])
        client.rst()
    await router.quiet()
    assert router.app.parts.front.held_bytes == 0


@routed(json_ok, allow_half_close=True)
async def test_a_client_may_half_close_while_its_body_is_decoded(router: Router) -> None:
    client = await router.send(packed("gzip", gzip.compress(json.dumps(LARGE).encode())))
    client.fin()
    assert (await client.recv_response("POST")).status == 200
