"""A table of attacks, and what their clients do."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from router.config.keys import KeyLine, hash_of, line_of
from router.core.addons import is_installed
from tests.abuse.hostile import Client
from tests.abuse.victim import LOOP_S, MEMORY, Victim, reproducible, under_attack
from tests.faults.process.metrics import number
from tests.harness.client import RawClient
from tests.harness.messages import request
from tests.harness.reading import Response
from tests.harness.running import scenario

Recipe = Callable[[Victim], Awaitable[None]]


class Recipes:
    """Attacks by name, each with its limits."""

    def __init__(self) -> None:
        self.by_name: dict[str, Callable[[Path], None]] = {}

    def recipe(
        self,
        *,
        memory: int = MEMORY,
        extra: str = "",
        loop_s: float = LOOP_S,
        threads: bool = False,
        files: int = 0,
    ) -> Callable[[Recipe], Recipe]:
        """Register a recipe with its limits of memory (bytes) and of the loop, and configuration.

        `threads`: other threads count like the loop, because a decoder in a thread blocks the loop,
        too. `files`: the open-file limit of the router.
        """

        def register(attack: Recipe) -> Recipe:
            def run(folder: Path) -> None:
                if extra.startswith("batches:") and not is_installed("batches"):
                    pytest.skip("there is no addon batches")
                key = KeyLine(name="a", hash=hash_of(b"a key"))
                (folder / "keys.jsonl").write_text(line_of(key) + "\n")

                @scenario
                async def story() -> None:
                    said = extra.replace("{folder}", str(folder))
                    async with (
                        under_attack(folder, said, files=files) as victim,
                        victim.attacked(memory, loop_s, threads=threads),
                    ):
                        await attack(victim)

                reproducible(story)

            self.by_name[attack.__name__] = run
            return attack

        return register

    def run(self, name: str, folder: Path) -> None:
        self.by_name[name](folder)


async def ask(victim: Victim, data: bytes, sizes: tuple[int, ...] = (), turns: int = 1) -> Response:
    """Send a request in pieces of these sizes, with `turns` loop turns between two; read the
    answer.
    """
    client = await RawClient.connect(victim.port)
    try:
        at, index = 0, 0
        loop = asyncio.get_running_loop()
        while at < len(data):
            size = sizes[min(index, len(sizes) - 1)] if sizes else len(data)
            await loop.sock_sendall(client.sock, data[at : at + size])
            at += size
            index += 1
            for _ in range(turns if at < len(data) else 0):
                await asyncio.sleep(0)
        return await client.recv_response()
    finally:
        client.close()


async def at_once(victim: Victim, *clients: Client) -> None:
    """Let all these clients act at the same time."""
    await asyncio.gather(*(client.act(victim.port) for client in clients))


@asynccontextmanager
async def listing(victim: Victim, names: Iterable[str], length: int) -> AsyncIterator[None]:
    """Let the hostile replica serve these models for the `with` block, which begins when the
    router's list of models has `length` bytes.
    """
    control = victim.hostile.control
    before, control.models = control.models, tuple(names)
    async with asyncio.timeout(10):
        while len((await ask(victim, request("/v1/models"))).body) < length:
            await asyncio.sleep(0.05)
    yield
    control.models = before


async def ended(victim: Victim, least: int, *statuses: int, kind: str = "") -> None:
    """Fail unless `least` requests of this kind of route have ended with these statuses."""
    ends = await victim.ends()
    found = sum(
        count
        for (route, status), count in ends.items()
        if int(status) in statuses and kind in ("", route)
    )
    assert found >= least, f"the attack was hardly felt: {dict(ends)}"


async def came(victim: Victim, least: int) -> None:
    """Fail unless `least` client connections were accepted."""
    accepted = await number(victim.process.admin_port, "hedgerow_client_connections_accepted_total")
    assert accepted >= least, f"{accepted:.0f} connections were accepted"
