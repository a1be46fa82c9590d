"""The old process's side of a restart: starts the new process, and talks with it.

The new process is started with the command of this process, so it may be another version of the
program. It reads the configuration file anew.

Must never: decide whether a restart may happen (`handover.py`), or stop this process.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

from router.app.restart.messages import (
    MESSAGE_BYTES,
    VARIABLE,
    Begin,
    Failed,
    FleetState,
    Go,
    Prepared,
    Serving,
    line,
    read_answer,
)

END_S: Final = 5.0  # seconds in which a new process that is not needed may end by itself


class RestartFailed(Exception):
    """Raised if the new process cannot take over. The text says why."""


class Successor:
    """A new process that is to replace this process. Call `abandon` if it must not."""

    def __init__(
        self,
        child: subprocess.Popen[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._child = child
        self._reader = reader
        self._writer = writer
        self._copy: int | None = None  # of this end of the conversation, once the process serves

    @classmethod
    async def start(cls, begin: Begin) -> Successor:
        """Starts the new process. Raises OSError."""
        ours, theirs = socket.socketpair()
        try:
            reader, writer = await asyncio.open_connection(sock=ours, limit=MESSAGE_BYTES)
        except BaseException:
            ours.close()
            theirs.close()
            raise
        try:
            with theirs:
                # Not asyncio's subprocess: the end of an event loop would kill it.
                child = subprocess.Popen(
                    command(sys.orig_argv, sys.executable),
                    env={**os.environ, VARIABLE: str(theirs.fileno())},
                    pass_fds=[theirs.fileno(), *begin.fds],
                )
        except BaseException:
            writer.close()
            raise
        writer.write(line(begin))
        return cls(child, reader, writer)

    @property
    def pid(self) -> int:
        return self._child.pid

    async def prepared(self) -> None:
        """Waits until the new process can take over. Raises RestartFailed."""
        await self._await(Prepared)

    async def go(self, fleet: FleetState) -> list[int]:
        """Lets the new process accept connections. Returns the sockets that it uses.

        Raises RestartFailed if it has ended instead. It may have accepted connections.
        """
        self._writer.write(line(Go(fleet)))
        serving = await self._await(Serving)
        assert isinstance(serving, Serving)
        # The new process waits until this copy is closed, usually by the end of this process.
        self._copy = os.dup(self._writer.get_extra_info("socket").fileno())
        return list(serving.fds)

    async def _await(self, kind: type[Prepared | Serving]) -> Prepared | Serving:
        try:
            data = await self._reader.readline()
            answer = read_answer(data) if data else None
        except OSError:  # The new process ended before it read a message.
            answer = None
        except ValueError as err:
            raise RestartFailed(str(err)) from None
        if isinstance(answer, Failed):
            await self._wait()  # It still writes to standard error, which both processes share.
            raise RestartFailed(answer.why)
        if answer is None:
            raise RestartFailed(f"the new process {_end(await self._wait())}")
        if not isinstance(answer, kind):
            raise RestartFailed("the new process does not keep to the order of the messages")
        return answer

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to the new process, if it still runs."""
        self._child.send_signal(number)

    async def ended(self) -> int:
        """Waits for the end of the process, however long it takes. Returns its status."""
        loop = asyncio.get_running_loop()
        try:
            descriptor = os.pidfd_open(self._child.pid)
        except ProcessLookupError:
            return self._child.wait()
        has_ended = asyncio.Event()
        loop.add_reader(descriptor, has_ended.set)
        try:
            await has_ended.wait()
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)
        return self._child.wait()

    def close(self) -> None:
        """Ends the conversation. Call this if the new process has ended and this one goes on."""
        self._writer.close()
        if self._copy is not None:
            os.close(self._copy)
            self._copy = None

    async def abandon(self) -> None:
        """Ends the new process, unless it has ended."""
        self._writer.close()
        self._child.terminate()
        await self._wait()

    async def _wait(self) -> int:
        """Waits for the end of the new process, and kills it after END_S. Returns its status."""
        return await asyncio.get_running_loop().run_in_executor(None, self._reap)

    def _reap(self) -> int:
        try:
            return self._child.wait(END_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            return self._child.wait()


def command(argv: Sequence[str], executable: str) -> list[str]:
    """Return the command that starts the program again.

    `argv`: the command of this process. `executable`: its Python interpreter. An installed script
    is started itself, because a new version of it may name another interpreter.
    """
    words = [*argv[1:]]
    is_script = bool(words) and os.path.isfile(words[0]) and os.access(words[0], os.X_OK)
    return words if is_script else [executable, *words]


def _end(status: int) -> str:
    """Return how a process ended. `status` is negative if a signal ended it."""
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    return f"ended with status {status}; its standard error says why"
