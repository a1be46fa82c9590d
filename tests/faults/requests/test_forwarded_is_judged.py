"""Forwarded content must be the checked content.

A body with a model or priority that the router cannot read is refused for a key with limits.
"""

import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from router.config.keys import KeyLine, hash_of, line_of
from router.config.model import Keys
from router.core.errors import Reason
from router.intake.body import SCAN_ABOVE
from tests.harness.behaviours import echo, json_ok
from tests.harness.messages import request
from tests.harness.running import Router, assert_error, running, scenario

CHAT = "/v1/chat/completions"
BEARER = "Authorization: Bearer acme-key"
ALLOWED = "x-router-model: m"
LARGE = "x" * SCAN_ABOVE
JSON = "Content-Type: application/json"


@asynccontextmanager
async def one_key(folder: Path, **rules: Any) -> AsyncIterator[Router]:
    """A router with one key, for the model `m` only."""
    line = KeyLine(**{"name": "acme", "hash": hash_of(b"acme-key"), "models": ["m"], **rules})
    file = folder / "keys.jsonl"
    file.write_text(line_of(line) + "\n")
    async with running(echo, keys=Keys(file=str(file))) as router:
        yield router


def post(path: str, body: bytes, *fields: str) -> bytes:
    return request(path, BEARER, *fields, method="POST", body=body)


def chat(**members: Any) -> bytes:
    return json.dumps({"messages": [], **members}).encode()


UNREAD = {
    "an unknown encoding": ("/v1/x", b"\x1b" + chat(model="big"), "Content-Encoding: x", JSON),
    "not one object": (CHAT, chat(model="m", x=LARGE) + chat(model="big"), JSON),
    "UTF-16 on an unknown path": ("/v1/x", chat(model="big").decode().encode("utf-16"), JSON),
    "UTF-32 on an unknown path": ("/v1/x", chat(model="big").decode().encode("utf-32"), JSON),
    "a byte order mark on an unknown path": ("/v1/x", b"\xef\xbb\xbf" + chat(model="big"), JSON),
    "a form with two models": (
        "/v1/x",
        b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n'
        b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nbig\r\n--b--\r\n',
        "Content-Type: multipart/form-data; boundary=b",
    ),
}


READ = {
    "gzip": (CHAT, gzip.compress(chat(model="big")), "Content-Encoding: gzip", JSON),
    "gzip, unknown path": (
        "/v1/x",
        gzip.compress(chat(model="big")),
        "content-encoding: gzip",
    ),
    "large UTF-16": (CHAT, chat(model="big", x=LARGE[::2]).decode().encode("utf-16-le"), JSON),
    "large UTF-32": (CHAT, chat(model="big", x=LARGE[::4]).decode().encode("utf-32-be"), JSON),
    "NaN on an unknown path": ("/v1/x", b'{"model":"big","x":NaN}', JSON),
}


@pytest.mark.parametrize("name", READ)
@scenario
async def test_an_encoded_body_is_judged(name: str, tmp_path: Path) -> None:
    path, body, *fields = READ[name]
    async with one_key(tmp_path) as router:
        answer = await router.ask(post(path, body, ALLOWED, *fields), "POST")
        assert_error(answer, Reason.MODEL_NOT_ALLOWED, 403)
        assert router.replica.requests == []


@pytest.mark.parametrize("name", UNREAD)
@scenario
async def test_a_body_that_cannot_be_judged_passes_no_key(name: str, tmp_path: Path) -> None:
    path, body, *fields = UNREAD[name]
    async with one_key(tmp_path) as router:
        answer = await router.ask(post(path, body, ALLOWED, *fields), "POST")
        assert_error(answer, Reason.UNREAD_BODY, 415)
        assert router.replica.requests == []


@pytest.mark.parametrize(
    ("path", "rules"),
    [
        (CHAT, {"ceiling": "low"}),
        (CHAT, {"tokens_per_minute": 1000.0}),
        ("/v1/x", {"tokens_per_minute": 1000.0}),
    ],
)
@scenario
async def test_each_limit_of_a_key_demands_it(
    path: str, rules: dict[str, Any], tmp_path: Path
) -> None:
    body = chat(model="m", x=LARGE) + chat(priority="critical")
    async with one_key(tmp_path, models=None, **rules) as router:
        asked = post(path, body, ALLOWED, JSON)
        assert_error(await router.ask(asked, "POST"), Reason.UNREAD_BODY, 415)
        assert router.replica.requests == []


@pytest.mark.parametrize(("model", "status"), [("m", 200), ("big", 403)])
@scenario
async def test_the_model_of_a_text_with_an_encoding(
    model: str, status: int, tmp_path: Path
) -> None:
    """Engines ignore Content-Encoding and read the text."""
    async with one_key(tmp_path) as router:
        asked = post(CHAT, chat(model=model), JSON, "Content-Encoding: x")
        assert (await router.ask(asked, "POST")).status == status
        assert len(router.replica.requests) == (status == 200)


@pytest.mark.parametrize("name", ["an unknown encoding", "UTF-16 on an unknown path"])
@scenario
async def test_without_keys_it_is_the_engines_to_judge(name: str) -> None:
    path, body, *fields = UNREAD[name]
    async with running(echo) as router:
        answer = await router.ask(request(path, *fields, method="POST", body=body), "POST")
        assert answer.status == 200
        assert bytes(router.replica.requests[0].body) == body


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(("model", "status"), [("m", 200), ("big", 403)])
@scenario
async def test_the_model_in_the_middle_of_a_large_body(
    model: str, status: int, chunked: bool, tmp_path: Path
) -> None:
    body = chat(a=LARGE, model=model, b=LARGE)
    async with one_key(tmp_path) as router:
        client = await router.client()
        if chunked:
            await client.send(
                f"POST {CHAT} HTTP/1.1\r\nHost: a\r\n{BEARER}\r\n{JSON}\r\n"
                "Transfer-Encoding: chunked\r\n\r\n".encode(),
                b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body),
            )
        else:
            await client.send(post(CHAT, body, ALLOWED, JSON))
        answer = await client.recv_response()
        assert answer.status == status
        assert len(router.replica.requests) == (status == 200)


@pytest.mark.parametrize("method", ["POST", "PUT"])
@pytest.mark.parametrize("model", [{}, {"model": None}])
@pytest.mark.parametrize("path", [CHAT, "/tokenize", "/v1/x"])
@scenario
async def test_a_header_does_not_name_the_model_that_an_engine_reads(
    path: str, model: dict[str, Any], method: str, tmp_path: Path
) -> None:
    """For a model that only a header names, the engine would serve its default model."""
    async with one_key(tmp_path) as router:
        asked = request(path, BEARER, ALLOWED, JSON, method=method, body=chat(**model))
        answer = await router.ask(asked, method)
        assert_error(answer, Reason.MODEL_NOT_ALLOWED, 403)
        assert "`model`" in answer.error()["message"]
        assert router.replica.requests == []


@scenario
async def test_a_header_does_not_name_the_model_of_a_form_or_of_nothing(tmp_path: Path) -> None:
    form = b'--b\r\nContent-Disposition: form-data; name="x"\r\n\r\nm\r\n--b--\r\n'
    kind = "Content-Type: multipart/form-data; boundary=b"
    async with one_key(tmp_path) as router:
        for asked in (
            post("/v1/audio/transcriptions", form, ALLOWED, kind),
            post("/v1/x", form, ALLOWED, kind),
            post("/v1/x", b"", ALLOWED),
        ):
            answer = await router.ask(asked, "POST")
            assert_error(answer, Reason.MODEL_NOT_ALLOWED, 403)
        assert router.replica.requests == []


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig"])
@scenario
async def test_a_large_body_on_an_unknown_path_that_only_an_engine_reads_is_refused(
    encoding: str,
) -> None:
    """Python's json reads encodings other than UTF-8.

    The router does not decode such a body, so it cannot find members that clients must not send.
    """
    width = 4 if "32" in encoding else 2 if "16" in encoding else 1
    large = LARGE[: SCAN_ABOVE // width]
    body = chat(model="m", priority=-1_000_000, x=large).decode().encode(encoding)
    async with running(json_ok) as router:
        answer = await router.ask(request("/v1/x", JSON, method="POST", body=body), "POST")
        assert_error(answer, Reason.UNREAD_BODY, 415)
        assert not [r for r in router.replica.requests if r.method == "POST"]
