"""Hundreds of connections that reset directly after their accept: the accept loop survives."""

from tests.harness.behaviours import json_ok
from tests.harness.messages import chat
from tests.harness.running import Router, routed


@routed(json_ok)
async def test_the_next_client_is_served(router: Router) -> None:
    for _ in range(10):
        batch = [await router.client() for _ in range(50)]
        for client in batch:
            client.rst()
    assert (await router.ask(chat())).status == 200
    await router.quiet()
    assert len(await router.log()) == 1
