"""httpx: keep-alive, streams, a cancelled stream, bodies of unknown length."""

import asyncio
import json
from collections.abc import Iterator

import httpx
import pytest

from tests.clients.conftest import MIB, MODEL, Served

CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 3}


@pytest.fixture
def client(served: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.url, timeout=20, trust_env=False) as made:
        yield made


def test_one_connection_serves_many(client: httpx.Client) -> None:
    ports = set()
    for _ in range(10):
        answer = client.post("/v1/chat/completions", json=CHAT)
        assert answer.status_code == 200
        ports.add(answer.extensions["network_stream"].get_extra_info("client_addr")[1])
    assert len(ports) == 1


def test_a_body_of_unknown_length(client: httpx.Client) -> None:
    body = json.dumps(CHAT).encode()
    pieces = (body[at : at + 7] for at in range(0, len(body), 7))
    answer = client.post(
        "/v1/chat/completions", content=pieces, headers={"content-type": "application/json"}
    )
    assert answer.status_code == 200
    assert answer.request.headers["transfer-encoding"] == "chunked"


@pytest.mark.parametrize("framing", ["content-length", "chunked"])
def test_a_refusal_of_a_large_body_is_read(guarded: Served, framing: str) -> None:
    body = b"a" * (8 * MIB)
    with httpx.Client(base_url=guarded.url, timeout=20, trust_env=False) as client:
        for _ in range(10):
            answer = client.post(
                "/v1/chat/completions",
                content=body if framing == "content-length" else iter([body]),
                headers={"authorization": "Bearer wrong"},
            )
            assert answer.status_code == 401


def test_a_cancelled_stream_frees_the_engine(served: Served) -> None:
    async def main() -> None:
        async with httpx.AsyncClient(base_url=served.url, timeout=20, trust_env=False) as client:
            admin = f"http://127.0.0.1:{served.admin_port}/replicas"

            async def inflight() -> int:
                replicas = (await client.get(admin)).json()
                listed = replicas if isinstance(replicas, list) else replicas["replicas"]
                return sum(replica["inflight"] for replica in listed)

            long = {**CHAT, "stream": True, "max_tokens": 2000}
            async with client.stream("POST", "/v1/chat/completions", json=long) as answer:
                lines = answer.aiter_lines()  # kept: without its iterator, httpx ends the stream
                await anext(lines)
                assert await inflight() == 1
            async with asyncio.timeout(10):
                while await inflight():
                    await asyncio.sleep(0.02)

    asyncio.run(main())
