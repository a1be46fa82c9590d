"""A router with a watched file of replicas: its changes, and the ways in which it can be broken."""

import asyncio
import json
import os
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from router.config.model import Discovery
from router.core.errors import Reason
from router.fleet.monitor import small_file
from tests.app.members.test_changes import Streams, begun, post, states
from tests.harness.behaviours import chat_either, json_ok
from tests.harness.messages import chat
from tests.harness.replica import HostileReplica, eventually
from tests.harness.running import Router, assert_error, running, scenario

FAST_S = 0.02


def rules(*files: Path, **fields: Any) -> Discovery:
    return Discovery(files=tuple(map(str, files)), interval_s=FAST_S, **fields)


def write(path: Path, *entries: Any) -> None:
    """Replace the file by a rename."""
    other = path.with_suffix(".new")
    other.write_text(json.dumps(entries))
    other.rename(path)


def looks(router: Router, path: Path, result: str) -> int:
    return router.app.discovered.looks.get((f"file:{path}", result), 0)


async def fails(router: Router, path: Path) -> None:
    """Wait until several looks have failed; the fleet must be unchanged."""
    before, fleet = looks(router, path, "failed"), dict(router.app.parts.fleet.replicas)
    await eventually(lambda: looks(router, path, "failed") > before + 3, "failed looks")
    assert dict(router.app.parts.fleet.replicas) == fleet


class Engines:
    """Replicas that the router does not know at the start."""

    def __init__(self, *behaviours: Any) -> None:
        self.all = [HostileReplica(behave) for behave in behaviours]

    async def __aenter__(self) -> list[HostileReplica]:
        for replica in self.all:
            replica.start()
        return self.all

    async def __aexit__(self, *_: object) -> None:
        for replica in self.all:
            await replica.stop()


@scenario
async def test_members_come_change_and_go_with_the_file(tmp_path: Path) -> None:
    file = tmp_path / "replicas.json"
    async with Engines(chat_either, chat_either) as (a, b):
        write(file, {"url": a.url, "id": "a"})
        async with running(discovery=rules(file), policy="round_robin") as router:
            assert states(router) == {"a": "ready"}, "it was probed before the router listened"
            shown = (await router.admin("/replicas/a")).json()
            assert (shown["origin"], shown["source"]) == ("discovery", f"file:{file}")
            assert (await router.ask()).status == 200
            kept = router.app.parts.fleet.replicas["a"]
            write(file, {"url": a.url, "id": "a", "max_inflight": 5}, b.url)
            name = f"127.0.0.1:{b.port}"
            await eventually(lambda: states(router).get(name) == "ready", "the second")
            assert router.app.parts.fleet.replicas["a"] is kept
            assert kept.config.max_inflight == 5
            write(file, b.url)
            await eventually(lambda: list(states(router)) == [name], "the first has left")
            assert (await router.ask()).status == 200
            await eventually(lambda: router.app.census()["probes"] == 1, "the end of probes")
            # The same ID with another address is another engine.
            write(file, {"url": a.url, "id": name})
            await eventually(
                lambda: (
                    router.app.replicas()[0]["url"] == a.url and states(router)[name] == "ready"
                ),
                "the moved one",
            )
            assert (await router.ask()).status == 200


@scenario
async def test_a_broken_file_keeps_the_fleet(tmp_path: Path) -> None:
    file = tmp_path / "replicas.yaml"
    async with Engines(json_ok) as (a,):
        whole = f"- url: {a.url}\n  id: a\n"
        file.write_text(whole)
        async with running(discovery=rules(file)) as router:
            assert states(router) == {"a": "ready"}
            for broken in (
                "",  # written, but not flushed
                "# nothing",
                whole + "- {",
                whole + "- url: ht",
                "replicas:\n" + whole,
                whole + whole,
                "\udcff",
                "# " + "x" * 1024 * 1024,
            ):
                file.write_bytes(broken.encode("utf-8", "surrogateescape"))
                await fails(router, file)
            file.unlink()
            await fails(router, file)
            file.mkdir()
            await fails(router, file)
            file.rmdir()
            os.mkfifo(file)
            await fails(router, file)
            file.unlink()
            file.symlink_to(file)
            await fails(router, file)
            file.unlink()
            file.write_text(whole)
            ok = looks(router, file, "ok")
            await eventually(lambda: looks(router, file, "ok") > ok + 2, "a good look")
            assert states(router) == {"a": "ready"}
            page = (await router.admin("/metrics")).body.decode()
            assert f'hedgerow_discovery_replicas{{source="file:{file}"}} 1.0' in page
            assert f'hedgerow_discovery_looks_total{{result="failed",source="file:{file}"}}' in (
                page
            )
            assert f'hedgerow_discovery_age_seconds{{source="file:{file}"}}' in page


@scenario
async def test_an_empty_list_removes_the_last_replica(tmp_path: Path) -> None:
    """Its address may be reused, so it must not get requests with the fleet's credential."""
    file = tmp_path / "replicas.yaml"
    async with Engines(json_ok, json_ok) as (a, b):
        write(file, {"url": a.url, "id": "a"})
        async with running(discovery=rules(file)) as router:
            assert (await router.ask()).status == 200
            write(file)
            await eventually(lambda: states(router) == {}, "the empty fleet")
            ok = looks(router, file, "ok")
            await eventually(lambda: looks(router, file, "ok") > ok + 2, "good looks")
            answer = await router.ask()
            assert_error(answer, Reason.NO_REPLICA)
            assert answer.header("retry-after") is not None
            assert len(a.requests) == 1
            write(file, b.url)
            await eventually(lambda: "ready" in states(router).values(), "the new one")
            assert (await router.ask()).status == 200


@scenario
async def test_a_file_that_is_being_written_is_not_used(tmp_path: Path) -> None:
    """Each part of a YAML list is a valid list, so a slow writer must not drain the fleet."""
    file = tmp_path / "replicas.yaml"
    async with Engines(json_ok) as (a,):
        lines = [f"- {{url: {a.url}, id: a}}\n"]
        lines += [f"- http://127.0.0.1:{n}\n" for n in range(1, 30)]
        file.write_text("".join(lines))
        # Each interval has many writes, and both happen in the same event loop.
        slow = Discovery(files=(str(file),), interval_s=0.15)
        async with running(discovery=slow) as router:
            sizes = set()
            for _ in range(4):
                with file.open("w") as out:
                    for line in reversed(lines):
                        out.write(line)
                        out.flush()
                        await asyncio.sleep(0.01)
                        sizes.add(len(router.app.parts.fleet.replicas))
            assert sizes == {30}
            assert looks(router, file, "ok") > 4


@scenario
async def test_a_read_that_hangs_is_not_started_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a read from a network file system that is gone; also after a reload."""
    file = tmp_path / "replicas.json"
    hangs, reads = threading.Event(), list[str]()
    read_now = small_file._read

    def read(path: str, bytes_max: int) -> bytes | None:
        reads.append(path)
        hangs.wait()
        return read_now(path, bytes_max)

    async with Engines(json_ok) as (a,):
        write(file, {"url": a.url, "id": "a"})
        async with running(discovery=rules(file, timeout_s=0.1)) as router:
            monkeypatch.setattr(small_file, "_read", read)
            try:
                await fails(router, file)
                router.change(discovery=rules(file, timeout_s=0.05))
                await router.app.reload()
                await fails(router, file)
                assert len(reads) == 1
                assert (await router.ask()).status == 200
                write(file, {"url": a.url, "id": "a", "weight": 2})
            finally:
                hangs.set()
            replica = router.app.parts.fleet.replicas["a"]
            await eventually(lambda: replica.config.weight == 2.0, "the file is read again")


@scenario
async def test_a_router_starts_without_its_file(tmp_path: Path) -> None:
    file = tmp_path / "replicas.json"
    async with (
        Engines(json_ok) as (a,),
        running(discovery=rules(file)) as router,
    ):
        assert (await router.admin("/readyz")).status == 503
        client = await router.client()
        await client.send(chat())
        write(file, a.url)
        assert (await client.recv_response()).status == 200
        assert (await router.admin("/readyz")).status == 200


@scenario
async def test_a_replica_that_leaves_finishes_its_streams_and_returns(tmp_path: Path) -> None:
    file, streams = tmp_path / "replicas.json", Streams()
    async with Engines(streams, json_ok) as (a, b):
        first, second = {"url": a.url, "id": "a"}, {"url": b.url, "id": "b"}
        write(file, first)
        async with running(discovery=rules(file)) as router:
            client = await begun(router)
            write(file, second)
            await eventually(lambda: states(router).get("b") == "ready", "the second")
            assert states(router)["a"] == "draining"
            assert (await router.admin("/replicas/a")).json()["origin"] is None
            assert (await router.ask()).status == 200
            write(file, first, second)
            await eventually(lambda: "a" in router.app.parts.fleet.serving.ready_ids, "the return")
            streams.go.set()
            assert (await client.recv_response()).complete
            await eventually(lambda: not router.app.parts.fleet.leaving, "the end of the drain")
            assert states(router) == {"b": "ready", "a": "ready"}


@scenario
async def test_the_configuration_the_admin_api_and_the_file_name_one_engine(tmp_path: Path) -> None:
    file = tmp_path / "replicas.json"
    async with Engines(json_ok, json_ok) as (a, b):
        write(file, {"url": a.url, "id": "of-file"}, {"url": b.url, "id": "b"})
        async with running(json_ok, discovery=rules(file)) as router:

            def origins() -> dict[str, str]:
                return {shown["id"]: shown["origin"] for shown in router.app.replicas()}

            found = {"r0": "file", "of-file": "discovery", "b": "discovery"}
            assert origins() == found
            # A member is a conflict, whichever source it has.
            answer = await router.admin("/replicas", "POST", body={"url": a.url})
            assert answer.status == 409
            # The configuration takes over, and gives it back.
            router.change(replicas=(router.at(0), router.at(0, url=a.url, id="a")))
            await router.app.reload()
            assert origins() == {"r0": "file", "a": "file", "b": "discovery"}
            router.change(replicas=(router.at(0),))
            await router.app.reload()
            assert origins() == found
            # The operator's removal lasts until the file lists it no more, or until a reload.
            await router.admin("/replicas/of-file", "DELETE")
            write(file, {"url": a.url, "id": "of-file"}, {"url": b.url, "id": "b", "weight": 2})
            other = router.app.parts.fleet.replicas["b"]
            await eventually(lambda: other.config.weight == 2.0, "the new file")
            assert origins() == {"r0": "file", "b": "discovery"}
            await post(router, "/replicas", {"url": a.url, "id": "of-api"})
            write(file, {"url": a.url, "id": "of-file"})
            await eventually(lambda: "b" not in origins(), "the new file")
            assert origins() == {"r0": "file", "of-api": "api"}
            await router.admin("/replicas/of-api", "DELETE")
            await router.app.reload()
            assert origins() == {"r0": "file", "of-file": "discovery"}


@scenario
async def test_a_reload_changes_the_sources(tmp_path: Path) -> None:
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    async with Engines(json_ok, json_ok) as (a, b):
        write(one, {"url": a.url, "id": "a"})
        write(two, {"url": b.url, "id": "b"})
        async with running(discovery=rules(one)) as router:
            kept = router.app.parts.fleet.replicas["a"]
            await post(router, "/replicas/a/cordon")
            router.change(discovery=rules(one, two))
            await router.app.reload()
            assert router.app.parts.fleet.replicas["a"] is kept, "before the next look"
            await eventually(lambda: states(router).get("b") == "ready", "the second file")
            assert states(router)["a"] == "cordoned"
            assert router.app.parts.discovery.running == 2
            router.change(discovery=rules(two), region="eu")
            await router.app.reload()
            assert list(states(router)) == ["b"], "the first file is gone"
            assert list(router.app.discovered.sizes) == [f"file:{two}"]
            assert router.app.replicas()[0]["region"] == "eu", "before the next look"
            await eventually(
                lambda: router.app.parts.discovery.running == 1, "the end of the old tasks"
            )


@scenario
async def test_a_long_file_is_cut_and_reported(tmp_path: Path) -> None:
    file = tmp_path / "replicas.json"
    urls = [f"http://127.0.0.1:{port}" for port in range(1, 9)]
    write(file, *urls)
    async with running(discovery=rules(file, replicas_max=3)) as router:
        first = set(states(router))
        assert len(first) == 3
        assert looks(router, file, "failed") > 0
        write(file, *reversed(urls))
        size = router.app.discovered.looks.copy()
        await eventually(lambda: router.app.discovered.looks != size, "another look")
        assert set(states(router)) == first


@scenario
async def test_a_file_that_flaps_leaves_nothing_behind(tmp_path: Path) -> None:
    """Label values, tasks and remembered replicas stay bounded by the members."""
    file = tmp_path / "replicas.json"
    async with Engines(json_ok) as (a,):
        write(file, {"url": a.url, "id": "stays"})
        async with running(discovery=rules(file), policy="round_robin") as router:
            parts = router.app.parts
            roster, discovered = parts.origins.roster, router.app.discovered
            (stays,) = next(iter(roster._answers.values()))
            for turn in range(300):
                goes = msgspec.structs.replace(stays.replica, id=f"n{turn}", url=f"{a.url}/{turn}")
                roster.answered(f"file:{file}", [stays, stays._replace(replica=goes)])
                discovered._apply()
                parts.metrics.ejections(f"n{turn}")
                await asyncio.sleep(0)
            write(file, {"url": a.url, "id": "stays", "weight": 2})
            await eventually(lambda: list(states(router)) == ["stays"], "only the member")
            assert parts.metrics.ejections_by_replica == {}
            assert parts.metrics._replicas <= {"stays"}
            assert not parts.fleet.leaving
            await eventually(lambda: router.app.census()["probes"] == 1, "the end of probes")
            assert (await router.ask()).status == 200
