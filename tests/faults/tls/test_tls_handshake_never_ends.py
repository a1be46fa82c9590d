"""A client on the TLS port that never ends its handshake is closed like one without a head."""

import pytest

from router.config.model import Tls
from tests.harness.behaviours import json_ok
from tests.harness.over_tls import TlsClient
from tests.harness.running import Router, routed
from tests.places import CERT, KEY

LISTENING = Tls(cert=CERT, key=KEY)
SOON = {"head_s": 0.3}


@pytest.mark.parametrize(
    "sent", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01\x00"], ids=["nothing", "a byte", "half"]
)
@routed(json_ok, tls=LISTENING, timeouts=SOON)
async def test_before_its_end(router: Router, sent: bytes) -> None:
    """A silent client still holds a file descriptor."""
    client = await router.send(sent)
    await client.expect_close()


@routed(json_ok, tls=LISTENING, timeouts=SOON)
async def test_and_after_it(router: Router) -> None:
    client = await TlsClient.connect(router.port)
    router.clients.append(client)
    await client.expect_close()
