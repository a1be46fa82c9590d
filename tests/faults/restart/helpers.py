"""A router process that restarts, in front of one replica that the test controls."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.harness.behaviours import chat_either
from tests.harness.client import RawClient
from tests.harness.messages import DONE, LAST_CHUNK, SSE_HEAD, chat, chunk, request, token
from tests.harness.process import RouterProcess, serving, write_config
from tests.harness.reading import Response
from tests.harness.replica import Behaviour, HostileReplica, ReplicaConnection

EXTRA = "timeouts: {keep_alive: 5}\ndrain: {lame_duck: 0, grace: 30}\n"
# A new process waits for its replicas for a shorter time.
IMPATIENT = ("tests.faults.restart.impatient",)


class Restarting:
    """A router process, its replica and its configuration file."""

    def __init__(self, router: RouterProcess, hostile: HostileReplica, config: Path) -> None:
        self.router = router
        self.hostile = hostile
        self.config = config

    def write(self, extra: str = "", *, replica: str = "") -> None:
        """Change the configuration file."""
        write_config(self.config, replica or self.hostile.url, extra=EXTRA + extra)

    async def ask(self, data: bytes | None = None) -> Response:
        client = await self.router.client()
        try:
            await client.send(chat() if data is None else data)
            return await client.recv_response("POST")
        finally:
            client.close()

    async def status(self, path: str, port: int = 0) -> int:
        """The status of a page of the admin port, or of another port."""
        client = await RawClient.connect(port or self.router.admin_port)
        try:
            await client.send(request(path, "Connection: close"))
            return (await client.recv_response()).status
        finally:
            client.close()

    async def begins(self) -> dict[str, Any]:
        """Wait until a new process has been started."""
        return await self.router.next_event("restarting")


def held(go: asyncio.Event) -> Behaviour:
    """Stream one token, and the rest when `go` is set."""

    async def behave(connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            await connection.send(SSE_HEAD, chunk(token("a")))
            await go.wait()
            await connection.send(chunk(token("b", "stop")), chunk(DONE), LAST_CHUNK)

    return behave


@asynccontextmanager
async def restarting(
    tmp_path: Path,
    behave: Behaviour = chat_either,
    *,
    extra: str = "",
    **serve: Any,
) -> AsyncIterator[Restarting]:
    """A running router; `serve`: arguments of `serving`."""
    async with HostileReplica(behave) as hostile:
        config = tmp_path / "config.yaml"
        write_config(config, hostile.url, extra=EXTRA + extra)
        async with serving(config, **serve) as router:
            yield Restarting(router, hostile, config)


def is_alive(pid: int) -> bool:
    """Whether a process runs. A process that has ended and was not awaited does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"
