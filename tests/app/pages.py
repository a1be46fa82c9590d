"""Pages of a running router's admin port."""

from __future__ import annotations

from typing import Any

from tests.harness.client import RawClient
from tests.harness.messages import request
from tests.harness.running import Router


async def page(router: Router, path: str) -> Any:
    """Fetch a page of JSON."""
    return await page_at(router.app.admin_port, path)


async def page_at(admin_port: int, path: str) -> Any:
    client = await RawClient.connect(admin_port)
    try:
        await client.send(request(path, "Connection: close"))
        answer = await client.recv_response()
    finally:
        client.close()
    assert answer.status == 200, answer
    return answer.json()
