"""What a new process does with the old one's state of discovered replicas, also of late ones."""

from pathlib import Path

import msgspec

from router.app.restart.fleet_state import adopt_duties, state_of
from router.app.restart.messages import FleetState, Reclaimed
from router.config.model import Credential, Replica
from router.fleet.membership import Duty
from tests.app.discovery.test_files import Engines, looks, rules, write
from tests.app.members.test_changes import post, states
from tests.app.restart.test_fleet_state import adopted
from tests.harness.behaviours import json_ok
from tests.harness.replica import eventually
from tests.harness.running import Router, running, scenario


async def become(router: Router, **wanted: str) -> None:
    await eventually(lambda: states(router) == wanted, f"members {wanted}")


@scenario
async def test_removals_and_duties_are_passed_on(tmp_path: Path) -> None:
    file = tmp_path / "replicas.json"
    async with Engines(json_ok, json_ok, json_ok) as (a, b, c):
        entries = [{"url": e.url, "id": name} for e, name in ((a, "a"), (b, "b"), (c, "c"))]
        write(file, *entries)
        async with running(discovery=rules(file)) as old, running(discovery=rules(file)) as new:
            await old.admin("/replicas/a", "DELETE")
            await post(old, "/replicas/b/cordon")
            await post(old, "/replicas/c/reclaim", {"seconds": 100})
            state = state_of(old.app.parts)
            assert state.sources == (f"file:{file}",)
            kept = new.app.parts.fleet.replicas["b"]
            for _ in range(2):
                adopted(new, state)
                assert list(new.app.parts.fleet.replicas) == ["b", "c"]
            assert kept is new.app.parts.fleet.replicas["b"]
            assert kept.standing.duty == Duty.CORDONED
            c_left = new.app.parts.reclaims.seconds_left(new.app.parts.fleet.replicas["c"])
            assert c_left is not None and 0 < c_left <= 100
            assert state_of(new.app.parts).removed == state.removed, "for the next restart"
            write(file, *entries[1:])
            good = looks(new, file, "ok")
            await eventually(lambda: looks(new, file, "ok") > good + 3, "the file without it")
            write(file, *entries)
            await eventually(lambda: "a" in states(new), "no source has named it in between")


@scenario
async def test_a_source_that_answers_late(tmp_path: Path) -> None:
    file = tmp_path / "replicas.json"
    async with Engines(json_ok, json_ok) as (a, b):
        entries = [{"url": a.url, "id": "a"}, {"url": b.url, "id": "b"}]
        write(file, *entries)
        async with running(discovery=rules(file)) as old:
            await old.admin("/replicas/a", "DELETE")
            await post(old, "/replicas/b/cordon")
            state = state_of(old.app.parts)
        file.unlink()
        async with running(discovery=rules(file)) as new:
            adopted(new, state)
            assert states(new) == {}
            write(file, *entries)
            await become(new, b="cordoned")
            # Later the state of the old process does not count any more.
            write(file, entries[0])
            await become(new)
            write(file, *entries)
            await become(new, b="ready")


@scenario
async def test_the_state_is_applied_once_to_each_replica(tmp_path: Path) -> None:
    """Even if one source never answers."""
    file = tmp_path / "replicas.json"
    async with Engines(json_ok, json_ok, json_ok) as (a, b, c):
        entries = [{"url": e.url, "id": name} for e, name in ((a, "a"), (b, "b"), (c, "c"))]
        state = FleetState(duties={"a": Duty.CORDONED, "b": Duty.CORDONED})
        write(file, entries[0], entries[2])
        async with running(discovery=rules(file, tmp_path / "missing.json")) as router:
            adopted(router, state)
            await become(router, a="cordoned", c="ready")
            write(file, *entries)
            await become(router, a="cordoned", b="cordoned", c="ready")
            write(file, entries[2])
            await become(router, c="ready")
            write(file, *entries)
            await become(router, a="ready", b="ready", c="ready")


@scenario
async def test_a_reclaim_of_a_late_replica_counts_from_the_restart() -> None:
    async with running(json_ok) as router:
        replica = router.app.parts.fleet.replicas["r0"]
        state = FleetState(reclaims={"r0": Reclaimed(100.0, ("admin",))})
        adopt_duties(router.app.parts, state, [replica], age_s=60.0)
        left = router.app.parts.reclaims.seconds_left(replica)
        assert left is not None and 30 < left <= 40


@scenario
async def test_the_admin_api_takes_precedence_over_what_the_new_process_found(
    tmp_path: Path,
) -> None:
    file = tmp_path / "replicas.json"
    async with Engines(json_ok, json_ok) as (a, b):
        found = [{"url": a.url, "id": "a"}, {"url": b.url, "id": "other-name"}]
        write(file, *found)
        secret = Credential(token="sk-0123456789")
        added = (
            Replica(url=a.url, id="a", weight=2.0, credential=secret),
            Replica(url=b.url, id="b"),
        )
        async with running(discovery=rules(file)) as router:
            parts = router.app.parts
            assert list(states(router)) == ["a", "other-name"]
            adopted(router, FleetState(added=added))
            assert [r.config for r in parts.fleet.replicas.values()] == [*added]
            assert parts.fleet.replicas["a"].access is not None
            assert parts.upstream.access.keys() == {"a"}
            assert {one["origin"] for one in router.app.replicas()} == {"api"}
            await become(router, a="ready", b="ready")
            await eventually(lambda: router.app.census()["probes"] == 2, "the end of probes")
            assert (await router.ask()).status == 200
            adopted(router, FleetState())
            await become(router, **{"a": "ready", "other-name": "ready"})
            assert parts.upstream.access == {}
            assert parts.fleet.replicas["a"].config == msgspec.structs.replace(
                added[0], weight=1.0, credential=None
            )
