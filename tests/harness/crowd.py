"""Thousands of concurrent clients with one request each; records their answers and order.

`RawClient` parses strictly and costs a task for each wait. Here a connection costs one object, and
only responses with a Content-Length are understood, which whole answers and errors have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import pytest

from router.core.limits import raise_open_files
from tests.harness.replica import eventually

_TOGETHER = 200  # connections that are opened at once: the backlog is limited
_SPARE_FILES = 200


def needs_files(count: int) -> None:
    """Skip the test if this process may not open that many files."""
    most = raise_open_files()
    if most < count + _SPARE_FILES:
        pytest.skip(f"needs {count + _SPARE_FILES} open files, {most} are allowed")


class Member(asyncio.Protocol):
    """One client connection of the crowd."""

    def __init__(self, crowd: Crowd, number: int) -> None:
        self._crowd = crowd
        self._number = number
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, _, body = self._data.partition(b"\r\n\r\n")
        length = head.lower().partition(b"\r\ncontent-length: ")[2].partition(b"\r")[0]
        if length.isdigit() and len(body) >= int(length):
            self._data = b""
            self._crowd.statuses[self._number] = int(head[9:12])
            self._crowd.answered.append(self._number)

    def connection_lost(self, exc: Exception | None) -> None:
        self._crowd.open.discard(self._number)


class Crowd:
    """Clients of one port, by number from 0 on."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.members: list[Member] = []
        self.open: set[int] = set()
        self.answered: list[int] = []  # numbers of clients, in the order of their answers
        self.statuses: dict[int, int] = {}

    async def connect(self, count: int) -> None:
        loop = asyncio.get_running_loop()
        while count > 0:
            first = len(self.members)
            some = range(first, first + min(count, _TOGETHER))
            self.members += [Member(self, number) for number in some]
            self.open |= set(some)
            await asyncio.gather(
                *(
                    loop.create_connection(lambda n=n: self.members[n], "127.0.0.1", self._port)  # type: ignore[misc]
                    for n in some
                )
            )
            count -= len(some)

    def send(self, numbers: Iterable[int], data: Callable[[int], bytes]) -> None:
        for number in numbers:
            self.members[number].transport.write(data(number))

    def leave(self, numbers: Iterable[int]) -> None:
        """Disconnect all of these at once."""
        for number in numbers:
            self.members[number].transport.abort()

    async def all_answered(self, count: int) -> None:
        await reaches(lambda: len(self.answered), count, "answered")

    async def close(self) -> None:
        self.leave(range(len(self.members)))
        await eventually(lambda: not self.open, "all are closed")


async def reaches(counted: Callable[[], int], goal: int, what: str) -> None:
    """Wait until `counted` reaches `goal`, without a time limit while there is progress."""
    while (before := counted()) < goal:
        await eventually(lambda seen=before: counted() > seen, f"{before} of {goal} {what}")  # type: ignore[misc]
