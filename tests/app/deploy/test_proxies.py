"""The proxies in deploy/proxies, each run with its own file in front of two routers.

Only the ports are replaced. Tokens must pass at once, a client that leaves must be noticed, and a
router that drains gets no new requests.
"""

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from router.config.model import Admin
from tests.harness.behaviours import chat_either, until_told
from tests.harness.client import RawClient
from tests.harness.messages import DONE, LAST_CHUNK, SSE_HEAD, chat, chunk, completion, token
from tests.harness.ports import free_port
from tests.harness.replica import Behaviour, ReplicaConnection, eventually
from tests.harness.running import Line, Router, running, scenario
from tests.places import ROOT

FOLDER = ROOT / "deploy" / "proxies"
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin"  # for users who are not root
TRUSTED = ("127.0.0.0/8",)
PROBES = Admin(listen="127.0.0.1:0", probes_listen="127.0.0.1:0")
KEY = "Authorization: Bearer one"
EVERY = pytest.mark.parametrize("name", ["haproxy", "nginx", "envoy"])


def command(name: str, folder: Path, port: int, routers: list[Router]) -> list[str]:
    """Write the proxy's file with these ports into the folder, and return its command line."""
    program = shutil.which(name, path=PATH)
    if program is None:
        pytest.skip(f"needs {name}")
    file = next(path for path in FOLDER.iterdir() if path.stem == name)
    text = file.read_text()
    one, two = routers
    match name:
        case "haproxy":
            changes = {
                ":8443": f"127.0.0.1:{port}",
                "router-1:8080 ": f"127.0.0.1:{one.port} port {one.app.probes_port} ",
                "router-2:8080 ": f"127.0.0.1:{two.port} port {two.app.probes_port} ",
                "inter 1s": "inter 50ms",
            }
            words = [program, "-f", str(folder / file.name)]
        case "nginx":
            changes = {
                "listen 8443": f"listen 127.0.0.1:{port}",
                "127.0.0.1:8081": f"127.0.0.1:{one.port}",
                "127.0.0.1:8082": f"127.0.0.1:{two.port}",
                "/tmp/nginx-hedgerow.pid": str(folder / "nginx.pid"),
            }
            words = [program, "-c", str(folder / file.name), "-g", "daemon off;"]
        case _:
            changes = {
                "port_value: 8443": f"port_value: {port}",
                " interval: 1s": " interval: 0.05s",
                "no_traffic_interval: 1s": "no_traffic_interval: 0.05s",
            }
            for n, router in enumerate(routers, 1):
                changes[f"address: router-{n}, port_value: 8080"] = (
                    f"address: 127.0.0.1, port_value: {router.port}"
                )
            words = [program, "-c", str(folder / file.name), "--log-level", "error"]
            halves = text.split("port_value: 9902")
            ports = [str(router.app.probes_port) for router in routers]
            text = f"{halves[0]}port_value: {ports[0]}{halves[1]}port_value: {ports[1]}{halves[2]}"
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    (folder / file.name).write_text(text)
    return words


@asynccontextmanager
async def proxied(name: str, folder: Path, routers: list[Router]) -> AsyncIterator[int]:
    """Run the proxy in front of two routers; yields its port."""
    port = free_port()
    words = command(name, folder, port, routers)
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(words, stdout=output, stderr=output)
        try:
            for _ in range(200):
                assert process.poll() is None, (folder / "output").read_text()
                if await is_serving(port):
                    break
                await asyncio.sleep(0.05)
            else:
                raise AssertionError((folder / "output").read_text())
            yield port
        finally:
            process.terminate()  # killing nginx would leave its workers
            process.wait()


async def is_serving(port: int) -> bool:
    """Whether the proxy passes a request on: it may accept before it knows that a router is up."""
    try:
        client = await RawClient.connect(port)
    except OSError:
        return False
    try:
        await client.send(chat(KEY, "Connection: close"))
        return (await client.recv_response("POST")).status == 200
    except (AssertionError, OSError):
        return False
    finally:
        client.close()


def first_token_then(go: asyncio.Event, left: asyncio.Event) -> Behaviour:
    """Whole answers; of a stream one token, and the rest when `go` is set. `left`: it was cut."""

    async def behave(connection: ReplicaConnection) -> None:
        while request := await connection.recv_request():
            if not json.loads(bytes(request.body)).get("stream"):
                await connection.send(completion())
                continue
            await connection.send(SSE_HEAD, chunk(token("a")))
            await until_told(connection, go)
            if connection.ended is not None:
                left.set()
                return
            await connection.send(chunk(token("b", "stop")), chunk(DONE), LAST_CHUNK)

    return behave


@EVERY
@scenario
async def test_tokens_pass_at_once_and_a_client_that_leaves_is_noticed(
    name: str, tmp_path: Path
) -> None:
    go, left = asyncio.Event(), asyncio.Event()
    behave = first_token_then(go, left)
    async with (
        running(behave, admin=PROBES, trusted_proxies=TRUSTED) as one,
        running(behave, admin=PROBES, trusted_proxies=TRUSTED) as two,
        proxied(name, tmp_path, [one, two]) as port,
    ):
        client = await RawClient.connect(port)
        leaver = await RawClient.connect(port)
        for at in (client, leaver):
            await at.send(chat(KEY, "X-Forwarded-For: 192.0.2.1", stream=True))
            await at.recv_until(b'"a"')
        leaver.close()
        await asyncio.wait_for(left.wait(), 10)
        go.set()
        answer = await client.recv_response("POST")
        assert answer.complete
        assert answer.events()[-1] == "[DONE]"
        client.close()
        await eventually(lambda: len(streams(one, two)) == 2, "two streams in the logs")
        # The proxy's word counts, not the client's.
        assert {line["client"] for line in streams(one, two)} == {"127.0.0.1"}


def streams(*routers: Router) -> list[Line]:
    return [line for router in routers for line in router.lines() if line.get("stream")]


@EVERY
@scenario
async def test_a_router_that_drains_loses_no_request(name: str, tmp_path: Path) -> None:
    # nginx finds out by a refused connection, so there the port is closed at once.
    drain = {"lame_duck_s": 0.0 if name == "nginx" else 2.0, "grace_s": 5.0}
    async with (
        running(chat_either, admin=PROBES, trusted_proxies=TRUSTED, drain=drain) as one,
        running(chat_either, admin=PROBES, trusted_proxies=TRUSTED) as two,
        proxied(name, tmp_path, [one, two]) as port,
    ):
        keys = range(16)
        await all_answered(port, keys)
        await eventually(lambda: bool(one.lines()) and bool(two.lines()), "both are used")
        assert (await one.admin("/drain", "POST")).status == 202
        for _ in range(100):
            await all_answered(port, keys)
            if one.app.draining.done.is_set():
                break
            await asyncio.sleep(0.05)
        assert one.app.draining.done.is_set()
        await all_answered(port, keys)


async def all_answered(port: int, keys: Iterable[int]) -> None:
    """Send one request for each key, on connections of their own."""
    for key in keys:
        client = await RawClient.connect(port)
        await client.send(chat(f"Authorization: Bearer key-{key}"))
        answer = await client.recv_response("POST")
        assert answer.status == 200, answer
        client.close()
