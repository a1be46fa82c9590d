"""Prompts constructed to collide: clients cannot compute the hashes used for routing."""

from router.dispatch.exchange import Exchange
from tests.harness.behaviours import hang
from tests.harness.messages import chat
from tests.harness.running import running, scenario

PROMPT = [{"role": "user", "content": "a long prompt " * 1000}]


async def hashes(salt: str = "") -> tuple[int, ...]:
    """The prompt's hashes in a new router."""
    async with running(hang, access_log={"salt": salt}) as router:
        client = await router.send(chat(messages=PROMPT))
        await router.replica.wait_for_requests(1)
        exchange: Exchange
        (exchange,) = router.app.parts.dispatcher.exchanges
        found = tuple(exchange.view.blocks)
        assert found
        client.rst()
    return found


@scenario
async def test_each_process_has_hashes_of_its_own() -> None:
    assert not set(await hashes()) & set(await hashes())


@scenario
async def test_a_salt_makes_them_comparable() -> None:
    assert await hashes("a salt") == await hashes("a salt")
