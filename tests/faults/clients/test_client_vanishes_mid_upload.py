"""A client that disconnects during its upload: no replica gets a complete request."""

import pytest

from tests.harness.behaviours import until_closed
from tests.harness.client import RawClient
from tests.harness.messages import head
from tests.harness.replica import ReplicaConnection, eventually
from tests.harness.running import running, scenario

LENGTH = ["Content-Length: 1000000"]
CHUNKED = ["Transfer-Encoding: chunked"]


@pytest.mark.parametrize("way", ["fin", "rst"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/upload"])
@pytest.mark.parametrize(
    ("framing", "part"),
    [(LENGTH, b"x" * 500_000), (CHUNKED, b"%x\r\n" % 500_000 + b"x" * 500_000 + b"\r\n")],
    ids=["length", "chunked"],
)
@scenario
async def test_nothing_whole_arrives(way: str, path: str, framing: list[str], part: bytes) -> None:
    async def behave(connection: ReplicaConnection) -> None:
        await until_closed(connection)
        connection.reader.feed(bytes(connection.received))

    async with running(behave) as router:
        client = await router.send(head(f"POST {path} HTTP/1.1", ["Host: a", *framing]), part)
        await eventually(lambda: router.busy().get("held_bytes", 0) > 100_000, "a part is there")
        leave(client, way)
        await eventually(lambda: not router.busy(), "all is over")
        assert not router.replica.requests
        assert await router.reason() in ("client_gone", "bad_request")


def leave(client: RawClient, way: str) -> None:
    if way == "fin":
        client.fin()
    else:
        client.rst()
