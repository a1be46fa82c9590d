"""With `watch: true`, changed files are applied as a whole, and broken ones are refused."""

import os
from pathlib import Path

import pytest

from router.app.file_watch import stamps_of
from router.config.keys import KeyLine, hash_of, line_of
from router.config.model import Credential, Keys, Pool
from tests.config.test_key_files import Secret, key
from tests.harness.behaviours import json_ok
from tests.harness.messages import chat
from tests.harness.process import serving, write_config
from tests.harness.replica import HostileReplica, eventually
from tests.harness.running import Router, long_scenario, running, scenario


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.app.file_watch.INTERVAL_S", 0.02)


def known(router: Router) -> set[str]:
    return {*router.app.parts.dispatcher.tenants.keyring.by_name}


def replace(path: Path, text: str) -> None:
    """Write a new file and rename it over the old one."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.rename(path)


@scenario
async def test_keys_follow_their_file(tmp_path: Path) -> None:
    path = tmp_path / "keys.jsonl"
    path.write_text(key("acme"))
    async with running(json_ok, keys=Keys(file=str(path)), watch=True) as router:
        replace(path, key("umbrella"))
        await eventually(lambda: known(router) == {"umbrella"}, "the new file is read")
        with path.open("a") as file:  # a half-written line
            file.write(key("acme")[:30])
            file.flush()
            await eventually(lambda: refused(router) >= 1, "the half is refused")
            assert known(router) == {"umbrella"}
            file.write(key("acme")[30:])
        await eventually(lambda: known(router) == {"umbrella", "acme"}, "the rest is read")
        path.unlink()
        before = refused(router)
        await eventually(lambda: refused(router) > before, "the absence is refused")
        assert known(router) == {"umbrella", "acme"}
        path.write_text(key("acme"))
        await eventually(lambda: known(router) == {"acme"}, "the file is back")


def refused(router: Router) -> int:
    return router.app.metrics.reloads.failed


@scenario
async def test_a_reload_that_fails_does_not_end_the_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "keys.jsonl"
    path.write_text(key("acme"))
    async with running(json_ok, keys=Keys(file=str(path)), watch=True) as router:
        with monkeypatch.context() as defect:
            defect.setattr("router.app.reload.keys_in", None)
            replace(path, key("umbrella"))
            await eventually(lambda: refused(router) == 1, "the failure")
        replace(path, key("other"))
        await eventually(lambda: known(router) == {"other"}, "the next change is applied")


@scenario
async def test_a_mounted_secret_is_followed(tmp_path: Path) -> None:
    secret = Secret(tmp_path / "keys")
    secret.publish(acme=key("acme"))
    async with running(json_ok, keys=Keys(folder=str(secret.path)), watch=True) as router:
        for name in ("umbrella", "acme", "other"):
            secret.publish(**{name: key(name)})
            await eventually(lambda name=name: known(router) == {name}, name)  # type: ignore[misc]
        assert refused(router) == 0


@scenario
async def test_the_credential_of_a_pool_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first")
    pools = {"gold": Pool(credential=Credential(token_file=str(path)))}
    async with running(json_ok, replica={"pool": "gold"}, pools=pools, watch=True) as router:

        def sent() -> str:
            return router.app.parts.upstream.access["r0"].fields["authorization"]

        assert sent() == "Bearer first"
        replace(path, "second")
        await eventually(lambda: sent() == "Bearer second", "the new token is used")


@scenario
async def test_without_watch_nothing_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "keys.jsonl"
    path.write_text(key("acme"))
    async with running(json_ok, keys=Keys(file=str(path))) as router:
        assert router.app.file_watch._task is None
        router.change(watch=True)
        await router.app.reload()
        replace(path, key("umbrella"))
        await eventually(lambda: known(router) == {"umbrella"}, "watch is on")
        router.change(watch=False)
        await router.app.reload()
        await eventually(lambda: router.app.file_watch._task is None, "watch is off")
        assert (await router.ask(chat(), "POST")).status == 200


def test_every_kind_of_change_is_seen(tmp_path: Path) -> None:
    path, other = tmp_path / "a", tmp_path / "b"
    path.write_text("one")
    other.write_text("two")
    link = tmp_path / "link"
    link.symlink_to(path)
    folder = tmp_path / "folder"
    folder.mkdir()
    paths = [str(path), str(link), str(folder), str(tmp_path / "absent"), "bad\0path"]

    def changes() -> set[str]:
        nonlocal seen
        now = stamps_of(paths)
        found = {Path(name).name for name in paths if now[name] != seen[name]}
        seen = now
        return found

    seen = stamps_of(paths)
    assert changes() == set()
    path.write_text("eno")  # the same size
    assert changes() == {"a", "link"}
    os.utime(path, (0, 0))
    assert changes() == {"a", "link"}
    link.unlink()
    link.symlink_to(other)
    assert changes() == {"link"}
    (folder / "key").write_text("k")
    assert changes() == {"folder"}
    (folder / ".ignored").write_text("k")
    assert changes() == set()
    (folder / "key").unlink()
    assert changes() == {"folder"}
    (tmp_path / "absent").write_text("")
    assert changes() == {"absent"}


@long_scenario
async def test_the_configuration_file_is_followed(tmp_path: Path) -> None:
    async with HostileReplica(json_ok) as replica:
        config = tmp_path / "config.yaml"
        lines = tmp_path / "keys.jsonl"
        lines.write_text(line_of(KeyLine(name="acme", hash=hash_of(b"k"))))
        write_config(config, replica.url, extra="watch: true\n")
        async with serving(config) as process:
            text = config.read_text()
            config.write_text(text + "routing: {poli")
            event = await process.next_event("reload refused")
            assert event["problems"]
            config.write_text(text + f"keys: {{file: '{lines}'}}\nrouting: {{policy: p2c}}\n")
            await process.next_event("reloaded")
            # The file of keys is watched from now on.
            lines.write_text("{")
            await process.next_event("reload refused")
