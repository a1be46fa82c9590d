"""Batches keep their owner's identity without storing the owner's API key on disk."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

from router.addons.batches.run.concurrency_window import FIRST
from router.config.keys import KeyLine, hash_of, line_of
from router.config.model import Keys, Upstream
from tests.addons.batches.app.helpers import open_door, results, runner_of, sdk, submit, until
from tests.addons.batches.lines import jsonl, line, numbered
from tests.harness.behaviours import json_ok
from tests.harness.messages import chat, completion, request
from tests.harness.replica import ReplicaConnection, eventually
from tests.harness.running import scenario

KEY = "hr-a-secret-of-acme"
NEXT_KEY = "hr-another-of-acme"
OTHER = "hr-a-secret-of-umbrella"


def key(name: str, secret: str, **fields: Any) -> KeyLine:
    return KeyLine(**{"name": name, "hash": hash_of(secret.encode()), **fields})


def keys_file(folder: Path, *lines: KeyLine) -> str:
    path = folder / "keys.jsonl"
    path.write_text("".join(line_of(line) + "\n" for line in lines))
    return str(path)


class Gate:
    """A replica that answers while its gate is open, and counts concurrent requests."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.inside = 0
        self.most = 0

    async def __call__(self, connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            self.inside += 1
            self.most = max(self.most, self.inside)
            await self.open.wait()
            self.inside -= 1
            await connection.send(completion())


def on_disk(folder: Path) -> bytes:
    """All bytes of all files in the folder."""
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


@asynccontextmanager
async def half_done(folder: Path, secret: str, **config: Any) -> AsyncIterator[str]:
    """A batch that is in progress when its router stops; yields its id."""
    async with open_door(folder, Gate(), **config) as router:
        async with sdk(router, secret) as client:
            batch = await submit(client, numbered(20))
            await eventually(lambda: bool(router.replica.requests), "lines are under way")
        assert secret.encode() not in on_disk(folder)
        await router.app.stop()
    assert secret.encode() not in on_disk(folder)
    yield batch.id


@scenario
async def test_replicas_that_want_the_clients_key_get_it_again_when_he_asks(tmp_path: Path) -> None:
    async with (
        half_done(tmp_path, "sk-passes-through") as batch_id,
        open_door(tmp_path, json_ok) as router,
    ):
        async with sdk(router, "sk-of-another") as stranger:
            assert (await stranger.batches.list()).data == []
        await asyncio.sleep(0.1)
        assert router.replica.requests == [], "nobody's word but his own lets them go on"
        async with sdk(router, "sk-passes-through") as client:
            batch = await until(client, batch_id)
            assert len(await results(client, batch)) == 20
        told = {seen.header("authorization") for seen in router.replica.requests}
        assert told == {"Bearer sk-passes-through"}
        assert all(seen.header("x-router-owner") is None for seen in router.replica.requests)
        assert runner_of(router)._secrets._known == {}, "what nobody needs is forgotten"
    assert b"sk-passes-through" not in on_disk(tmp_path)


@scenario
async def test_lines_of_a_known_key_go_on_by_its_name(tmp_path: Path) -> None:
    keys = Keys(file=keys_file(tmp_path, key("acme", KEY)), required=True)
    folder = tmp_path / "b"
    async with (
        half_done(folder, KEY, keys=keys) as batch_id,
        open_door(folder, json_ok, keys=keys) as router,
    ):
        # Since the restart, no client has sent a request.
        await eventually(lambda: len(router.replica.requests) == 20, "all lines are sent")
        for seen in router.replica.requests:
            for name in ("authorization", "x-api-key", "x-router-owner"):
                assert seen.header(name) is None, name
            assert router.app.parts.dispatcher.tenants.token not in str(seen.headers)
        assert (await router.ask(chat(f"Authorization: Bearer {KEY}"), "POST")).status == 200
        async with sdk(router, KEY) as client:
            assert len(await results(client, await until(client, batch_id))) == 20
        lines = await router.log(21, kind="chat")
        assert len({entry["tenant"] for entry in lines}) == 1, "one tenant, asked so or so"
        assert [entry["class"] for entry in lines].count("batch") == 20


@scenario
async def test_what_a_key_may_holds_for_its_lines(tmp_path: Path) -> None:
    file = keys_file(
        tmp_path, key("acme", KEY, concurrency=2, models=("m",)), key("umbrella", OTHER)
    )
    gate = Gate()
    async with (
        open_door(tmp_path / "b", gate, keys=Keys(file=file)) as router,
        sdk(router, KEY) as acme,
        sdk(router, OTHER) as umbrella,
    ):
        wanted = jsonl(*(line(f"r{n}") for n in range(6)), line("odd", model="secret-model"))
        batch = await submit(acme, wanted)
        accounts = router.app.parts.dispatcher.tenants._accounts
        await eventually(lambda: "acme" in accounts, "a request of the key")
        await eventually(lambda: accounts["acme"].under_way == 2, "as many as it may")
        # Limits are per owner: umbrella's lines are not delayed by acme's pauses.
        other = await submit(umbrella, numbered(20))
        await eventually(lambda: gate.inside >= 2 + FIRST, "umbrella has its lines under way")
        assert accounts["acme"].under_way == 2
        gate.open.set()
        await until(umbrella, other.id)
        found = await results(acme, await until(acme, batch.id))
        assert found["odd"]["response"]["status_code"] == 403
        assert [found[f"r{n}"]["response"]["status_code"] for n in range(6)] == [200] * 6


@scenario
async def test_keys_of_one_name_own_the_same(tmp_path: Path) -> None:
    file = keys_file(tmp_path, key("acme", KEY), key("acme", NEXT_KEY), key("umbrella", OTHER))
    async with (
        open_door(tmp_path / "b", json_ok, keys=Keys(file=file)) as router,
        sdk(router, KEY) as before,
        sdk(router, NEXT_KEY) as after,
        sdk(router, OTHER) as other,
    ):
        batch = await until(before, (await submit(before, numbered(2))).id)
        assert len(await results(after, batch)) == 2
        with pytest.raises(openai.NotFoundError):
            await other.batches.retrieve(batch.id)
        listed = await router.ask(request("/v1/batches", f"x-api-key: {KEY}"))
        assert [found["id"] for found in listed.json()["data"]] == [batch.id]


@scenario
async def test_a_key_that_is_taken_back_has_no_more_lines_sent(tmp_path: Path) -> None:
    gate = Gate()
    file = keys_file(tmp_path, key("acme", KEY, concurrency=1), key("umbrella", OTHER))
    async with (
        open_door(tmp_path / "b", gate, keys=Keys(file=file)) as router,
        sdk(router, KEY) as client,
    ):
        batch = await submit(client, numbered(10))
        await eventually(lambda: gate.inside == 1, "one line is under way")
        keys_file(tmp_path, key("umbrella", OTHER))
        await router.app.reload()
        gate.open.set()
        runner = runner_of(router)
        await eventually(lambda: not runner.running, "it is over")
        keys_file(tmp_path, key("acme", KEY), key("umbrella", OTHER))
        await router.app.reload()
        found = await results(client, await until(client, batch.id))
        statuses = sorted(r["response"]["status_code"] for r in found.values())
        assert statuses == [200] + [401] * 9


@scenario
async def test_nobody_else_may_ask_by_a_name(tmp_path: Path) -> None:
    keys = Keys(file=keys_file(tmp_path, key("acme", KEY)), required=True)
    async with (
        open_door(tmp_path / "b", json_ok, keys=keys) as router,
        sdk(router, KEY) as acme,
    ):
        await acme.files.create(file=numbered(1), purpose="batch")
        for said in ("key:acme", "0123456789abcdef0123456789abcdef key:acme", " key:acme", ""):
            field = f"X-Router-Owner: {said}"
            assert (await router.ask(chat(field), "POST")).status == 401, said
            assert (await router.ask(request("/v1/files", field))).status == 401, said
        assert router.replica.requests == []


@scenario
async def test_a_token_of_the_routers_own_needs_no_clients_secret(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("ours")
    config: dict[str, Any] = {"upstream": Upstream(token_file=str(token))}
    folder = tmp_path / "b"
    async with (
        half_done(folder, "sk-mine", **config),
        open_door(folder, json_ok, **config) as router,
    ):
        await eventually(lambda: len(router.replica.requests) == 20, "nobody was waited for")
        told = {seen.header("authorization") for seen in router.replica.requests}
        assert told == {"Bearer ours"}
