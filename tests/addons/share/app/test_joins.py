"""A router that starts later learns where the others have sent prompts before."""

from router.addons.share.store import StoreAddon
from router.config.model import Sharing
from tests.addons.share.app.servers import Store
from tests.harness import kit

LONG = [{"role": "user", "content": "a long prompt " * 1000}]


@kit.scenario
async def test_a_router_that_starts_later_knows_what_was_sent_before() -> None:
    store = Store()
    try:
        await store.ready()
        share = Sharing(url=store.url())
        async with kit.running(kit.json_ok, share=share) as one:
            addon = one.app.parts.addons["share"]
            assert isinstance(addon, StoreAddon)
            assert (await one.ask(kit.chat(messages=LONG))).status == 200
            (placement,) = addon._own._latest
            await kit.eventually(lambda: not addon._own._placements, "a message")
            async with kit.running(one.replica.url, share=share) as late:
                knowledge = late.app.parts.fleet.knowledge
                await kit.eventually(
                    lambda: bool(knowledge.prefixes.match(placement.blocks)), "a known prefix"
                )
    finally:
        store.close()
