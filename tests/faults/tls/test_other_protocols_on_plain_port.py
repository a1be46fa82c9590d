"""Other protocols on the plain port: 400 or a close, and no flood of log lines."""

import asyncio
import random

import pytest

from tests.harness.behaviours import json_ok
from tests.harness.messages import chat, request
from tests.harness.running import Router, routed

HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(200)
PROTOCOLS = {
    "tls hello": HELLO,
    "http2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    "rdp": bytes.fromhex("0300002b26e00000000000436f6f6b69653a206d737473686173683d610d0a"),
    "smb": b"\x00\x00\x00\x54\xffSMB" + bytes(80),
    "random": random.Random(0).randbytes(4096),
    "proxy v1": b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n" + request("/plain"),
    "proxy v2": bytes.fromhex("0d0a0d0a000d0a515549540a2111000c") + bytes(12) + request("/plain"),
    "redis": b"*1\r\n$4\r\nPING\r\n",
    "nul": bytes(1000),
}


@pytest.mark.parametrize("name", PROTOCOLS)
@routed(json_ok)
async def test_it_is_refused(router: Router, name: str) -> None:
    client = await router.client()
    await client.send_pieces([PROTOCOLS[name]])
    await client.expect_close()
    seen = bytes(client.received)
    # The last one is an HTTP/2 frame.
    refusals = (b"HTTP/1.1 400 ", b"HTTP/1.1 5", b"\x00\x00\x00\x04")
    assert seen == b"" or seen.startswith(refusals), seen
    assert not seen.startswith(b"HTTP/1.1 500 ")
    assert not router.replica.requests
    assert len(router.lines()) <= 1
    assert (await router.ask(chat())).status == 200


@routed(json_ok)
async def test_http2_by_prior_knowledge_is_refused_with_http2_frames(router: Router) -> None:
    """curl gets HTTP_1_1_REQUIRED (GOAWAY), and does not report an empty reply."""
    url = f"http://127.0.0.1:{router.port}/v1/models"
    process = await asyncio.create_subprocess_exec(
        *("curl", "-sS", "-v", "--http2-prior-knowledge", url), stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    said = (await process.stderr.read()).decode()
    assert await process.wait() != 52, said  # curl's status for an empty reply
    assert "GOAWAY" in said or "HTTP_1_1_REQUIRED" in said, said
    assert (await router.log(1))[0]["reason"] == "http2_not_served"
