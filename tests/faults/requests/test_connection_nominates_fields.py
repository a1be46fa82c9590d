"""`Connection` names fields of this hop only; it cannot remove fields that the replica
relies on.
"""

import json

import pytest

from router.core.errors import Reason
from tests.harness.behaviours import answer, echo
from tests.harness.messages import request
from tests.harness.running import Router, assert_error, routed, running, scenario


@pytest.mark.parametrize(
    "name", ["Authorization", "X-Forwarded-For", "Content-Length", "Host", "authorization, close"]
)
@routed(echo)
async def test_abuse_is_refused(router: Router, name: str) -> None:
    asked = request(
        "/upload", "Authorization: Bearer x", f"Connection: {name}", method="POST", body=b"a"
    )
    got = await router.ask(asked)
    assert got.status == 400
    assert got.error()["code"] == "bad_header"
    assert not router.replica.requests


@routed(echo)
async def test_named_fields_end_here(router: Router) -> None:
    asked = request(
        "/plain",
        "Connection: keep-alive, X-Hop",
        "X-Hop: 1",
        "X-End: 1",
        "Keep-Alive: timeout=5",
        "Proxy-Connection: keep-alive",
        "Proxy-Authorization: Basic eA==",
        "TE: gzip",
    )
    assert (await router.ask(asked)).status == 200
    (seen,) = router.replica.requests
    names = {name for name, _ in seen.headers}
    assert "x-end" in names
    assert not names & {"x-hop", "keep-alive", "proxy-connection", "proxy-authorization", "te"}


@scenario
async def test_in_responses_too() -> None:
    data = (
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: X-Hop\r\nX-Hop: 1\r\nX-End: 1\r\n"
        b"Keep-Alive: timeout=1\r\nProxy-Authenticate: Basic\r\nUpgrade: h2c\r\n\r\nok"
    )
    async with running(answer(data)) as router:
        got = await router.ask(request("/plain"))
        names = {name for name, _ in got.headers}
        assert "x-end" in names
        assert not names & {"x-hop", "proxy-authenticate", "upgrade"}
        assert got.all("keep-alive") != ["timeout=1"]


FORM = "multipart/form-data; boundary=b"
PART = b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n--b--\r\n'


@pytest.mark.parametrize(
    ("path", "kind", "body"),
    [
        ("/v1/images/edits", FORM, PART),
        ("/v1/audio/transcriptions", FORM, PART),
        ("/v1/chat/completions", "application/json", json.dumps({"model": "m"}).encode()),
    ],
)
@pytest.mark.parametrize("name", ["Content-Type", "close, CONTENT-TYPE", "x-a,content-encoding"])
@routed(echo)
async def test_fields_by_which_a_body_was_judged_stay(
    router: Router, name: str, path: str, kind: str, body: bytes
) -> None:
    """Without its Content-Type the engine would read another body than the router has checked."""
    fields = (f"Content-Type: {kind}", "Content-Encoding: identity", f"Connection: {name}")
    for _ in range(2):  # a refused head is not cached
        asked = request(path, *fields, method="POST", body=body)
        assert_error(await router.ask(asked, "POST"), Reason.BAD_HEADER, 400)
    assert not [r for r in router.replica.requests if r.method == "POST"]


@scenario
async def test_an_answer_keeps_its_type() -> None:
    data = (
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: text/plain\r\n"
        b"Connection: content-type\r\n\r\nok"
    )
    async with running(answer(data)) as router:
        assert_error(await router.ask(request("/plain")), Reason.BAD_RESPONSE)
