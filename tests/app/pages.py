"""Pages of a running router's admin port, and its metrics by class."""

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


async def samples(router: Router, family: str, *labels: str) -> dict[Any, float]:
    """The samples of a family by the values of these labels. One label: by its value alone."""
    found: dict[Any, float] = {}
    for (name, pairs), value in (await scrape(router.app.admin_port)).items():
        if name == family:
            key = tuple(dict(pairs)[label] for label in labels)
            found[key if len(labels) > 1 else key[0]] = value
    return found


async def by_class(router: Router, family: str) -> dict[str, float]:
    return await samples(router, family, "class")
