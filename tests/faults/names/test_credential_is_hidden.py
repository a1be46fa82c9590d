"""A replica that repeats its credential, anywhere in its answers, does not show it to clients."""

import json

import pytest

from router.config.model import Credential, Pool, Replica, Upstream
from tests.harness.messages import (
    DONE,
    LAST_CHUNK,
    SSE_HEAD,
    chat,
    chunk,
    completion,
    event,
    json_response,
    request,
    response,
    token,
)
from tests.harness.replica import HostileReplica, ReplicaConnection
from tests.harness.running import running, scenario

TOKEN = 'sk/first"0123456789'
SECRET = TOKEN.encode()
IN_JSON = json.dumps(TOKEN)[1:-1].encode()
IN_URL = b"sk%2Ffirst%220123456789"
STARS = b"*" * len(SECRET)
ERROR = {"error": {"message": f"the key {TOKEN} is bad", "code": 500}}
CHUNKED = (
    b"HTTP/1.1 400 Bad\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
)
HINTS = b"HTTP/1.1 103 Early Hints\r\nlink: </a?key=%b>\r\n\r\n" % IN_URL
REDIRECT = response(307, f"Location: https://login.test/?key={IN_URL.decode()}")
LONG = b" " * 3000


def split(data: bytes) -> list[bytes]:
    """A chunked body, each byte of which is a read of its own."""
    return [chunk(bytes([byte])) for byte in data]


CASES: dict[str, list[bytes]] = {
    "redirect": [REDIRECT],
    "early hints": [HINTS, completion()],
    "field of a good answer": [completion(f"X-Key: {TOKEN}")],
    "reason phrase": [b"HTTP/1.1 400 Bad %b\r\ncontent-length: 0\r\n\r\n" % SECRET],
    "sized error": [json_response(ERROR, 400)],
    "escaped slash": [response(400, body=b'{"error":"%b"}' % IN_JSON.replace(b"/", b"\\/"))],
    "chunked error": [CHUNKED, *split(json.dumps(ERROR).encode()), LAST_CHUNK],
    "error beyond the held bytes": [
        CHUNKED,
        *(chunk(LONG[:1990]), *split(json.dumps(ERROR).encode()), chunk(LONG), LAST_CHUNK),
    ],
    "error until the end": [b"HTTP/1.1 400 Bad\r\n\r\n", SECRET[:5], SECRET[5:]],
    "error as the first event": [SSE_HEAD, chunk(event(ERROR)), LAST_CHUNK],
    "error inside a stream": [
        SSE_HEAD,
        *(chunk(token("a")), *split(event(ERROR)), chunk(DONE), LAST_CHUNK),
    ],
    "good stream": [SSE_HEAD, *split(token(TOKEN)), chunk(DONE), LAST_CHUNK],
}


@pytest.mark.parametrize("whose", ["replica", "upstream", "upstream, pool", "reloaded"])
@pytest.mark.parametrize("case", CASES)
@scenario
async def test_no_client_gets_it(case: str, whose: str) -> None:
    async def behave(connection: ReplicaConnection) -> None:
        assert await connection.recv_request()
        for part in CASES[case]:
            await connection.send(part)

    engine = HostileReplica(behave)
    engine.start()
    own = Credential(token=TOKEN) if whose == "replica" else None
    fleet = (Replica(url=engine.url, id="r0", credential=own, pool="p" if "p," in whose else ""),)
    limits = {"response_hold": 2000}
    # A pool may have other special settings.
    pools = {"p": Pool(include_usage=True)}
    upstream = Upstream(token=None if own else TOKEN)
    first = Upstream(token="another-token") if whose == "reloaded" else upstream
    async with running(
        engine, replicas=fleet, limits=limits, pools=pools, upstream=first
    ) as router:
        if first is not upstream:
            router.change(upstream=upstream)
            await router.app.reload()
        client = await router.send(chat(stream=True))
        answer = await client.recv_response()
        assert answer.complete
        assert b"*" * 10 in client.received
        for form in (SECRET, IN_JSON, IN_URL):
            assert form not in client.received


@pytest.mark.parametrize("data", [SECRET[:5], b"sk/sk/", b"a" + SECRET[:-1], SECRET + SECRET])
@scenario
async def test_other_bytes_are_unchanged(data: bytes) -> None:
    async def behave(connection: ReplicaConnection) -> None:
        assert await connection.recv_request()
        for byte in data:
            await connection.send(chunk(bytes([byte])) if byte else b"")
        await connection.send(LAST_CHUNK)

    async def begin(connection: ReplicaConnection) -> None:
        await connection.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        await behave(connection)

    engine = HostileReplica(begin)
    engine.start()
    fleet = (Replica(url=engine.url, id="r0", credential=Credential(token=TOKEN)),)
    async with running(engine, replicas=fleet) as router:
        answer = await router.ask(request("/plain"))
        assert answer.complete
        assert answer.body == data.replace(SECRET, STARS)
