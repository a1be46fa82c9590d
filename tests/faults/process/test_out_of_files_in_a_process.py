"""A router without free file descriptors: it idles, logs it once, and recovers by itself."""

import asyncio
import json
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from router.core.errors import Reason
from tests.harness.behaviours import chat_either, stream_then_hang
from tests.harness.client import RawClient
from tests.harness.messages import chat, request, role, token
from tests.harness.process import RouterProcess, serving, write_config
from tests.harness.reading import Response
from tests.harness.replica import HostileReplica
from tests.harness.running import assert_error, scenario

CLIENTS = 20
_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far, user and system (proc_pid_stat(5))."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


@contextmanager
def no_files_left(pid: int) -> Iterator[None]:
    """Lower the process's limit to the number of open files."""
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    taken = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
    lowest_free = next(number for number in range(len(taken) + 1) if number not in taken)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))


async def ask(router: RouterProcess, data: bytes, *, admin: bool = False) -> Response:
    client = await router.client(admin=admin)
    try:
        await client.send(data)
        return await client.recv_response()
    finally:
        client.close()


@scenario
async def test_it_idles_and_recovers(tmp_path: Path) -> None:
    engine = HostileReplica(chat_either)
    engine.then(stream_then_hang(role(), token("a")))
    engine.start()
    config = tmp_path / "config.yaml"
    write_config(config, engine.url, extra="drain: {lame_duck: 0, grace: 1}\n")
    waiting: list[RawClient] = []
    try:
        async with serving(config) as router:
            pid = router.child.pid
            stream = await router.client()
            waiting.append(stream)
            await stream.send(chat(stream=True))
            while b'"a"' not in stream.unread:
                assert await stream.fill()
            asks = await router.client()
            waiting.append(asks)
            # The router answers this without a pooled connection.
            await asks.send(request("/v1/models"))
            assert (await asks.recv_response()).status == 200
            with no_files_left(pid):
                waiting += [await router.client() for _ in range(CLIENTS)]
                waiting += [await router.client(admin=True) for _ in range(3)]
                # the client was accepted before; a replica connection cannot be opened
                await asks.send(chat())
                assert_error(await asks.recv_response(), Reason.NO_FILES)
                spent = cpu_s(pid)
                for _ in range(10):
                    await asyncio.sleep(0.05)
                spent = cpu_s(pid) - spent
                assert spent < 0.15, f"{spent:.2f} s of CPU in half a second of having no files"
                assert stream.ended is None
            assert (await ask(router, request("/livez"), admin=True)).status == 200
            assert (await ask(router, request("/readyz"), admin=True)).status == 200
            assert (await ask(router, chat())).status == 200
            assert stream.ended is None
            await asks.send(chat())
            assert (await asks.recv_response()).status == 200
            stream.rst()
            for client in waiting:
                client.close()
            router.signal(signal.SIGTERM)
            said = await rest_of(router)
            assert len(said) == len(set(said)), said  # each message once per minute at most
    finally:
        for client in waiting:
            client.close()
        await engine.stop()


async def rest_of(router: RouterProcess) -> list[str]:
    """Every message until the process ends; a line that is not JSON fails."""
    assert router.child.stderr is not None
    async with asyncio.timeout(5):
        lines = (await router.child.stderr.read()).splitlines()
        assert await router.child.wait() == 0
    return [str(event["message"]) for event in (*router.events, *map(json.loads, lines))]
