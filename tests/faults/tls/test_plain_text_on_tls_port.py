"""Plain HTTP, or anything else that is not a handshake, on the TLS port: closed without an
answer.
"""

import pytest

from router.config.model import Tls
from tests.harness.behaviours import json_ok
from tests.harness.messages import chat
from tests.harness.over_tls import TlsClient
from tests.harness.running import Router, routed
from tests.places import CERT, KEY

SENT = {
    "HTTP": chat(),
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "half a hello": b"\x16\x03\x01\x02\x00\x01\x00",
    "a record too long": b"\x16\x03\x01\xff\xff" + bytes(70_000),
    "random": bytes(range(256)) * 4,
}


@pytest.mark.parametrize("sent", SENT.values(), ids=SENT)
@pytest.mark.parametrize("then", ["waits", "fin", "rst"])
@routed(json_ok, tls=Tls(cert=CERT, key=KEY))
async def test_it_is_closed(router: Router, sent: bytes, then: str) -> None:
    client = await router.client()
    await client.send_pieces([sent])
    if then == "fin" or (then == "waits" and sent is SENT["half a hello"]):
        client.fin()  # an incomplete ClientHello may wait as long as an incomplete head
    if then == "rst":
        client.rst()
    else:
        await client.expect_close()
        assert b"HTTP/" not in client.received  # no error is sent in plain text
    secure = await TlsClient.connect(router.port)
    router.clients.append(secure)
    await secure.send(chat())
    assert (await secure.recv_response()).status == 200
    secure.close()
    assert len(router.replica.requests) == 1
    await router.log(1)
