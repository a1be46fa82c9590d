"""The router as users run it: a separate process, with its signals and exit status."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.harness.client import RawClient
from tests.harness.clocks import as_yaml
from tests.harness.peer import WAIT_S

START_S = 60.0  # time limit of the start: two seconds on an idle machine


class RouterProcess:
    """`hedgerow serve`, its ports, and its output on standard error."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self.child = child
        self.pid = child.pid  # of the process that serves; a restart changes it
        self.port = 0
        self.admin_port = 0
        self.events: list[dict[str, Any]] = []

    async def next_event(self, *messages: str) -> dict[str, Any]:
        """Wait for one of `messages`; earlier output is kept in `events`."""
        assert self.child.stderr is not None
        async with asyncio.timeout(START_S):
            while line := await self.child.stderr.readline():
                if not line.startswith(b"{"):
                    self.events.append({"message": line.decode("utf-8", "replace")})
                    continue
                event = json.loads(line)
                self.events.append(event)
                if event["message"] in messages:
                    return dict(event)
        raise AssertionError(f"it ended without saying {messages}: {self.events}")

    async def event_after(self, known: int, message: str) -> dict[str, Any]:
        """Wait for an event with this message that is not among the first `known` of `events`.

        Two processes write during a restart, so their events may come in any order.
        """
        for event in self.events[known:]:
            if event["message"] == message:
                return event
        return await self.next_event(message)

    async def client(self, *, admin: bool = False) -> RawClient:
        return await RawClient.connect(self.admin_port if admin else self.port)

    async def send(self, *data: bytes) -> RawClient:
        """Send a request on a new connection, and return the connection."""
        client = await self.client()
        await client.send(*data)
        return client

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    async def restart(self) -> dict[str, Any]:
        """Replace the process by a new one; return the event that says how this went."""
        self.signal(signal.SIGUSR2)
        event = await self.next_event("restarted", "restart failed", "restart refused")
        if event["message"] == "restarted":
            self.pid = event["pid"]
        return event

    async def rest(self) -> list[dict[str, Any]]:
        """Kill all processes; return all events since the last awaited one."""
        self.kill()
        assert self.child.stderr is not None
        written = await self.child.stderr.read()
        return [json.loads(line) for line in written.splitlines() if line.startswith(b"{")]

    def kill(self) -> None:
        """Kill the process and every process that has replaced it."""
        try:
            os.killpg(self.child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    async def exit_status(self) -> int:
        """Wait for the end of all processes; return the status of the first one."""
        async with asyncio.timeout(WAIT_S):
            assert self.child.stderr is not None
            await self.child.stderr.read()
            return await self.child.wait()


@asynccontextmanager
async def serving(
    config: Path | None,
    *flags: str,
    program: Sequence[str] = ("router",),
    command: Sequence[str] = (),
    pass_fds: Sequence[int] = (),
    **environ: str,
) -> AsyncIterator[RouterProcess]:
    """Run `serve` until the block ends; it is killed if it still runs then.

    None: no configuration file, only flags. `program`: the module to run and its arguments before
    `serve`. `command`: an executable file and its arguments instead. `pass_fds`: open files that it
    inherits. `environ`: more environment variables.
    """
    child = await asyncio.create_subprocess_exec(
        *(command or (sys.executable, "-m", *program)),
        "serve",
        *(() if config is None else ("--config", str(config))),
        *flags,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        pass_fds=pass_fds,
        env={**os.environ, **environ},
        start_new_session=True,
    )
    process = RouterProcess(child)
    try:
        ready = await process.next_event("ready", "listening, and no replica is up")
        port = ready["listen"].rpartition(":")[2]
        process.port = int(port) if port.isdigit() else 0  # 0: a Unix socket
        process.admin_port = int(ready["admin"].rpartition(":")[2])
        yield process
    finally:
        process.kill()
        assert child.stderr is not None
        await child.stderr.read()
        await child.wait()
        child._transport.close()  # type: ignore[attr-defined]
        await asyncio.sleep(0)


def write_config(path: Path, *urls: str, extra: str = "", each: str = "") -> None:
    """A configuration with free ports in front of these replicas; `each`: fields of every replica.

    The settings are the shipped ones, with shorter intervals.
    """
    replicas = "".join(f"  - {{url: '{url}', {each}}}\n" for url in urls)
    path.write_text(
        f"listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\n{as_yaml()}replicas:\n{replicas}{extra}"
    )
