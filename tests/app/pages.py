"""Pages of a running router's admin port, and its metrics by class."""

from __future__ import annotations

from typing import Any

from tests.faults.process.metrics import scrape
from tests.harness.client import RawClient, Response
from tests.harness.messages import request
from tests.harness.running import Router


async def page(router: Router, path: str) -> Any:
    """Fetch a page of JSON."""
    return await page_at(router.app.admin_port, path)


async def text_page(router: Router, path: str) -> str:
    """Fetch a page of text."""
    return (await _answer(router.app.admin_port, path)).body.decode()


async def page_at(admin_port: int, path: str) -> Any:
    return (await _answer(admin_port, path)).json()


async def _answer(admin_port: int, path: str) -> Response:
    client = await RawClient.connect(admin_port)
    try:
        await client.send(request(path, "Connection: close"))
        answer = await client.recv_response()
    finally:
        client.close()
    assert answer.status == 200, answer
    return answer


async def by_class(router: Router, family: str) -> dict[str, float]:
    """The samples of a family whose only label is the class."""
    found = await scrape(router.app.admin_port)
    return {dict(labels)["class"]: n for (name, labels), n in found.items() if name == family}
