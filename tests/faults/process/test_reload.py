"""Reload: a new configuration is applied completely or not at all; streams are not affected."""

import signal
from pathlib import Path

import pytest

from tests.harness.behaviours import json_ok, stream_then_hang
from tests.harness.messages import chat, request, role, token
from tests.harness.process import RouterProcess, serving, write_config
from tests.harness.reading import Response
from tests.harness.replica import Behaviour, HostileReplica, eventually
from tests.harness.running import scenario

BROKEN = {
    "no yaml": "replicas: [\n",
    "unknown key": "replicas: [{url: 'http://a:1'}]\nnonsense: 1\n",
    "duplicate name": "replicas: [{url: 'http://a:1', id: x}, {url: 'http://a:2', id: x}]\n",
    "no replica": "replicas: []\n",
    "wrong type": "replicas: [{url: 'http://a:1'}]\ntimeouts: {head: soon}\n",
    "bad url": "replicas: [{url: 'ftp://a'}]\n",
    "half-written": "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nrepl",
    "empty": "",
    "binary": "\x00\x01",
    "another port": "listen: 127.0.0.1:1\nadmin: 127.0.0.1:0\nreplicas: [{url: 'http://a:1'}]\n",
}


async def post_reload(router: RouterProcess) -> Response:
    client = await router.client(admin=True)
    await client.send(request("/reload", method="POST", body=b""))
    answer = await client.recv_response()
    client.close()
    return answer


async def ask(router: RouterProcess, data: bytes) -> Response:
    client = await router.send(data)
    answer = await client.recv_response()
    client.close()
    return answer


def replica(behave: Behaviour) -> HostileReplica:
    made = HostileReplica(behave)
    made.start()
    return made


@scenario
async def test_a_broken_one_is_refused_and_said_so(tmp_path: Path) -> None:
    hostile = replica(json_ok)
    config = tmp_path / "config.yaml"
    write_config(config, hostile.url)
    try:
        async with serving(config) as router:
            for name, text in BROKEN.items():
                config.write_text(text)
                answer = await post_reload(router)
                assert 400 <= answer.status < 600, name
                assert len(answer.body) > 10, name
                assert (await ask(router, chat())).status == 200, name
            config.unlink()
            assert (await post_reload(router)).status >= 400
            for _ in range(2):  # each signal gets its answer, even if it comes early
                router.signal(signal.SIGHUP)
                await router.next_event("reload refused")
            assert (await ask(router, chat())).status == 200
    finally:
        await hostile.stop()


@pytest.mark.parametrize("way", ["post", "hang up"])
@scenario
async def test_a_good_one_is_swapped_in_and_streams_stay(tmp_path: Path, way: str) -> None:
    old, new = replica(stream_then_hang(role(), token("a"))), replica(json_ok)
    config = tmp_path / "config.yaml"
    write_config(config, old.url)
    try:
        async with serving(config) as router:
            stream = await router.send(chat(stream=True))
            await stream.recv_until(b'"a"')
            write_config(config, new.url)
            if way == "post":
                assert (await post_reload(router)).status == 200
            else:
                router.signal(signal.SIGHUP)
                await router.next_event("reloaded")
            for _ in range(3):
                assert (await ask(router, chat())).status == 200
            assert len(new.requests) == 3
            assert stream.ended is None
            assert old.sessions[0].ended is None
            stream.rst()
            await eventually(lambda: old.sessions[0].ended is not None, "the stream's end")
    finally:
        await old.stop()
        await new.stop()
