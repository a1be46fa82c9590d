"""A replica that repeats its credential, anywhere in its answers, does not show it to clients."""

import json

import pytest

from router.config.model import Credential, Pool, Replica, Upstream
from tests.harness import kit

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
REDIRECT = kit.response(307, f"Location: https://login.test/?key={IN_URL.decode()}")
LONG = b" " * 3000


def split(data: bytes) -> list[bytes]:
    """A chunked body, each byte of which is a read of its own."""
    return [kit.chunk(bytes([byte])) for byte in data]


CASES: dict[str, list[bytes]] = {
    "redirect": [REDIRECT],
    "early hints": [HINTS, kit.completion()],
    "field of a good answer": [kit.completion(f"X-Key: {TOKEN}")],
    "reason phrase": [b"HTTP/1.1 400 Bad %b\r\ncontent-length: 0\r\n\r\n" % SECRET],
    "sized error": [kit.json_response(ERROR, 400)],
    "escaped slash": [kit.response(400, body=b'{"error":"%b"}' % IN_JSON.replace(b"/", b"\\/"))],
    "chunked error": [CHUNKED, *split(json.dumps(ERROR).encode()), kit.LAST_CHUNK],
    "error beyond the held bytes": [
        CHUNKED,
        *(
            kit.chunk(LONG[:1990]),
            *split(json.dumps(ERROR).encode()),
            kit.chunk(LONG),
            kit.LAST_CHUNK,
        ),
    ],
    "error until the end": [b"HTTP/1.1 400 Bad\r\n\r\n", SECRET[:5], SECRET[5:]],
    "error as the first event": [kit.SSE_HEAD, kit.chunk(kit.event(ERROR)), kit.LAST_CHUNK],
    "error inside a stream": [
        kit.SSE_HEAD,
        *(kit.chunk(kit.token("a")), *split(kit.event(ERROR)), kit.chunk(kit.DONE), kit.LAST_CHUNK),
    ],
    "good stream": [kit.SSE_HEAD, *split(kit.token(TOKEN)), kit.chunk(kit.DONE), kit.LAST_CHUNK],
}


@pytest.mark.parametrize("whose", ["replica", "upstream", "upstream, pool", "reloaded"])
@pytest.mark.parametrize("case", CASES)
@kit.scenario
async def test_no_client_gets_it(case: str, whose: str) -> None:
    async def behave(connection: kit.ReplicaConnection) -> None:
        assert await connection.recv_request()
        for part in CASES[case]:
            await connection.send(part)

    engine = kit.HostileReplica(behave)
    engine.start()
    own = Credential(token=TOKEN) if whose == "replica" else None
    fleet = (Replica(url=engine.url, id="r0", credential=own, pool="p" if "p," in whose else ""),)
    limits = {"response_hold": 2000}
    # A pool may have other special settings.
    pools = {"p": Pool(include_usage=True)}
    upstream = Upstream(token=None if own else TOKEN)
    first = Upstream(token="another-token") if whose == "reloaded" else upstream
    async with kit.running(
        engine, replicas=fleet, limits=limits, pools=pools, upstream=first
    ) as router:
        if first is not upstream:
            router.change(upstream=upstream)
            await router.app.reload()
        client = await router.send(kit.chat(stream=True))
        answer = await client.recv_response()
        assert answer.complete
        assert b"*" * 10 in client.received
        for form in (SECRET, IN_JSON, IN_URL):
            assert form not in client.received


@pytest.mark.parametrize("data", [SECRET[:5], b"sk/sk/", b"a" + SECRET[:-1], SECRET + SECRET])
@kit.scenario
async def test_other_bytes_are_unchanged(data: bytes) -> None:
    async def behave(connection: kit.ReplicaConnection) -> None:
        assert await connection.recv_request()
        for byte in data:
            await connection.send(kit.chunk(bytes([byte])) if byte else b"")
        await connection.send(kit.LAST_CHUNK)

    async def begin(connection: kit.ReplicaConnection) -> None:
        await connection.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        await behave(connection)

    engine = kit.HostileReplica(begin)
    engine.start()
    fleet = (Replica(url=engine.url, id="r0", credential=Credential(token=TOKEN)),)
    async with kit.running(engine, replicas=fleet) as router:
        answer = await router.ask(kit.request("/plain"))
        assert answer.complete
        assert answer.body == data.replace(SECRET, STARS)
