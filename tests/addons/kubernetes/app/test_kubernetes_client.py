"""A hostile API server: answers that break off, never come, or are wrong; credentials that end."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from kubernetes.aio.config import incluster_config

from router.addons.kubernetes import client
from router.addons.kubernetes.source import KubernetesSource
from router.config.model import Discovery, KubernetesReplicas
from router.fleet.discovery.source import Look
from tests.harness import kit
from tests.places import LOOPBACK_CERT

FAST_S = 0.02
PATIENCE_S = 60.0  # Only a test that hangs waits so long.
Answer = Callable[[str], bytes | None]  # From a request's target; `None`: no answer.
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@asynccontextmanager
async def source_at(
    path: str, *, timeout_s: float = PATIENCE_S, **fields: Any
) -> AsyncIterator[KubernetesSource]:
    rules = Discovery(ttl_min_s=FAST_S, retry_max_s=FAST_S, timeout_s=timeout_s)
    settings = {"service": "vllm", "kubeconfig": path, **fields}
    source = KubernetesSource(KubernetesReplicas(**settings), rules, Random(1), {})
    try:
        yield source
    finally:
        await source.close()


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[str]:
    """A server that sends these bytes for one request of each connection, and then closes it.

    Yields its URL.
    """
    writers = set[asyncio.StreamWriter]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            data = answer(head.split()[1].decode())
            if data is None:
                await reader.read()  # Until the client leaves.
            else:
                writer.write(data)
                await writer.drain()
        except (OSError, EOFError):
            pass
        finally:
            writers.discard(writer)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=kit.loopback_tls())
    try:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in list(writers):
            writer.transport.abort()
        await kit.eventually(lambda: not writers, "the end of the connections")
        await asyncio.sleep(0)


def body(content: Any) -> bytes:
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    return HEAD + b"Content-Length: %d\r\n\r\n" % len(raw) + raw


def chunked(*lines: bytes) -> bytes:
    chunks = [b"%x\r\n%s\r\n" % (len(line), line) for line in lines]
    return HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(chunks)


def made(version: int, *addresses: str) -> dict[str, Any]:
    one = kit.slice_of("s", *map(kit.endpoint, addresses))
    one["metadata"].update(namespace="default", resourceVersion=str(version))
    return one


def listing(version: int, *addresses: str) -> dict[str, Any]:
    meta = {"resourceVersion": str(version)}
    return {"metadata": meta, "items": [made(version, *addresses)]}


def event(version: int, *addresses: str, kind: str = "MODIFIED") -> bytes:
    return json.dumps({"type": kind, "object": made(version, *addresses)}).encode() + b"\n"


def is_watch(target: str) -> bool:
    return "watch=true" in target


def version_of(target: str) -> int:
    found = re.search(r"resourceVersion=(\d+)", target)
    return int(found[1]) if found else 0


def addresses(look: Look) -> list[str]:
    return [each.replica.id.removesuffix(":8000") for each in look.found or ()]


async def until(source: KubernetesSource, wanted: str) -> Look:
    """Look until the source finds this one address."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            look = await source.look()
            if addresses(look) == [wanted]:
                return look
            await asyncio.sleep(min(look.wait_s, FAST_S))


@kit.long_scenario
async def test_a_watch_that_is_cut_anywhere(tmp_path: Path) -> None:
    """Each event is used as a whole or not at all, and none is lost."""

    def where(version: int) -> str:
        return f"10.{version // 250}.{version % 250}.1"

    cut, now = 0, 1000

    def answer(target: str) -> bytes | None:
        nonlocal now
        if not is_watch(target):
            return body(listing(now, where(now)))
        first = version_of(target) + 1
        now = max(now, first + 1)
        return chunked(event(first, where(first)), event(first + 1, where(first + 1)))[:cut]

    async with serving(answer) as url, source_at(kit.kubeconfig(tmp_path, url)) as source:
        await source.look()
        used = set[int]()
        for size in range(0, 900, 29):
            cut = size
            before = int(source._endpoints.version)
            while not ((look := await source.look()).problem or look.wait_s):
                if look.found:
                    version = int(source._endpoints.version)
                    assert addresses(look) == [where(version)]
                    used.add(version - before)
            if look.problem:  # Such a watch has failed, so there is a new list.
                assert addresses(await source.look()) == [where(now)]
        assert used == {1, 2}


@kit.scenario
async def test_a_list_that_is_cut_everywhere_changes_nothing(tmp_path: Path) -> None:
    whole = body(listing(7, "10.0.0.1"))
    cut = 0
    async with (
        serving(lambda target: whole[:cut]) as url,
        source_at(kit.kubeconfig(tmp_path, url)) as source,
    ):
        for cut in range(0, len(whole), 23):
            look = await source.look()
            assert (look.found, bool(look.problem)) == (None, True), cut
        cut = len(whole)
        assert addresses(await source.look()) == ["10.0.0.1"]


def endless(target: str) -> bytes:
    return body({"metadata": {"continue": "x"}, "items": []})


WRONG: dict[str, bytes | Answer] = {
    "nothing": b"",
    "no HTTP": b"SSH-2.0-x\r\n\r\n",
    "no JSON": body(b"<html>"),
    "null": body(None),
    "a list": body([]),
    "a status": body({"kind": "Status", "code": 500}),
    "no version": body({"metadata": {}, "items": []}),
    "a version in words": body({"metadata": {"resourceVersion": "new"}, "items": []}),
    "items of another type": body({"metadata": {"resourceVersion": "1"}, "items": [7]}),
    "names of another type": body(
        {"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {"name": 7}}]}
    ),
    "no UTF-8": body(b'{"metadata": {"resourceVersion": "\xff"}}'),
    "deep": body(b"[" * 200_000),
    "an error page": b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 6\r\n\r\n<html>",
    "an error without a body": b"HTTP/1.1 500 Oops\r\n\r\n",
    "an empty error": b"HTTP/1.1 503 \r\nContent-Length: 0\r\n\r\n",
    "a redirect to itself": b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n",
    "a long head": HEAD + b"x: " + b"y" * 100_000 + b"\r\n\r\n",
    "a wrong length": HEAD + b"Content-Length: 9\r\n\r\n{}",
    "a wrong chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    "broken gzip": HEAD + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd",
    "pages without end": endless,
}


@pytest.mark.parametrize("name", WRONG)
@kit.scenario
async def test_a_wrong_list(tmp_path: Path, name: str) -> None:
    wrong = WRONG[name]
    answer: Answer = (lambda target: wrong) if isinstance(wrong, bytes) else wrong
    async with serving(answer) as url, source_at(kit.kubeconfig(tmp_path, url)) as source:
        for _ in range(2):
            look = await source.look()
            assert (look.found, bool(look.problem)) == (None, True)
            assert len(look.problem) < 1000
            assert 0 < look.wait_s < 1


@pytest.mark.parametrize(
    "line",
    [
        b"\x00\n",
        b"{}\n",
        b"HTTP/1.1 200 OK\r\n",
        event(1, "10.0.0.9"),  # older than the list
        event(9, "10.0.0.9", kind="RENAMED"),
        b'{"type": "ERROR", "object": {"code": 500, "message": "etcd is gone"}}\n',
        b'{"type": "ERROR", "object": {"code": 410, "message": "too old"}}\n' * 2,
    ],
    ids=lambda line: line[:24].decode("latin-1"),
)
@kit.scenario
async def test_a_wrong_event_leads_to_a_new_list(tmp_path: Path, line: bytes) -> None:
    lists = 0

    def answer(target: str) -> bytes | None:
        nonlocal lists
        if is_watch(target):
            return chunked(line)
        lists += 1
        return body(listing(5, f"10.0.0.{lists}"))

    async with serving(answer) as url, source_at(kit.kubeconfig(tmp_path, url)) as source:
        for _ in range(3):
            before = lists
            while not (look := await source.look()).problem:
                assert addresses(look) in ([], [f"10.0.0.{lists}"])
            assert (look.found, lists > before) == (None, True)


@kit.scenario
async def test_large_events_and_many_events_at_once(tmp_path: Path) -> None:
    large = made(6, "10.0.0.2")
    large["metadata"]["annotations"] = {"x": "y" * (2 << 20)}
    events = {6: json.dumps({"type": "MODIFIED", "object": large}).encode() + b"\n"}
    events |= {n: event(n, f"10.0.{n // 250}.{n % 250}") for n in range(250, 1250)}

    def answer(target: str) -> bytes | None:
        if not is_watch(target):
            return body(listing(5, "10.0.0.1"))
        first = version_of(target) + 1
        rest = [line for version, line in events.items() if version >= first]
        return chunked(*(rest[:1] if first == 6 else rest), b"") if rest else None

    async with serving(answer) as url, source_at(kit.kubeconfig(tmp_path, url)) as source:
        assert addresses(await source.look()) == ["10.0.0.1"]
        await until(source, "10.0.0.2")
        await until(source, "10.0.4.249")


@kit.scenario
async def test_too_many_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.addons.kubernetes.source._OBJECTS_MAX", 60)
    async with kit.api_server() as server:
        for n in range(60):
            server.put(kit.SLICES, kit.slice_of(f"s{n}", kit.endpoint(f"10.0.0.{n + 1}")))
        async with source_at(kit.kubeconfig(tmp_path, server.url)) as source:
            assert len(addresses(await source.look())) == 60
            server.put(kit.SLICES, kit.slice_of("s60", kit.endpoint("10.0.0.61")))
            for _ in ("watch", "list"):
                assert (await source.look()).problem == "names more than 60 objects"


@kit.scenario
async def test_a_server_that_does_not_answer(tmp_path: Path) -> None:
    def only_lists(target: str) -> bytes | None:
        return None if is_watch(target) else body(listing(1, "10.0.0.1"))

    async with (
        serving(lambda target: None) as url,
        source_at(kit.kubeconfig(tmp_path, url)) as source,
    ):
        (await source._connected())._timeout_s = 0.2
        assert (await source.look()).problem == "no answer within 0.2 s"
    async with (
        serving(only_lists) as url,
        source_at(kit.kubeconfig(tmp_path, url)) as source,
    ):
        assert addresses(await source.look()) == ["10.0.0.1"]
        (await source._connected())._timeout_s = 0.2
        assert (await source.look()).problem == "no answer within 0.2 s"


@kit.scenario
async def test_a_look_that_is_cancelled_at_any_time_leaves_nothing_behind(tmp_path: Path) -> None:
    """The scenario checks the tasks and the open files."""
    async with kit.api_server(kit.loopback_tls()) as server:
        server.put(kit.SLICES, kit.slice_of("s", kit.endpoint("10.0.0.1")))
        path = kit.kubeconfig(tmp_path, server.url)
        for turns in (*range(0, 40, 2), *range(40, 400, 40)):
            async with source_at(path) as source:

                async def looks(source: KubernetesSource = source) -> None:
                    while True:
                        await source.look()

                task = asyncio.create_task(looks())
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        await kit.eventually(lambda: server.watching == 0, "the end of all watches")


@kit.scenario
async def test_an_error_never_has_the_token(tmp_path: Path) -> None:
    status = json.dumps({"code": 403, "message": f"no permission for {kit.TOKEN}"}).encode()
    refusal = b"HTTP/1.1 403 Forbidden\r\nContent-Length: %d\r\n\r\n" % len(status) + status
    async with (
        serving(lambda target: refusal) as url,
        source_at(kit.kubeconfig(tmp_path, url)) as source,
    ):
        assert (await source.look()).problem == "403 Forbidden"


@kit.scenario
async def test_an_expired_token_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service account of a pod. The client itself reads its token once a minute, by the clock
    on the wall."""
    token, namespace = tmp_path / "token", tmp_path / "namespace"
    token.write_text("first")
    namespace.write_text("default")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", LOOPBACK_CERT)
    monkeypatch.setattr(client, "_NAMESPACE_FILE", namespace)
    async with kit.api_server(kit.loopback_tls()) as server:
        host, _, port = server.url.removeprefix("https://").partition(":")
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
        server.token = "first"
        server.put(kit.SLICES, kit.slice_of("s", kit.endpoint("10.0.0.1")))
        async with source_at("", kubeconfig=None) as source:
            assert addresses(await source.look()) == ["10.0.0.1"]
            for number in range(2, 5):
                server.token = f"token-{number}"
                token.write_text(f"token-{number}")
                server.disconnect()
                server.put(kit.SLICES, kit.slice_of("s", kit.endpoint(f"10.0.0.{number}")))
                look = await until(source, f"10.0.0.{number}")
                assert look.problem == ""
            # Revoked, and not replaced: the fleet stays.
            server.token = "revoked"
            server.disconnect()
            async with asyncio.timeout(PATIENCE_S):
                while not (look := await source.look()).problem:
                    pass
            assert (look.found, look.problem) == (None, "401 Unauthorized")
            token.unlink()
            assert "token file does not exist" in (await source.look()).problem
            token.write_text("revoked")
            assert addresses(await source.look()) == ["10.0.0.4"]


@kit.scenario
async def test_a_missing_permission_is_named(tmp_path: Path) -> None:
    async with kit.api_server() as server:
        server.put(kit.SLICES, kit.slice_of("s", kit.endpoint("10.0.0.1")))
        server.verbs.clear()
        async with source_at(kit.kubeconfig(tmp_path, server.url)) as source:
            who = 'User "system:serviceaccount:a:b"'
            refused = f"403 endpointslices is forbidden: {who} cannot "
            assert (await source.look()).problem == refused + "list"
            server.verbs.add("list")
            assert addresses(await source.look()) == ["10.0.0.1"]
            assert (await source.look()).problem == refused + "watch"
            # Without the permission to watch, each look after the pause is a list.
            assert addresses(await source.look()) == ["10.0.0.1"]
            server.verbs.add("watch")
            server.put(kit.SLICES, kit.slice_of("s", kit.endpoint("10.0.0.2")))
            await until(source, "10.0.0.2")


PROBLEMS: dict[str, tuple[str, str]] = {
    "no file": ("", "No such file or directory"),
    "no YAML": ("{", "cannot be configured"),
    "another file": ("word", "cannot be configured"),
    "a list": ("[1]", "cannot be configured"),
    "no certificate": ("certificate-authority: /none", "File does not exists: /none"),
    "no context": ("current-context: x", "Expected object with name x in"),
}


@pytest.mark.parametrize("name", PROBLEMS)
@kit.scenario
async def test_a_wrong_kubeconfig(tmp_path: Path, name: str) -> None:
    text, problem = PROBLEMS[name]
    path = Path(kit.kubeconfig(tmp_path, "https://127.0.0.1:1"))
    key = text.partition(": ")[0]
    whole = path.read_text()
    if key in whole and key:
        path.write_text(re.sub(f"{key}: .*", text, whole))
    elif text:
        path.write_text(text)
    else:
        path.unlink()
    async with source_at(str(path)) as source:
        look = await source.look()
        assert problem in look.problem
        assert look.wait_s > 0


@kit.scenario
async def test_an_event_without_an_end(tmp_path: Path) -> None:
    def answer(target: str) -> bytes:
        return chunked(b"x" * (9 << 20)) if is_watch(target) else body(listing(5, "10.0.0.1"))

    async with serving(answer) as url, source_at(kit.kubeconfig(tmp_path, url)) as source:
        while not (look := await source.look()).problem:
            pass
        assert look.problem == "an event is larger than 8 MiB"


@kit.scenario
async def test_a_server_that_ends_each_watch_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a watch reports no change, so the objects are listed after a pause."""
    # A busy test machine may need more than a second.
    monkeypatch.setattr("router.addons.kubernetes.source._SHORT_S", PATIENCE_S)
    lists = 0

    def answer(target: str) -> bytes:
        nonlocal lists
        if is_watch(target):
            return chunked(b"")
        lists += 1
        return body(listing(lists, f"10.0.0.{lists}"))

    async with serving(answer) as url, source_at(kit.kubeconfig(tmp_path, url)) as source:
        for number in range(1, 4):
            assert addresses(await source.look()) == [f"10.0.0.{number}"]
            look = await source.look()
            assert (look.found, look.problem) == (None, "a watch ended at once")
            assert look.wait_s > 0


@pytest.mark.parametrize("kind", ["exec", "auth-provider"])
@kit.scenario
async def test_a_program_for_credentials_is_not_run(tmp_path: Path, kind: str) -> None:
    """Another user of the file may have one."""
    mark = tmp_path / "ran"
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "name": "gcp",
        "command": "touch",
        "args": [str(mark)],
    }
    async with kit.api_server() as server:
        server.put(kit.SLICES, kit.slice_of("s", kit.endpoint("10.0.0.1")))
        path = Path(kit.kubeconfig(tmp_path, server.url, **{kind: plugin}))
        async with source_at(str(path)) as source:
            assert f"'{kind}' of the user in" in (await source.look()).problem
            assert not mark.exists()
            content = yaml.safe_load(path.read_text())
            content["users"].append({"name": "v", "user": {"token": kit.TOKEN}})
            content["contexts"][0]["context"]["user"] = "v"
            path.write_text(yaml.safe_dump(content))
            assert addresses(await source.look()) == ["10.0.0.1"]
