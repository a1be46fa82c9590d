"""The admin API adds engines to emulated ones: the first thing to try after `make run`."""

from tests.app.pages import page_at
from tests.harness.client import RawClient
from tests.harness.messages import request
from tests.harness.process import serving
from tests.harness.running import scenario


@scenario
async def test_a_replica_joins_emulated_engines() -> None:
    flags = ("--emulate", "2", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
    async with serving(None, *flags) as router:
        client = await RawClient.connect(router.admin_port)
        body = b'{"url": "http://127.0.0.1:9"}'
        await client.send(request("/replicas", method="POST", body=body))
        assert (await client.recv_response()).status == 201
        client.close()
        members = {replica["id"] for replica in await page_at(router.admin_port, "/replicas")}
        assert members == {"emulated-0", "emulated-1", "127.0.0.1:9"}
