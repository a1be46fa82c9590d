"""Names to addresses: known addresses stay when the name server fails.

The name server is this process: asyncio's own loop calls `socket.getaddrinfo` in a thread.
"""

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from router.fleet.monitor import resolve
from router.fleet.monitor.resolve import Resolver


class Names:
    """A name server under the test's control."""

    def __init__(self) -> None:
        self.asked = 0
        self.answer: list[str] | OSError = ["10.0.0.1", "10.0.0.2"]
        self.hangs: threading.Event | None = None

    def __call__(self, host: str, *args: Any, **options: Any) -> list[Any]:
        self.asked += 1
        if self.hangs is not None:
            self.hangs.wait(10)
        if isinstance(self.answer, OSError):
            raise self.answer
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (a, 0)) for a in self.answer]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    server = Names()
    monkeypatch.setattr(socket, "getaddrinfo", server)
    return server


def run(body: Callable[[Resolver, list[str]], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        told: list[str] = []
        async with asyncio.timeout(10):
            await body(Resolver("engine.test", lambda host, why: told.append(host)), told)

    asyncio.run(main())


def expire(resolver: Resolver) -> None:
    """Make the last answer too old."""
    resolver._asked_at -= resolve.TTL_S + 1


def test_an_address_needs_no_name_server(names: Names) -> None:
    async def body(_: Resolver, told: list[str]) -> None:
        for address in ("127.0.0.1", "::1"):
            assert await Resolver(address, lambda host, why: None)() == [address]

    run(body)
    assert names.asked == 0


def test_an_answer_is_used_for_its_time(names: Names) -> None:
    async def body(resolver: Resolver, told: list[str]) -> None:
        assert await resolver() == ["10.0.0.1", "10.0.0.2"]
        names.answer = ["10.0.0.3", "10.0.0.3"]
        assert await resolver() == ["10.0.0.1", "10.0.0.2"]
        assert names.asked == 1
        expire(resolver)
        assert await resolver() == ["10.0.0.3"]
        assert told == []

    run(body)


@pytest.mark.parametrize("answer", [socket.gaierror(-2, "no such name"), [], TimeoutError()])
def test_a_failure_keeps_the_old_answer_and_is_told(
    names: Names, answer: list[str] | OSError
) -> None:
    async def body(resolver: Resolver, told: list[str]) -> None:
        await resolver()
        names.answer = answer
        expire(resolver)
        assert await resolver() == ["10.0.0.1", "10.0.0.2"]
        assert await resolver() == ["10.0.0.1", "10.0.0.2"]
        assert told == ["engine.test"]
        assert names.asked == 2

    run(body)


@pytest.mark.parametrize("answer", [socket.gaierror(-2, "no such name"), []])
def test_a_name_that_was_never_known_is_an_error(names: Names, answer: list[str] | OSError) -> None:
    names.answer = answer

    async def body(resolver: Resolver, told: list[str]) -> None:
        for _ in range(2):
            with pytest.raises(OSError):
                await resolver()
        assert names.asked == 2
        names.answer = ["10.0.0.9"]
        assert await resolver() == ["10.0.0.9"]

    run(body)


def test_a_name_server_that_hangs_takes_no_known_address_away(names: Names) -> None:
    """A connect waits for at most 2 s, so its name lookup must not wait that long."""
    released = threading.Event()

    async def body(resolver: Resolver, told: list[str]) -> None:
        await resolver()
        names.hangs = released
        expire(resolver)
        try:
            async with asyncio.timeout(1.5):
                assert await resolver() == ["10.0.0.1", "10.0.0.2"]
        finally:
            released.set()

    run(body)


def test_a_map_of_names_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolve, "MOST", 2)
    known: dict[str, resolve.Resolve] = {}
    one, two, three, four = (Resolver(f"10.0.0.{n}", lambda host, why: None) for n in range(1, 5))
    resolve.remember(known, "one", one)
    resolve.remember(known, "two", two)
    resolve.remember(known, "one", four)  # "one" is stored again, so "two" is the oldest
    resolve.remember(known, "three", three)
    assert known == {"one": four, "three": three}
