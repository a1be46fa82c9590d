"""A reload of the file after the admin API added, removed or cordoned replicas."""

from router.config.model import Upstream
from tests.app.members.test_changes import post, states
from tests.harness.behaviours import json_ok
from tests.harness.replica import HostileReplica
from tests.harness.running import running, scenario


@scenario
async def test_a_reload_keeps_what_the_api_added() -> None:
    async with HostileReplica(json_ok) as other, running(json_ok) as router:
        await post(router, "/replicas", {"url": other.url, "id": "new"})
        kept = router.app.parts.fleet.replicas["new"]
        await router.app.reload()
        assert router.app.parts.fleet.replicas["new"] is kept
        assert (await router.admin("/replicas/new")).json()["origin"] == "api"
        await router.admin("/replicas/new", "DELETE")
        await router.app.reload()
        assert list(states(router)) == ["r0"]


@scenario
async def test_the_file_takes_over_what_it_lists_itself() -> None:
    async with HostileReplica(json_ok) as other, running(json_ok) as router:
        await post(router, "/replicas", {"url": other.url, "id": "new"})
        kept = router.app.parts.fleet.replicas["new"]
        router.change(replicas=(router.at(0), router.at(0, url=other.url, id="new", weight=3.0)))
        await router.app.reload()
        assert router.app.parts.fleet.replicas["new"] is kept
        shown = (await router.admin("/replicas/new")).json()
        assert (shown["origin"], kept.config.weight) == ("file", 3.0)
        # The same address with another ID: the replica of the API is removed.
        await router.admin("/replicas/new", "DELETE")
        await post(router, "/replicas", {"url": other.url, "id": "again"})
        router.change(replicas=(router.at(0), router.at(0, url=other.url, id="listed")))
        await router.app.reload()
        assert sorted(states(router)) == ["listed", "r0"]
        # The replica belongs to the file now, so it is removed with the file's entry.
        router.change(replicas=(router.at(0),))
        await router.app.reload()
        assert list(states(router)) == ["r0"]


@scenario
async def test_a_replica_of_the_file_that_was_removed_returns_with_a_reload() -> None:
    async with running(json_ok, json_ok) as router:
        await router.admin("/replicas/r1", "DELETE")
        assert list(states(router)) == ["r0"]
        await router.app.reload()
        assert list(states(router)) == ["r0", "r1"]


@scenario
async def test_a_reload_keeps_a_cordon() -> None:
    async with running(json_ok, json_ok) as router:
        await post(router, "/replicas/r1/cordon")
        router.change(replicas=(router.at(0), router.at(1, weight=2.0)))
        await router.app.reload()
        assert states(router)["r1"] == "cordoned"
        router.change(upstream=Upstream(token="t"))  # the same engine over new connections
        await router.app.reload()
        assert states(router)["r1"] == "cordoned"
        # Another URL is another engine.
        async with HostileReplica(json_ok) as other:
            router.change(replicas=(router.at(0), router.at(1, url=other.url)))
            await router.app.reload()
            assert states(router)["r1"] != "cordoned"
