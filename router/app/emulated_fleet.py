"""A fleet of emulated engines as a child process, for `serve --emulate` and for tests.

The child is in its own session, so that Ctrl-C reaches only the parent and streams can be drained
before their engines stop. The child also holds the read end of a pipe of the parent, so that the
child ends when the parent ends for any reason.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

import msgspec

from router.config.model import Replica


class FleetError(RuntimeError):
    """Raised if the child did not start. The child has written the reason to standard error."""


def replicas_at(urls: Sequence[str], region: str) -> tuple[Replica, ...]:
    """Return the configuration of the emulated engines of a router in this region."""
    return tuple(Replica(url=url, id=f"emulated-{n}", region=region) for n, url in enumerate(urls))


class EmulatedFleet:
    """A fleet of emulated engines in a child process. Call `start` once, then `stop`.

    `options` are further options of `hedgerow emulate`, and `module` is its module. A second
    `stop` has no effect.
    """

    def __init__(
        self,
        count: int,
        model: str = "emulated",
        options: Sequence[str] = (),
        start_timeout_s: float = 30.0,
        module: str = "router.lab.emulator",
    ) -> None:
        self.urls: list[str] = []
        self.beside = ""  # URL of the server beside the engines; empty: there is none
        # ZMQ endpoints of the engines' KV events, in the engines' order; empty: not requested.
        self.kv_events: list[str] = []
        self.kv_replays: list[str] = []
        self._arguments = ["--count", str(count), "--model", model, *options]
        self._start_timeout_s = start_timeout_s
        self._module = module
        self._child: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    async def start(self) -> list[str]:
        """Start the child; returns the engines' URLs when all of them listen. Raises FleetError."""
        self._child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            self._module,
            "--exit-with-stdin",
            *self._arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(self._start_timeout_s):
                await self._read_until_ready(self._child)
        except BaseException as err:
            await self.stop()
            if isinstance(err, TimeoutError):
                seconds = self._start_timeout_s
                raise FleetError(f"the emulated fleet was not ready in {seconds} s") from None
            raise
        return self.urls

    async def _read_until_ready(self, child: asyncio.subprocess.Process) -> None:
        assert child.stdout is not None
        while line := await child.stdout.readline():
            said = msgspec.json.decode(line)
            if said.get("ready"):
                return
            if "beside" in said:
                self.beside = said["beside"]
                continue
            self.urls.append(said["url"])
            if "kv_events" in said:
                self.kv_events.append(said["kv_events"])
                self.kv_replays.append(said["kv_replay"])
        raise FleetError(f"the emulated fleet ended with status {await child.wait()}")

    async def wait(self) -> int:
        """Wait until the child ends; returns its exit status."""
        if self._child is None:
            raise FleetError("the emulated fleet is not running")
        return await self._child.wait()

    async def stop(self, grace_s: float = 5.0) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        if child.returncode is None:
            try:
                child.terminate()
            except ProcessLookupError:
                pass
        if child.stdin is not None:
            child.stdin.close()
        try:
            async with asyncio.timeout(grace_s):
                await child.wait()
        except TimeoutError:
            child.kill()
            await child.wait()
