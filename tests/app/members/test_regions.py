"""The admin API adds replicas to regions and removes them."""

from pathlib import Path

from router.config.keys import KeyLine, hash_of, line_of
from router.config.model import Classes, ClassSettings, Keys
from tests.app.members.test_changes import post, states
from tests.harness.behaviours import json_ok
from tests.harness.messages import chat
from tests.harness.replica import HostileReplica, eventually
from tests.harness.running import Router, running, scenario

LIMITED = "Authorization: Bearer acme-key"
SHOWS = "x-served-region: true"
BRIEF = Classes(normal=ClassSettings(absent_s=0.3))


def keys(folder: Path) -> Keys:
    line = KeyLine(name="acme", hash=hash_of(b"acme-key"), allowed_regions=("us",))
    path = folder / "keys.jsonl"
    path.write_text(line_of(line) + "\n")
    return Keys(file=str(path))


async def served(router: Router, *fields: str) -> tuple[int, str | None]:
    answer = await router.ask(chat(SHOWS, *fields), "POST")
    return answer.status, answer.header("x-served-region")


@scenario
async def test_a_region_joins_and_leaves(tmp_path: Path) -> None:
    async with HostileReplica(json_ok) as other:
        settings = {"region": "eu", "keys": keys(tmp_path), "classes": BRIEF}
        async with running(json_ok, replica={"region": "eu"}, **settings) as router:
            nearest = router.app.parts.fleet.nearest
            assert await served(router, LIMITED) == (403, None)
            entry = {"url": other.url, "id": "new", "region": "us", "zone": "a"}
            shown = await post(router, "/replicas", entry)
            assert (shown["region"], shown["zone"]) == ("us", "a")
            await eventually(lambda: states(router).get("new") == "ready", "the first probe")
            assert await served(router) == (200, "eu")
            assert await served(router, "x-region: us") == (200, "us")
            assert await served(router, LIMITED) == (200, "us")
            await post(router, "/replicas/new/cordon")
            assert await served(router, "x-region: us") == (200, "eu")
            assert (await served(router, LIMITED))[0] == 503, "it may return to service"
            await router.admin("/replicas/new", "DELETE")
            await eventually(lambda: list(states(router)) == ["r0"], "the removed one has ended")
            assert await served(router, LIMITED) == (403, None)
            assert await served(router, "x-region: us") == (200, "eu")
            assert nearest.regions == {"eu"} and not nearest.is_used
            assert len(router.replica.requests) == 3, "no request of the limited key"


@scenario
async def test_a_replica_without_a_region_is_in_that_of_the_router() -> None:
    async with running(json_ok, region="eu") as router:
        shown = await post(router, "/replicas", {"url": "http://127.0.0.1:9", "id": "new"})
        assert (shown["region"], shown["zone"]) == ("eu", None)
        bad = {"url": "http://127.0.0.1:10", "region": "e u"}
        answer = await router.admin("/replicas", "POST", body=bad)
        assert answer.status == 422
        (problem,) = answer.json()["error"]["problems"]
        assert problem.startswith("region: the name of a region")
